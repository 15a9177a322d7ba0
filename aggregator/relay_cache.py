"""Packets that a relay passed down lately, and the repairs of them that it owes.

RFC 3208's elements keep nothing. A relay that keeps what it passed down for `relay_cache_ivl` repairs the losses below
itself. Only packets that did not reach the relay are then requested upstream.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.effects import Send
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.cache import RepairCache, SessionCache
from pgm.core.repair.outlets import Outlets
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.wire.formats import Nla
from pgm.wire.train import Data


class RelayCaches:
    """The caches of all sessions of one aggregator, and the rate of their repairs on each segment."""

    def __init__(self, setup: ElementSetup, parameters: Parameters) -> None:
        self._setup = setup
        self.cache = RepairCache(parameters.relay_cache_bytes, parameters.relay_cache_ivl)
        self._keeps = setup.is_relay and parameters.relay_cache_ivl > 0
        self._pacers = {down.index: Pacer(parameters) for down in setup.downs}

    def open_session(self, context: SessionContext) -> RelayCache:
        """Return the cache of a new session. It stays empty on-LAN, and where `relay_cache_ivl` is 0."""
        pacers = [self._pacers[down.index] for down in self._setup.downs]
        session = self.cache.open_session()
        outlets = Outlets(context, session, self._setup.downs, pacers, lambda segment: self._pacers[segment.index])
        return RelayCache(context, session, outlets, self._setup, keeps=self._keeps)

    def close_session(self, session: RelayCache) -> None:
        """Release the packets of a session that has ended."""
        self.cache.close_session(session.packets)


class RelayCache:
    """The packets of one session. A cache that does not keep packets answers no request."""

    def __init__(
        self, context: SessionContext, packets: SessionCache, outlets: Outlets, setup: ElementSetup, *, keeps: bool
    ) -> None:
        self._counters = context.counters
        # A repairer of the segment repairs at once what an NCF reveals. The relay waits for it, as one of the next rank.
        self._hold_ns = {
            down.index: context.parameters.rdata_hold_ivl * (1 + len(local)) if local else None
            for down, local in zip(setup.downs, setup.repairers or ((),) * len(setup.downs), strict=True)
        }
        self.packets = packets
        self._outlets = outlets
        self._keeps = keeps
        self._end = 0  # after the newest sqn that was kept

    @property
    def deadline_ns(self) -> int:
        """When a repair may be sent; NEVER when none is owed."""
        return self._outlets.ready_ns

    @property
    def pending_sqns(self) -> int:
        """Return the number of owed repairs, in sqns."""
        return self._outlets.pending_sqns

    def keep(self, data: Data, first: int, now_ns: int) -> None:
        """Keep the packets of a train, with 64-bit sqns from `first`, that are not kept yet."""
        if not self._keeps:
            return
        run = data.run(first)
        if first >= self._end:  # the usual case
            self._end = run.end
            self.packets.add(run, now_ns)
            return
        for low, end in self.packets.lacking([(first, run.end)]):
            self._end = max(self._end, end)
            self.packets.add(run.part(low, end), now_ns)

    def lacking(self, spans: Sequence[Span]) -> list[Span]:
        """Return the sqns of ordered `spans` that are not kept."""
        return self.packets.lacking(spans)

    def serve(self, spans: Sequence[Span], segment: Segment, to: Nla | None, asker: Nla, now_ns: int) -> None:
        """Owe repairs of those of `spans` that are kept: to a segment, or by unicast to one node."""
        lacking = self._outlets.responder(segment, to, is_history=False).request(
            spans, now_ns, self._hold_ns[segment.index], asker=asker
        )
        self._counters.cache_misses += sum(end - first for first, end in lacking) if self._keeps else 0

    def came_on(self, first: int, end: int, segment: Segment, now_ns: int) -> None:
        """Cancel owed repairs of sqns that another node has repaired on a segment."""
        self._outlets.to_all(segment).heard_repair(first, end, now_ns)

    def next_repair(self, trail: int, now_ns: int) -> Send | None:
        """Return a due train of repairs, if the segment's rate allows it."""
        return self._outlets.next_train(trail, now_ns)
