"""Start of a session at the end of its archive.

A recorder that starts again goes on with the first sqn that its archive lacks, like a durable receiver at its position.
Packets in the window of the source are requested like any other loss. For earlier packets a question goes to the siblings
and to the elements upstream that keep history, as for late joiners. The node that holds most gets the NAKs. A sibling
answers from its own cache alone, so no question goes in circles. The feed of the archive waits for the answer, at most
`durable_hold_ivl`. The archive records as lost what no node holds.
"""

from __future__ import annotations

import functools

from pgm.core.effects import NOTHING, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.late_join.upstream_history import UpstreamHistory
from pgm.core.repair.cache import SessionCache
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory
from repairer.upstream import Upstream


class Resume:
    """Start of one session of a recording repairer. Without a position the session begins like any other."""

    def __init__(self, context: SessionContext, upstream: Upstream, cache: SessionCache, setup: ElementSetup) -> None:
        self._parameters = context.parameters
        self._upstream = upstream
        self._cache = cache
        self._starts = setup.starts
        sender = upstream.nak_sender
        keepers = (*setup.siblings, *setup.keepers)
        self._above = UpstreamHistory(
            context, upstream.state, keepers, functools.partial(sender.home_of, home=setup.up)
        )
        self._first: int | None = None  # the position
        self._end = 0  # where the window of the source began, or the cache
        self._until_ns = NEVER  # when the question is given up
        self._has_begun = False
        self.deadline_ns = NEVER

    def change(self, setup: ElementSetup) -> None:
        """Ask other nodes from the next request on."""
        self._above.change((*setup.siblings, *setup.keepers))

    def first(self, now_ns: int) -> int | None:
        """Return the first sqn for the archive; None before the packets at the position are requested, or given up."""
        if not self._has_begun:
            self._begin(now_ns)
        if self._until_ns != NEVER:
            return None
        return self._upstream.gap_detector.first if self._first is None else self._first

    def _begin(self, now_ns: int) -> None:
        self._has_begun = True
        state, detector = self._upstream.state, self._upstream.gap_detector
        self._first = first = self._starts.start_of(state)
        if first is None:
            return
        if not detector.has_begun:
            detector.begin(state.lead + 1)
        for low, high in self._lacking(state.trail, detector.first):
            self._upstream.recovery.detect(low, high, now_ns)
        self._end = min(state.trail, detector.first)
        if self._lacking(0, self._end) and not self._above.is_empty and self._cache.has_room:
            self._until_ns = now_ns + self._parameters.durable_hold_ivl
            self.deadline_ns = now_ns

    def _lacking(self, first: int, end: int) -> list[Span]:
        """Return the spans that neither the archive nor the cache has."""
        first = first if self._first is None else max(first, self._first)
        return self._cache.lacking([(first, end)]) if first < end else []

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return questions to the nodes that may keep history, until one answers or none can."""
        if now_ns < self.deadline_ns:
            return NOTHING
        if now_ns >= self._until_ns:
            self._end_question()
            return NOTHING
        self._above.seek(now_ns)
        effects, _ = self._above.handle_deadline(now_ns)
        self._decide(now_ns)
        return effects

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> None:
        """Take an answer."""
        if self._until_ns != NEVER:
            self._above.on_answer(held, peer, now_ns)
            self._decide(now_ns)

    def _decide(self, now_ns: int) -> None:
        """Request what the keeper holds, or ask again later: a keeper may restart just now."""
        if self._above.deadline_ns != NEVER:
            self.deadline_ns = min(self._above.deadline_ns, self._until_ns)
        elif self._above.keeper:
            self._request(self._above.keeper, now_ns)
            self._end_question()
        elif self._above.is_certain:
            self._end_question()
        else:
            self.deadline_ns = min(now_ns + self._parameters.open_hold_ivl, self._until_ns)

    def _request(self, keeper: Nla, now_ns: int) -> None:
        lacking = self._lacking(self._above.first, self._end)
        if not lacking:
            return
        self._cache.promise(lacking[0][0], now_ns)
        self._upstream.nak_sender.ask_for_history(keeper, self._end, has_position=True)
        self._upstream.recovery.cached_below_sqn = self._end
        for low, high in lacking:
            self._upstream.recovery.detect(low, high, now_ns)

    def _end_question(self) -> None:
        self._until_ns = self.deadline_ns = NEVER
