"""Late joiners at an aggregator.

An aggregator keeps no history. Requests and NAKs for history go to an upstream node that does. History is relayed once
to each segment that requested it, or by unicast to a single late joiner. The sender of the history sets the rate.
"""

from __future__ import annotations

import functools

from pgm.core.effects import Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.late_join.history_server import HistoryServer
from pgm.core.late_join.upstream_history import HistoryReply, UpstreamHistory, begins_at
from pgm.core.recovery.parents import Parents
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.units import NEVER, SECOND
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory


def _always(segment: Segment, _keeper: Nla) -> Segment:
    return segment


class AggregatorHistory:
    """Late joiners below one aggregator in one session."""

    def __init__(
        self, context: SessionContext, state: SessionState, setup: ElementSetup, nak_limits: NakLimits
    ) -> None:
        self._state = state
        self._context = context
        self.history_server = HistoryServer(state, context.parameters, nak_limits)
        self._above = UpstreamHistory(context, state, setup.keepers, functools.partial(_always, setup.up))
        self._route: Parents | None = None

    def change(self, setup: ElementSetup) -> None:
        """Ask other nodes for history from the next request on."""
        self._above.change(setup.keepers)

    @property
    def keeper(self) -> Nla:
        """The node that gets NAKs for history; empty if unknown."""
        return self._above.keeper

    def find_route(self) -> Parents | None:
        """Return the keeper as a route for NAKs; None while no node has reported history."""
        keeper = self._above.keeper
        if not keeper:
            return None
        if self._route is None or self._route.current != keeper:
            repeat_ivl = SECOND // self._context.parameters.ne_nak_rpt_rte
            self._route = Parents(self._context, (keeper,), repeat_ivl)
        return self._route

    def seek(self, now_ns: int) -> bool:
        """Request history although no keeper is known. Return whether an answer may come."""
        return self._above.seek(now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self._above.deadline_ns

    def on_question(self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Forward a request upstream, or answer from a recent answer."""
        if self._above.is_empty:
            return (self._tell(HistoryReply(held, segment, peer, NEVER), now_ns),)
        effects, answered = self._above.ask(held, segment, peer, now_ns)
        return [*effects, *(self._tell(reply, now_ns) for reply in answered)]

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer from upstream."""
        return [self._tell(reply, now_ns) for reply in self._above.on_answer(held, peer, now_ns)]

    def handle_deadline(self, now_ns: int) -> Effects:
        """Repeat requests, or answer without upstream history."""
        effects, decided = self._above.handle_deadline(now_ns)
        return [*effects, *(self._tell(reply, now_ns) for reply in decided)]

    def _tell(self, reply: HistoryReply, now_ns: int) -> Effect:
        first = begins_at(reply.held, reply.first, self._state.lead)
        return self.history_server.tell(reply.held, first, reply.segment, reply.peer, now_ns)
