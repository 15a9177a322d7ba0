"""Packets that a relay passed down lately, and the repairs of them that it owes.

RFC 3208's elements keep nothing. A relay that keeps what it passed down for `relay_cache_ivl` repairs the losses below
itself. Only packets that did not reach the relay are then requested upstream.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from pgm.core.effects import Effect, Effects, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.cache import RepairCache, SessionCache
from pgm.core.repair.conflicts import CacheConflicts
from pgm.core.repair.outlets import Outlets
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, without
from pgm.parameters import Parameters
from pgm.wire.formats import Nla
from pgm.wire.train import Data


def _pacer_of(pacers: Mapping[int, Pacer], down: Segment) -> Pacer:
    return pacers[down.index]


class RelayCaches:
    """The caches of all sessions of one aggregator, and the rate of their repairs on each segment."""

    def __init__(self, setup: ElementSetup, parameters: Parameters) -> None:
        self._setup = setup
        self._keeps = setup.is_relay and parameters.relay_cache_ivl > 0
        self._cache = RepairCache(parameters.relay_cache_bytes, parameters.relay_cache_ivl)
        self._pacers = {down.index: Pacer(parameters) for down in setup.downs}

    def open_session(self, context: SessionContext) -> RelayCache:
        """Return the cache of a new session. The cache stays empty on-LAN, and where `relay_cache_ivl` is 0."""
        packets, downs = self._cache.open_session(), self._setup.downs
        pacers = [self._pacers[down.index] for down in downs]
        history_pacer = functools.partial(_pacer_of, self._pacers)
        outlets = Outlets(context, packets, downs, pacers, history_pacer, self._setup.children)
        return RelayCache(context, self._setup, packets, outlets, keeps=self._keeps)

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate on each segment, in octets a second, and the share of repairs in it."""
        for pacer in self._pacers.values():
            pacer.set_rate(rate, now_ns)

    def close_session(self, session: RelayCache) -> None:
        """Release the packets of a session that has ended."""
        self._cache.close_session(session.packets)


class RelayCache:
    """The packets of one session. A cache that does not keep packets answers no request."""

    def __init__(
        self, context: SessionContext, setup: ElementSetup, packets: SessionCache, outlets: Outlets, *, keeps: bool
    ) -> None:
        self._counters = context.counters
        self._parameters = context.parameters
        self.packets = packets
        self._outlets = outlets
        self._keeps = keeps
        self._conflicts = CacheConflicts(context, packets)
        self._end = 0  # after the newest sqn that was kept
        self._hold_ns: dict[int, int] = {}
        self.change(setup)

    def change(self, setup: ElementSetup) -> None:
        """Take the repairers of each segment, and how long they may take, as they are now.

        An NCF makes the repairers of a segment repair at once. The relay waits long enough to hear their repairs.
        """
        repairers = Counter(down.index for down in setup.homes.values())
        hold_ns = self._parameters.rdata_hold_ivl
        self._hold_ns = {index: hold_ns * (1 + number) for index, number in repairers.items()}

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
        new = self.packets.lacking([(first, run.end)])
        self._end = max(self._end, run.end)
        if new != [(first, run.end)]:
            self._conflicts.compare(run, without([(first, run.end)], new))
        for part in self._conflicts.cacheable([run.part(low, end) for low, end in new]):
            self.packets.add(part, now_ns)

    def take_notice(self) -> Effects:
        """Return a notice of new conflicts between copies of packets."""
        return self._conflicts.take_notice()

    def is_uniform(self, spans: list[Span]) -> bool:
        """Return whether all sqns of ordered `spans` are kept, or none."""
        return not self._keeps or self.packets.lacking(spans) in ([], spans)

    def take_alone(self, spans: list[Span], segment: Segment, asker: Nla, now_ns: int) -> list[Span]:
        """Owe what a child alone requests by unicast; see `LoneAskers`. Return the spans that are for the segment."""
        if not self._keeps or segment.index in self._hold_ns:  # repairers of the segment repair for all
            return spans
        asked = sum(end - first for first, end in spans)
        return self._outlets.take_alone(spans, asked, segment, asker, now_ns)

    def serve(self, spans: list[Span], segment: Segment, to: Nla | None, asker: Nla, now_ns: int) -> list[Span]:
        """Owe repairs of those of `spans` that are kept: to a segment, or by unicast to one node. Return the others."""
        if not self._keeps:
            return spans
        responder = self._outlets.responder(segment, to, is_history=False)
        lacking = responder.request(spans, now_ns, self._hold_ns.get(segment.index), asker)
        self._counters.cache_misses += sum(end - first for first, end in lacking)
        return lacking

    def came_on(self, first: int, end: int, segment: Segment, now_ns: int) -> None:
        """Cancel owed repairs of sqns that another node has repaired on a segment."""
        self._outlets.to_all(segment).heard_repair(first, end, now_ns)

    def passed_on(self, sends: list[Send], now_ns: int) -> list[Effect]:
        """Charge forwarded repairs to the share of their segments, and return them.

        Forwarded repairs never wait, because the node above has paced them. Repairs from the cache take what is left.
        """
        for send in sends:
            octets = len(send.octets)
            self._outlets.pacers[send.segment.index].repair_sent(octets, now_ns, octets // send.stride)
        return list(sends)

    def next_repair(self, trail: int, now_ns: int) -> Send | None:
        """Return a due train of repairs, if the segment's rate allows it."""
        return self._outlets.next_train(trail, now_ns)
