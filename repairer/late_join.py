"""Late joiners at a repairer.

A request for more history than the cache holds goes upstream. The history before the cache is then fetched from the
upstream node that keeps it, once for all joiners. History that no node holds is reported as gone. History is sent at
`join_share` of the rate of a segment.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs

from pgm.core.effects import Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.late_join.history_server import HistoryServer
from pgm.core.late_join.upstream_history import HistoryReply, UpstreamHistory, begins_at
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.cache import SessionCache
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, without
from pgm.units import MILLISECOND, NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory
from repairer.resume import Resume
from repairer.upstream import Upstream


class RepairerHistory:
    """History of one session for late joiners."""

    def __init__(
        self,
        context: SessionContext,
        upstream: Upstream,
        cache: SessionCache,
        setup: ElementSetup,
        nak_limits: NakLimits,
    ) -> None:
        self._state = state = upstream.state
        self._cache = cache
        self._nak_sender = asker = upstream.nak_sender
        self._recovery = asker.recovery
        self.resume = Resume(context, upstream, cache, setup)
        self._parameters = context.parameters
        self.history_server = HistoryServer(state, context.parameters, nak_limits)
        self._above = UpstreamHistory(context, state, setup.keepers, functools.partial(asker.home_of, home=setup.up))
        self._pacers: dict[int, Pacer] = {}

    def change(self, setup: ElementSetup, now_ns: int) -> None:
        """Ask other nodes for history from the next request on, and send it at the rate as it is now."""
        self._above.change(setup.keepers)
        self.resume.change(setup)
        for pacer in self._pacers.values():
            pacer.set_rate(self._parameters.txw_max_rte, now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self._above.deadline_ns, self.resume.deadline_ns)

    def on_question(self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int, *, may_ask: bool) -> Effects:
        """Answer where history begins, or ask upstream if the cache is too short and `may_ask` is True."""
        if not may_ask or self._above.is_empty or not self._cache.has_room or self._is_enough(held, now_ns):
            return (self._tell(HistoryReply(held, segment, peer, NEVER), now_ns),)
        effects, answered = self._above.ask(held, segment, peer, now_ns)
        return [*effects, *(self._tell(reply, now_ns) for reply in answered)]

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer from upstream."""
        self.resume.on_answer(held, peer, now_ns)
        answered = self._above.on_answer(held, peer, now_ns)
        self._adopt()
        return [self._tell(reply, now_ns) for reply in answered]

    @property
    def _cached_from(self) -> int:
        """Return the first cached sqn; NEVER if the cache is empty."""
        oldest = self._cache.store.oldest
        return oldest.first if oldest else NEVER

    def _adopt(self) -> None:
        """Send NAKs for history before the cache to the upstream node that keeps it."""
        begins = min(self._cached_from, self._state.lead + 1)
        if self._above.keeper and self._above.first < begins:
            self._nak_sender.ask_for_history(self._above.keeper, begins)
            self._recovery.cached_below_sqn = begins

    def _is_enough(self, held: HeldHistory, now_ns: int) -> bool:
        """Return whether no upstream node could reach further back than the cache."""
        oldest = self._cached_from
        if oldest == NEVER:
            return False
        if held.by_time:
            return bool(self._cache.ages) and self._cache.ages[0][0] < now_ns - held.amount * MILLISECOND
        if held.by_sqn or held.by_count:
            return begins_at(held, 0, self._state.lead) >= oldest
        return oldest == 0

    def _cached_start(self, held: HeldHistory, now_ns: int) -> int:
        """Return the first sqn of the requested history in the cache; NEVER without any."""
        first = self._cached_from
        if held.by_time:
            since_ns = now_ns - held.amount * MILLISECOND
            before = [end for at_ns, end in self._cache.ages if at_ns < since_ns]
            first = max(first, before[-1]) if before else first
        return begins_at(held, first, self._state.lead)

    def _tell(self, reply: HistoryReply, now_ns: int) -> Effect:
        first = self._cached_start(reply.held, now_ns)
        above = begins_at(reply.held, reply.first, self._state.lead)
        if above < first:
            first = above
            self._adopt()
        if first != NEVER:
            self._cache.promise(first, now_ns)
        return self.history_server.tell(reply.held, first, reply.segment, reply.peer, now_ns)

    def split(self, lacking: list[Span], now_ns: int) -> tuple[list[Span], list[Span]]:
        """Split history that the cache lacks into expected spans and gone spans."""
        if lacking[0][0] < self._cached_from and not self._above.keeper and self._above.seek(now_ns):
            return [], []  # the joiner will request again
        coming: list[Span] = []
        gone: list[Span] = []
        for first, end in lacking:
            kept = min(max(first, self._above.first), end)
            kept_end = max(kept, min(end, self._nak_sender.history_end)) if self._above.keeper else kept
            if kept < kept_end:
                coming.append((kept, kept_end))
            else:
                kept = kept_end = first
            for low, high in ((first, kept), (kept_end, end)):
                unknown = self._recovery.missing.uncovered(low, high)  # all other sqns are already requested
                gone += unknown
                coming += without([(low, high)], unknown)
        return sorted(coming), gone

    def handle_deadline(self, now_ns: int) -> Effects:
        """Repeat requests, or answer without upstream history."""
        effects, decided = self._above.handle_deadline(now_ns)
        self._adopt()
        own = self.resume.handle_deadline(now_ns)
        return [*effects, *(self._tell(reply, now_ns) for reply in decided), *own]

    def given_up(self, spans: Iterable[Span]) -> None:
        """Forget the keeper of history if spans were given up: joiners get no promise of upstream history."""
        if any(first < self._nak_sender.history_end for first, _ in spans):
            self._above.forget()

    def pacer(self, segment: Segment) -> Pacer:
        """Return the pacer of all history on a segment."""
        if segment.index not in self._pacers:
            slow = attrs.evolve(self._parameters, rdata_share=self._parameters.join_share)
            self._pacers[segment.index] = Pacer(slow)
        return self._pacers[segment.index]
