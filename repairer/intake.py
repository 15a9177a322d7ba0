"""Packets that one session of a repairer takes, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.core.effects import Effect
from pgm.core.element.relay import Relay
from pgm.core.element.setup import ElementSetup
from pgm.core.repair.cache import SessionCache
from pgm.core.repair.conflicts import CacheConflicts
from pgm.core.repair.outlets import Outlets
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, merged, without
from pgm.units import NEVER
from pgm.wire.data_packets import build_first_sending
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data, Run
from repairer.pending_requests import PendingRequests
from repairer.upstream import Upstream


class PacketIntake:
    """Received and rebuilt packets: cached, relayed, and sent to the segments that wait for them."""

    def __init__(
        self,
        context: SessionContext,
        setup: ElementSetup,
        upstream: Upstream,
        relay: Relay,
        cache: SessionCache,
        outlets: Outlets,
    ) -> None:
        self._setup = setup
        self._most_gaps = context.parameters.rxw_gaps
        self._counters = context.counters
        self.upstream = upstream
        self.state = upstream.state
        self.gap_detector = upstream.gap_detector
        self.recovery = upstream.recovery
        self.relay = relay
        self.cache = cache
        self.conflicts = CacheConflicts(context, cache)
        self.outlets = outlets
        self._wanted = PendingRequests(setup.downs, context.parameters.repair_states)

    def begin(self, first: int, count: int, trail: int, now_ns: int) -> None:
        """Begin the cache with the first data. Later sqns of an SPM are missing, and may already be requested."""
        self.gap_detector.begin(max(first, self.state.trail))
        if self.state.has_edges:
            self.gap_detector.reveal(self.state.lead + 1, now_ns)
        else:
            self.state.begin_at(first + count - 1, trail)

    def keep(self, data: Data, first: int, peer: Nla, now_ns: int) -> list[Run]:
        """Cache the packets of a train that are new, and return them."""
        run = data.run(first)
        parts, filled = self._accept(run, data.type, peer, now_ns)
        for part in parts:
            self._counters.received_packets += part.count
            self._counters.received_octets += part.octets
        duplicates = run.count - sum(part.count for part in parts)
        if duplicates:
            self._counters.duplicate_packets += duplicates
            self._compare(run, parts, now_ns)
        if data.type is PacketType.RDATA:
            self._counters.repaired_sqns += filled
        else:
            self._counters.late_sqns += filled
        return parts

    def _compare(self, run: Run, new: list[Run], now_ns: int) -> None:
        """Compare packets that came before. Those of which two copies differ are missing again."""
        known = without([(run.first, run.end)], [(part.first, part.end) for part in new])
        for first, end in self.conflicts.compare(run, known):
            self.recovery.detect(first, end, now_ns)

    def _accept(self, run: Run, kind: PacketType, peer: Nla, now_ns: int) -> tuple[list[Run], int]:
        parts, filled = self.gap_detector.accept(run, now_ns)
        if filled:
            self._counters.watch.filled(kind, peer)
        for part in self.conflicts.cacheable(parts):
            self.cache.add(part, now_ns)
        return parts, filled

    def take_over(self, earlier: SessionCache, shift: int, now_ns: int) -> int:
        """Take over what an earlier process had cached, with `shift` added to sqns. Return the number of packets.

        Packets that were sent since the end of that process are missing, unless they have left the source's window.
        """
        oldest, newest = earlier.store.oldest, earlier.store.newest
        assert oldest is not None
        assert newest is not None
        first, end = oldest.first + shift, newest.end + shift
        if not self.gap_detector.has_begun:
            self.gap_detector.begin(end)
        parts = self.cache.take_over(earlier, shift)
        for part in parts:
            self.recovery.arrived(part.first, part.end)
        begun = self.gap_detector.first
        self.gap_detector.first = min(first, begun)
        self.gap_detector.end = max(end, self.gap_detector.end)
        self.state.saw(end - 1, self.state.trail)
        for low, high in self.cache.lacking([(max(first, self.state.trail), begun)]):
            self.recovery.detect(low, high, now_ns)
        self.follow_trail()
        self.gap_detector.reveal(self.state.lead + 1, now_ns)
        self.serve_wanted(parts, now_ns)
        self.keep_bounds()
        return sum(part.count for part in parts)

    def pass_down(self, data: Data, parts: list[Run], now_ns: int) -> list[Effect]:
        """Relay the new packets of a train from upstream."""
        is_new = data.type is PacketType.ODATA and self.upstream.lines.is_new(data, sum(part.count for part in parts))
        if is_new:  # otherwise another line brought some packets first, and those were relayed
            return list(self.relay.on_data(data))
        sends: list[Effect] = []
        for part in parts:
            if part.first < self.gap_detector.first:
                continue  # older than this relay: fetched for a child, and only the child wants it
            rows = build_first_sending(part)
            sends += self.relay.pass_down(rows.reshape(-1), part.stride, self._setup.downs)
            for segment in self._setup.downs:
                self.came_on(part.first, part.end, segment, now_ns)
        return sends

    def came_on(self, first: int, end: int, segment: Segment, now_ns: int) -> None:
        """Note that sqns reached a segment without a repair of this node."""
        self.outlets.to_all(segment).heard_repair(first, end, now_ns)
        self._wanted.came_on(first, end, segment)

    def take_rebuilt(self, runs: list[Run], peer: Nla, now_ns: int) -> list[Effect]:
        """Take rebuilt packets like a repair by `peer`: cache, relay and send them."""
        sends: list[Effect] = []
        for run in runs:
            parts, filled = self._accept(run, PacketType.RDATA, peer, now_ns)
            self._counters.repaired_sqns += filled
            for part in parts:
                if self.relay.is_active and part.first >= self.gap_detector.first:
                    sends += self.relay.pass_down(part.rows.reshape(-1), part.stride, self._setup.downs)
            self.serve_wanted(parts, now_ns)
        return sends

    def serve_wanted(self, parts: list[Run], now_ns: int) -> None:
        """Owe the packets that just came to the segments that wait for them."""
        if self._wanted.is_empty:
            return
        for part in parts:
            for request, segment in self._wanted.came(part.first, part.end):
                is_history = request.joiner is not None
                responder = self.outlets.responder(segment, request.joiner, is_history=is_history)
                responder.request([(request.first, request.end)], now_ns, 0)

    def no_longer_wanted(self, first: int, end: int) -> Iterator[Segment]:
        """Drop the requests for sqns that were never used. Yield the segment of each."""
        return (segment for _, segment in self._wanted.came(first, end))

    def fetch(
        self, lacking: list[Span], segment: Segment, now_ns: int, *, is_relied_on: bool, joiner: Nla | None
    ) -> None:
        """Request packets upstream that the cache lacks, for a segment."""
        for first, end in lacking:
            self._counters.cache_misses += end - first
            first = max(first, 0)  # no session has sqns below 0, and no timer would end the request for a forged one
            if not self._setup.asks_below_trail and first >= self.upstream.nak_sender.history_end:
                first = max(first, self.state.trail)  # no upstream node has packets that left the source's window
            if first >= end:
                continue
            self._wanted.add(first, end, segment, joiner)
            self.recovery.expedite(first, end, now_ns, is_relied_on=is_relied_on)
            self.recovery.detect(first, end, now_ns, at_once=True)
        self.keep_bounds()

    def follow_trail(self) -> None:
        """Give up packets that have left the source's window, unless some node above keeps more."""
        if not self._setup.asks_below_trail:
            history_end = self.upstream.nak_sender.history_end
            self.forget(self.recovery.arrived(history_end, max(history_end, self.state.trail)))
        self.gap_detector.end = max(self.gap_detector.end, self.state.trail)

    def reveal(self, end: int, now_ns: int) -> None:
        """Note that packets up to `end`, which an upstream node mentioned, exist, unless too far ahead."""
        if self.state.reveals(end):
            self.gap_detector.reveal(end, now_ns)
            self.state.revealed(end)
            self.keep_bounds()

    def keep_bounds(self) -> None:
        """Bound the missing ranges and the pending requests: the oldest are dropped."""
        while len(self.recovery.missing) > self._most_gaps:
            gap = next(self.recovery.missing.reaching(-NEVER))
            self.forget(self.recovery.arrived(gap.first, gap.end))
        self._counters.states_refused += self._wanted.keep_bound()

    def forget(self, spans: list[Span]) -> None:
        """Drop requests for sqns that will not come."""
        self._wanted.forget(merged(spans))
