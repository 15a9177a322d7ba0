"""One node's protocol events: what its core tells of losses, and what its driver sees of packets, as telemetry rows.

What happens all the time (data sent, received, delivered) is added up over `telemetry_sample_ivl`; what is about a loss
is a row for each run of sqns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from pgm.core.effects import Closed, Deliver, Effect, Lost, Opened, Send
from pgm.core.interface import Core
from pgm.core.loss_observer import MissingView
from pgm.core.segment import Channel
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MICROSECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import HEADER, SQN_AT, TYPE_AT, Nla, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import SPACE, spans_of, wrap
from pgm.wire.train import Data, Train

_TIMERS = ("nak_bo_ivl", "reorder_ivl", "nak_rpt_ivl", "nak_rdata_ivl")
_SENT_AS = {PacketType.NAK: "nak_sent", PacketType.NCF: "ncf_sent"}

_MOST_LINES = 4096  # whose last rows are remembered: 64 sessions of as many lines
_MOST_SUMS = 4096  # under way: who sends in thousands of names has each told by itself, and no memory


@attrs.define
class _LineTold:
    """What was last told of one line."""

    at_us: int
    lost: int


@attrs.define
class _Sum:
    """What was added up so far."""

    since_us: int
    first: int
    count: int = 0


class Observer:
    """Watches one core and its driver. `offset_ns` is what the wall clock is ahead of the core's clock."""

    def __init__(self, plan: NodePlan, log: EventLog, now_ns: int, offset_ns: int) -> None:
        self._plan = plan
        self._log = log
        self._offset_ns = offset_ns
        self._now_ns = now_ns
        self._role = plan.role.value
        self._is_receiver = plan.role is Role.RECEIVER
        self._up = plan.upstream.name
        self._sample_us = plan.parameters.telemetry_sample_ivl // MICROSECOND
        self._ports = frozenset(stream.data_port for stream in plan.streams)  # others are no business of this node
        self._sums: dict[tuple[str, str, Tsi, Nla], _Sum] = {}
        self._lines: dict[tuple[str, Tsi], _LineTold] = {}
        self._arrived: list[Event] = []  # until it is said by what
        for segment in plan.segments:
            self._add("address", segment.name, peer=segment.address or "", cause=segment.side)
        if plan.role is not Role.SOURCE:
            for key in _TIMERS:
                self._add("timer", cause=key, value_us=getattr(plan.parameters, key) // MICROSECOND)

    def _add(
        self,
        kind: str,
        segment: str = "",
        tsi: Tsi | None = None,
        first: int = 0,
        count: int = 0,
        *,
        peer: Nla = "",
        value_us: int | None = None,
        tries: int = 0,
        cause: str = "",
    ) -> None:
        for event in self._events(kind, segment, tsi, first, count, peer, value_us, tries, cause):
            self._log.add(event)

    def _events(
        self,
        kind: str,
        segment: str,
        tsi: Tsi | None,
        first: int,
        count: int,
        peer: Nla,
        value_us: int | None,
        tries: int,
        cause: str,
    ) -> Iterator[Event]:
        """The row of an event; two where its sqns begin anew."""
        name = "" if tsi is None else tsi_text(tsi)
        low = wrap(first)
        before = min(count, SPACE - low)
        parts = [(low, before)] if before == count else [(low, before), (0, count - before)]
        time_us = (self._now_ns + self._offset_ns) // MICROSECOND
        for at, some in parts:
            yield Event(
                time_us, self._plan.name, self._role, segment, kind, name, at, some, peer, value_us, tries, cause
            )

    # What the core tells

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """A gap: `pgm.core.loss_observer` says more of this and those below."""
        self._now_ns = now_ns
        self._add("gap", self._up, tsi, first, end - first)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Keep these until `filled` says by what they came."""
        self._now_ns = now_ns
        for one in found:
            self._arrived += self._waited(tsi, one, "late", now_ns - one.found_at_ns, one.state_name)

    def _waited(self, tsi: Tsi, one: MissingView, kind: str, waited_ns: int, cause: str = "") -> list[Event]:
        tries = one.ncf_retries + one.data_retries
        count = one.end - one.first
        return list(self._events(kind, self._up, tsi, one.first, count, "", waited_ns // MICROSECOND, tries, cause))

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Write what arrived, as repaired or late."""
        arrived, self._arrived = self._arrived, []
        for event in arrived:
            event.peer = peer
            if kind is PacketType.RDATA:
                event.kind = "repaired"
                event.local = peer in self._plan.local_repairers
            self._log.add(event)

    def _tell(self, tsi: Tsi, one: MissingView, kind: str, since_ns: int, now_ns: int) -> None:
        self._now_ns = now_ns
        for event in self._waited(tsi, one, kind, now_ns - since_ns, one.state_name):
            self._log.add(event)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Not asked for any more."""
        self._tell(tsi, found, "gave_up", found.found_at_ns, now_ns)

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """An own NAK is answered."""
        self._tell(tsi, found, "confirmed", found.since_ns, now_ns)

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Somebody else asked first."""
        self._tell(tsi, found, "suppressed", found.found_at_ns, now_ns)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """A wait was in vain."""
        kind = "ncf_timeout" if found.state_name == "WAIT_NCF" else "rdata_timeout"
        self._tell(tsi, found, kind, found.since_ns, now_ns)

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """A gap that was none."""
        self._add("skipped", self._up, tsi, first, end - first)

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """An aggregator has got what it missed."""
        self._add("repaired", self._up, tsi, first, end - first, cause="MENDED")

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """A line goes on: a row once in the sample interval. Sqns of a line that was behind may still come, so losses may shrink."""
        now_us = now_ns // MICROSECOND
        told = self._lines.get((segment, tsi))
        if told is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            told = self._lines[segment, tsi] = _LineTold(now_us, lost)
        if now_us - told.at_us >= self._sample_us:
            count = lost - told.lost
            told.at_us, told.lost = now_us, lost
            self._add("line", segment, tsi, end - 1, count, value_us=behind_ns // MICROSECOND)

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Another parent is asked."""
        self._add("parent", self._up, peer=new or "", cause=old or "")

    # What the driver sees

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """What is about to be handed to the core."""
        self._now_ns = now_ns
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data):
                if self._plan.role is not Role.SOURCE and (not self._ports or item.data_port in self._ports):
                    kind = "received" if item.type is PacketType.ODATA else "rdata_heard"
                    self._sum(kind, channel.segment.name, item.tsi, peer, item.wire_sqn, item.count)
            elif isinstance(item, Nak) and item.kind is PacketType.NAK and not self._is_receiver:
                for first, end in spans_of(item.sqns):
                    self._add("nak_in", channel.segment.name, item.tsi, first, end - first, peer=peer)

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """What the core wants done."""
        self._now_ns = now_ns
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(effect)
            elif isinstance(effect, Deliver):
                self._sum("delivered", self._up, effect.tsi, "", effect.run.first, effect.run.count)
            elif isinstance(effect, Lost):
                self._add("lost", self._up, effect.tsi, effect.first, effect.count, cause=effect.cause.value)
            elif isinstance(effect, Opened):
                cause = "resumed" if effect.resumed else "begins"
                self._add("opened", self._up, effect.tsi, effect.first, peer=effect.peer, cause=cause)
            elif isinstance(effect, Closed):
                self._add("closed", self._up, effect.tsi, effect.next_sqn, cause=effect.cause.value)

    def _sent(self, send: Send) -> None:
        segment, to = send.segment.name, send.to or ""
        if send.is_data and send.octets[TYPE_AT] == PacketType.ODATA:
            # Sources and relays send trains of one session: no need to look at every packet.
            head = bytes(send.octets[: SQN_AT + 4])
            sport, _, _, _, _, gsi, _ = HEADER.unpack_from(head)
            packets = -(-len(send.octets) // send.stride)
            tsi = gsi + sport.to_bytes(2, "big")
            self._sum("sent", segment, tsi, to, int.from_bytes(head[SQN_AT:], "big"), packets)
            return
        for item in Train.of(send.octets, send.stride).parse_untrusted()[0]:
            if isinstance(item, Data):
                self._add("rdata_sent", segment, item.tsi, item.wire_sqn, item.count, peer=to)
            elif isinstance(item, Nak) and item.kind in _SENT_AS:
                for first, end in spans_of(item.sqns):
                    self._add(_SENT_AS[item.kind], segment, item.tsi, first, end - first, peer=to)

    def _sum(self, kind: str, segment: str, tsi: Tsi, peer: Nla, first: int, count: int) -> None:
        key = (kind, segment, tsi, peer)
        now_us = self._now_ns // MICROSECOND
        found = self._sums.get(key)
        if found is None:
            if len(self._sums) >= _MOST_SUMS:
                self.close()
            found = self._sums[key] = _Sum(now_us, wrap(first))
        found.count += count
        if now_us - found.since_us >= self._sample_us:
            self._tell_sum(key, self._sums.pop(key))

    def _tell_sum(self, key: tuple[str, str, Tsi, Nla], found: _Sum) -> None:
        kind, segment, tsi, peer = key
        value_us = self._now_ns // MICROSECOND - found.since_us
        name = tsi_text(tsi)
        time_us = (self._now_ns + self._offset_ns) // MICROSECOND
        self._log.add(
            Event(time_us, self._plan.name, self._role, segment, kind, name, found.first, found.count, peer, value_us)
        )

    def close(self) -> None:
        """Tell what was added up so far."""
        sums, self._sums = self._sums, {}
        for key, found in sums.items():
            self._tell_sum(key, found)


@contextmanager
def observing(plan: NodePlan, core: Core, now_ns: int, wall_ns: int) -> Iterator[Observer | None]:
    """Write the events of a node for the length of a block, if its plan says where; else gives None.

    `now_ns` is the core's clock, `wall_ns` the time of day at that instant. Raises `UsageError` and `ProcessError`.
    """
    if not plan.telemetry:
        yield None
        return
    log = EventLog(plan.telemetry, plan.name, plan.parameters)
    observer = Observer(plan, log, now_ns, wall_ns - now_ns)
    core.counters.watch = observer
    try:
        yield observer
    finally:
        observer.close()
        log.close()
