"""Parity at a repairer (RFC 11.7).

A repairer recovers by parity like a receiver, and makes parity from its cache for downstream nodes. The repairer
numbers its own parity packets from the upper part of the index range, which a source uses last. A receiver that holds
parity of both therefore holds different packets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from pgm.core.effects import Effect
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.parity.recovery import ParityRecovery, offer_of
from pgm.core.parity.responder import ParityFormat, ParityResponder, whole_group
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.fec import code
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla
from pgm.wire.parity import counts_of, group_of, read_parity
from pgm.wire.train import Data, Run
from repairer.cache import SessionCache

_SOURCE_SHARE = 4  # The source starts with the first indexes; a repairer leaves it one of this many parts of them.


class RepairerParity:
    """The parity of one session; inactive until an SPM announces parity."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        setup: ElementSetup,
        cache: SessionCache,
        gap_detector: GapDetector,
        pacers: Mapping[int, Pacer],
    ) -> None:
        self.receiver: ParityRecovery | None = None
        self._context = context
        self._state = state
        self._setup = setup
        self._cache = cache
        self._gap_detector = gap_detector
        self._recovery = gap_detector.recovery
        self._pacers = pacers
        self._parameters = context.parameters
        self._rng = context.rng
        self._counters = context.counters
        self._responders: dict[int, ParityResponder] = {}  # by downstream segment
        # group -> packets by segment, until the group is complete
        self._wanted: OrderedDict[int, dict[int, int]] = OrderedDict()

    def on_spm(self, spm: Spm, now_ns: int) -> ParityRecovery | None:
        """Learn the offer once, and where groups end.

        Return the new parity recovery when the offer is first learnt.
        """
        new: ParityRecovery | None = None
        offer = offer_of(spm, self._state) if self.receiver is None else None
        if offer is not None:
            new = self.receiver = ParityRecovery(
                self._context,
                offer,
                self._state,
                self._gap_detector,
                store=self._cache,
                kept=None,
                regain=self._gap_detector.regain,
            )
            limit = code.parity_limit(offer.tgsize)
            start = self._rng.randrange(limit // _SOURCE_SHARE, limit)
            form = ParityFormat(self._state.tsi, self._state.data_port, offer.tgsize, start, limit)
            self._responders = {
                down.index: ParityResponder(self._context, self._cache, down, form) for down in self._setup.downs
            }
        if self.receiver is not None:
            self.receiver.on_spm(spm, now_ns)
            # The SPM may say where a group ends. Requests whose packets will not come any more are dropped here too,
            # because SPMs are rare.
            for group in list(self._wanted):
                self._serve_if_whole(group, now_ns)
                if not self._is_coming(group):
                    self._wanted.pop(group, None)
        return new

    # Receiving

    def on_parity(self, data: Data, first: int, segment: Segment, now_ns: int) -> list[Run]:
        """Take parity of another node.

        The parity may already repair sqns that this node owes on the segment. Return the packets that the parity
        rebuilds here.
        """
        assert self.receiver is not None
        responder = self._responders.get(segment.index)
        if responder is not None:
            for packet in read_parity(data, first, self.receiver.size):
                responder.heard(packet.group, packet.index, now_ns)
        return self.receiver.on_parity(data, first, now_ns)

    def serve_whole(self, first: int, end: int, now_ns: int) -> None:
        """Owe parity of requested groups that are complete now that new sqns came.

        The new sqns are `first` to `end - 1`.
        """
        assert self.receiver is not None
        if self._wanted:
            for group in range(group_of(first, self.receiver.size), end, self.receiver.size):
                self._serve_if_whole(group, now_ns)

    def _serve_if_whole(self, group: int, now_ns: int) -> None:
        if group in self._wanted and self._is_whole(group):
            for index, count in self._wanted.pop(group).items():
                self._owe(group, count, index, now_ns, 0)

    def _is_whole(self, group: int) -> bool:
        assert self.receiver is not None
        actual = self.receiver.ended_size(group)
        return actual is not None and bool(whole_group(self._cache, group, actual))

    def _owe(
        self, group: int, count: int, segment: int, now_ns: int, hold_ns: int | None, asker: Nla | None = None
    ) -> bool:
        assert self.receiver is not None
        actual = self.receiver.ended_size(group)
        return actual is not None and self._responders[segment].request(group, count, actual, now_ns, hold_ns, asker)

    # Serving

    def asked(self, nak: Nak) -> list[tuple[int, int]] | None:
        """Return groups and counts of a parity NAK; None if some group was never sent."""
        if self.receiver is None or not self._state.has_edges:
            return None
        asked = counts_of([self._state.unwrap(sqn) for sqn in nak.sqns], self.receiver.size)
        return asked if all(group <= self._state.lead for group, _ in asked) else None

    def answer_for_unused(self, nak: Nak, segment: Segment, now_ns: int) -> list[int]:
        """Answer sqns that short groups left out with parity.

        The parity carries the group's size. Return the other sqns of the NAK.
        """
        sqns = [self._state.unwrap(sqn) for sqn in nak.sqns]
        if self.receiver is None or not self._state.has_edges:
            return sqns
        left = []
        for sqn in sqns:
            group = self.receiver.short_group(sqn)
            if group is None or not self._owe(group, 1, segment.index, now_ns, None):
                left.append(sqn)
        return left

    def on_nak(
        self, asked: list[tuple[int, int]], segment: Segment, peer: Nla, now_ns: int, *, is_relied_on: bool
    ) -> None:
        """Owe parity of cached groups, and recover groups that the cache lacks."""
        assert self.receiver is not None
        for group, count in asked:
            if self._owe(group, count, segment.index, now_ns, None, peer):
                continue
            self._fetch(group, now_ns, is_relied_on=is_relied_on)
            if not self._is_coming(group):
                continue
            wanted = self._wanted.setdefault(group, {})
            more = count - wanted.get(segment.index, 0)
            if more > 0:
                more = self._responders[segment.index].granted(peer, group, more, now_ns)
                wanted[segment.index] = wanted.get(segment.index, 0) + more
            if len(self._wanted) > self._parameters.repair_states:
                self._wanted.popitem(last=False)
                self._counters.states_refused += 1

    def _is_coming(self, group: int) -> bool:
        """Return whether the rest of a group is requested, or is still to be sent."""
        assert self.receiver is not None
        actual = self.receiver.ended_size(group)
        return actual is None or self._recovery.missing.overlaps(group, group + actual)

    def _fetch(self, group: int, now_ns: int, *, is_relied_on: bool) -> None:
        """Request the packets that this node lacks of a group, if the group has ended."""
        assert self.receiver is not None
        actual = self.receiver.ended_size(group)
        if actual is None:
            return
        first = group if self._setup.asks_below_trail else max(group, self._state.trail)
        for low, high in self._lacking(first, group + actual):
            self._counters.cache_misses += high - low
            self._recovery.expedite(low, high, now_ns, is_relied_on=is_relied_on)
            self._recovery.detect(low, high, now_ns, at_once=True)

    def _lacking(self, first: int, end: int) -> list[Span]:
        gaps, at = [], first
        for part in self._cache.parts(first, end):
            if part.first > at:
                gaps.append((at, part.first))
            at = part.end
        return [*gaps, (at, end)] if at < end else gaps

    def assist(self, asked: list[tuple[int, int]], segment: Segment, hold_ns: int, now_ns: int) -> None:
        """Repair losses that an NCF reveals, for receivers that know no repairer."""
        for group, count in asked:
            self._owe(group, count, segment.index, now_ns, hold_ns)

    # Time

    @property
    def deadline_ns(self) -> int:
        """When the next parity may be sent; NEVER when none is owed."""
        return min((self._ready_ns(index) for index in self._responders), default=NEVER)

    def _ready_ns(self, segment: int) -> int:
        responder = self._responders[segment]
        due_ns = responder.deadline_ns
        return (
            due_ns if due_ns == NEVER else max(due_ns, self._pacers[segment].repair_ready_at(responder.next_octets()))
        )

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return one train of parity if one is due and the rate allows it."""
        for index, responder in self._responders.items():
            if self._ready_ns(index) > now_ns:
                continue
            pacer = self._pacers[index]
            room, packets = pacer.repair_room(now_ns), pacer.packet_room(now_ns)
            send = responder.next_train(room, self._state.trail, now_ns, packets)
            if send is not None:
                pacer.repair_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
                return send
        return None
