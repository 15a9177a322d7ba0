"""Late joiners at an aggregator: it keeps nothing, so their questions and NAKs go to whoever above does.

What comes goes down once to each segment that asked, to one late joiner alone by unicast. The rate is that of whoever sends it.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.late_join.history_server import HistoryServer
from pgm.core.late_join.upstream_history import HistoryReply, UpstreamHistory, begins_at
from pgm.core.recovery.parents import Parents
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory


class AggregatorHistory:
    """The late joiners below one aggregator in one session."""

    def __init__(
        self,
        state: SessionState,
        setup: ElementSetup,
        nak_limits: NakLimits,
        parameters: Parameters,
        counters: Counters,
    ) -> None:
        self._state = state
        self._parameters = parameters
        self._counters = counters
        self.history_server = HistoryServer(state, parameters, nak_limits)
        self._above = UpstreamHistory(state, setup.keepers, lambda _: setup.up, parameters, counters)
        self._route: Parents | None = None

    @property
    def keeper(self) -> Nla | None:
        """Whom history is asked of."""
        return self._above.keeper

    @property
    def route(self) -> Parents | None:
        """The same as a way for NAKs; None while nobody has said that it keeps anything."""
        keeper = self._above.keeper
        if keeper is None:
            return None
        if self._route is None or self._route.current != keeper:
            self._route = Parents(
                (keeper,), self._parameters, self._counters, SECOND // self._parameters.ne_nak_rpt_rte
            )
        return self._route

    def seek(self, now_ns: int) -> bool:
        """History is wanted and nobody is known to keep it: ask, unless there is no hope."""
        return self._above.seek(now_ns)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self._above.deadline_ns

    def on_question(self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Ask above, or answer by what was just said."""
        if self._above.is_empty:
            return (self._tell(HistoryReply(held, segment, peer, None), now_ns),)
        effects, answered = self._above.ask(held, segment, peer, now_ns)
        return [*effects, *(self._tell(one, now_ns) for one in answered)]

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Somebody above says what there is."""
        return [self._tell(one, now_ns) for one in self._above.on_answer(held, peer, now_ns)]

    def handle_deadline(self, now_ns: int) -> Effects:
        """Ask again, or answer without."""
        if self._above.deadline_ns > now_ns:
            return NOTHING
        effects, decided = self._above.handle_deadline(now_ns)
        return [*effects, *(self._tell(one, now_ns) for one in decided)]

    def _tell(self, asked: HistoryReply, now_ns: int) -> Effect:
        first = None if asked.first is None else begins_at(asked.held, asked.first, self._state.lead)
        return self.history_server.tell(asked.held, first, asked.segment, asked.peer, now_ns)
