"""The window of a source whose stream is acknowledged (flow = "acked").

Its lower edge is what every member has, its size is fixed; a source that has filled it waits. Originals and repairs are
both bounded by it, so receivers are asked to hold no more than one window, and no rate has to be guessed (JG-01 - JG-07).

Without members there is nobody to wait for: the stream goes as fast as its rate allows, and nothing is stable.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.acked.ack_collector import AckCollector, AckReport
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.segment import Segment
from pgm.core.status import AckStatus
from pgm.parameters import Parameters
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Ack
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import Flow, Members, find
from pgm.wire.sequence_numbers import unwrap


class AckedWindow:
    """What the members of one stream have acknowledged, and how far its source may go."""

    def __init__(
        self,
        tsi: Tsi,
        data_port: int,
        segments: Sequence[Segment],
        parameters: Parameters,
        counters: Counters,
        first_sqn: int,
    ) -> None:
        self._terms = AckTerms.of_parameters(parameters)
        self._counters = counters
        self._waits = parameters.ack_full == "wait"
        self._quorum = parameters.ack_quorum
        self._children = AckCollector(tsi, data_port, segments, parameters, counters)
        self.stable = first_sqn - 1  # the newest sqn that everybody has
        self._full_since_ns: int | None = None
        self._has_news = False  # more is stable: whoever waits for that is woken by a deadline

    @property
    def option(self) -> Flow:
        """What SPMs say of it."""
        return self._terms.option

    @property
    def members(self) -> int:
        """Receivers that are waited for."""
        return self._children.table.members

    @property
    def holder(self) -> Nla:
        """The receiver that is furthest behind; empty without any."""
        return self._children.table.holder

    @property
    def status(self) -> AckStatus:
        """What operators see of it."""
        return self._children.status(self.stable, self._terms)

    @property
    def _base(self) -> int:
        """A member that joins counts from where the others are: nobody waits for what it missed before."""
        low = self._children.table.low
        return self.stable if low is None else max(self.stable, low)

    @property
    def unstable_from(self) -> int:
        """The oldest sqn that some member may still ask for; NEVER if there is none."""
        return self._base + 1 if len(self._children.table) else NEVER

    def room(self, lead: int, now_ns: int) -> int:
        """Packets that may be sent now."""
        if not self._waits or not len(self._children.table):
            self._note_full(False, now_ns)
            return NEVER
        room = max(0, self._base + self._terms.window - lead)
        self._note_full(not room, now_ns)
        return room

    def _note_full(self, is_full: bool, now_ns: int) -> None:
        if is_full and self._full_since_ns is None:
            self._full_since_ns = now_ns
            self._counters.window_blockings += 1
        elif not is_full and self._full_since_ns is not None:
            blocked_us = (now_ns - self._full_since_ns) // MICROSECOND
            self._counters.window_blocked_us += blocked_us
            self._counters.window_blocked_most_us = max(self._counters.window_blocked_most_us, blocked_us)
            self._full_since_ns = None

    def on_ack(self, ack: Ack, lead: int, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take an ack of a child of the source, on whichever line it came."""
        said, acked = find(ack.options, Members), unwrap(ack.rx_max, lead)
        if said is None or said.confirms or acked > lead:
            self._counters.foreign_packets += 1
            return NOTHING
        effects = self._children.on_ack(AckReport(acked, said, lead), segment, peer, self._terms, now_ns)
        self._follow()
        if said.leaves:
            self._children.forget(segment, peer)
            self._follow()
        return effects

    def _follow(self) -> None:
        low = self._children.table.low
        if low is None:
            low = self._children.departed(self._quorum)  # of the last to leave; who was still counted then is gone
        elif self.members < self._quorum:
            return
        if low > self.stable:
            self.stable, self._has_news = low, True

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return 0 if self._has_news else self._children.deadline_ns

    def handle_deadline(self, lead: int, now_ns: int) -> list[Effect]:
        """Confirm acks; forget members that are gone or stuck."""
        self._has_news = False
        if now_ns < self._children.deadline_ns:
            return []
        effects = self._children.handle_deadline(self._terms, lead, now_ns)
        self._follow()
        return effects
