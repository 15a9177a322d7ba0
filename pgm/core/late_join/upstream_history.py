"""History kept upstream, requested once on behalf of all late joiners.

A late joiner's request travels up from element to element, until an element answers whose cache holds enough. Sources
are never asked. An element sends one upstream request per kind, however many children ask. One request for all history
serves every beginning that is a sqn or a number of packets.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pgm.core.effects import Effect, control
from pgm.core.late_join.history_server import held_packet
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory
from pgm.wire.sequence_numbers import unwrap

_MOST_KINDS = 16  # pending requests, and remembered answers; each time span is a kind, everything else is one kind
_MOST_ASKERS = 1024  # children that wait for one answer; any other child must ask again
_ALL = -1
_UNKNOWN = (-NEVER, NEVER)  # time and content of an answer that never came


def begins_at(held: HeldHistory, oldest: int, lead: int) -> int:
    """Return the first sqn that a request selects from `oldest` and newer sqns; NEVER if there are none."""
    if oldest == NEVER:
        return NEVER
    if held.by_sqn:
        wanted = unwrap(held.amount, lead)
    elif held.by_count:
        wanted = lead + 1 - held.amount
    else:
        wanted = oldest
    return min(max(wanted, oldest), lead + 1)


@attrs.frozen
class HistoryReply:
    """Answer to a child's request: the start of upstream history, NEVER without any."""

    held: HeldHistory
    segment: Segment
    peer: Nla
    first: int


@attrs.define(eq=False)
class _Question:
    """A request that was sent upstream."""

    held: HeldHistory
    again_ns: int
    until_ns: int
    askers: dict[tuple[int, Nla], HistoryReply] = attrs.field(factory=dict)
    starts: dict[Nla, int] = attrs.field(factory=dict)


class UpstreamHistory:
    """Upstream requests of one session, and the nodes that keep its history."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        keepers: tuple[Nla, ...],
        segment_of: Callable[[Nla], Segment],
    ) -> None:
        self._state = state
        self._keepers = keepers
        self._segment_of = segment_of
        self._parameters = context.parameters
        self._counters = context.counters
        self._open: dict[int, _Question] = {}  # by kind: the time span, or _ALL
        self._known: dict[int, tuple[int, int]] = {}  # time and content of the last answer
        self.keeper: Nla = ""  # the node that gets NAKs for history; empty if unknown
        self.first = 0  # the first sqn that the keeper holds
        self.is_certain = False  # every node has answered the last question

    def change(self, keepers: tuple[Nla, ...]) -> None:
        """Ask other nodes from the next request on."""
        self._keepers = keepers

    @property
    def is_empty(self) -> bool:
        """Whether there is no upstream node to ask."""
        return not self._keepers

    @property
    def deadline_ns(self) -> int:
        """When to repeat a request, or to continue without an answer."""
        if not self._open:
            return NEVER
        return min(question.again_ns for question in self._open.values())

    def ask(
        self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int
    ) -> tuple[list[Effect], list[HistoryReply]]:
        """Take a child's request.

        Send the request upstream, let the child wait for a pending request, or answer from a recent answer.
        """
        kind = held.amount if held.by_time else _ALL
        told_ns, first = self._known.get(kind, _UNKNOWN)
        if now_ns - told_ns < self._parameters.open_hold_ivl:
            return [], [HistoryReply(held, segment, peer, first)]
        question = self._question(kind, now_ns)
        if question is None:
            return [], []
        if len(question.askers) < _MOST_ASKERS:
            question.askers[segment.index, peer] = HistoryReply(held, segment, peer, NEVER)
        return self.handle_deadline(now_ns)

    def _question(self, kind: int, now_ns: int) -> _Question | None:
        question = self._open.get(kind)
        if question is None:
            if len(self._open) >= _MOST_KINDS:
                self._counters.states_refused += 1
                return None
            above = HeldHistory(amount=0) if kind == _ALL else HeldHistory(amount=kind, by_time=True)
            # A receiver waits open_hold_ivl for its answer. Half of that leaves time to return the answer.
            question = self._open[kind] = _Question(above, now_ns, now_ns + self._parameters.open_hold_ivl // 2)
        return question

    def seek(self, now_ns: int) -> bool:
        """Request history that this element, perhaps restarted, knows nothing about.

        Return whether an answer may come.
        """
        told_ns, first = self._known.get(_ALL, _UNKNOWN)
        if now_ns - told_ns < self._parameters.open_hold_ivl:
            return first != NEVER
        return bool(self._keepers) and self._question(_ALL, now_ns) is not None

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> list[HistoryReply]:
        """Take an answer from upstream.

        Return the replies to children that are possible now.
        """
        if peer not in self._keepers:
            return []
        kind = held.number if held.by_time else _ALL
        question = self._open.get(kind)
        if question is None:
            return []
        first = NEVER if held.nothing else max(0, unwrap(held.amount, self._state.lead))
        question.starts[peer] = first
        if len(question.starts) == len(self._keepers):
            return self._decide(kind, now_ns)
        if first != NEVER:  # others may hold more, but the wait for them is short
            question.until_ns = min(question.until_ns, now_ns + self._parameters.nak_rpt_ivl)
            question.again_ns = min(question.again_ns, question.until_ns)
        return []

    def _decide(self, kind: int, now_ns: int) -> list[HistoryReply]:
        question = self._open.pop(kind)
        self.is_certain = len(question.starts) == len(self._keepers)
        first = NEVER
        for keeper in self._keepers:
            start = question.starts.get(keeper, NEVER)
            if start < first:
                first, self.keeper = start, keeper
        if first != NEVER:
            self.first = first
        while len(self._known) >= _MOST_KINDS:
            del self._known[next(iter(self._known))]
        self._known[kind] = (now_ns, first)
        return [attrs.evolve(reply, first=first) for reply in question.askers.values()]

    def handle_deadline(self, now_ns: int) -> tuple[list[Effect], list[HistoryReply]]:
        """Repeat unanswered requests, and return replies to children that got no answer."""
        effects: list[Effect] = []
        decided: list[HistoryReply] = []
        for kind, question in list(self._open.items()):
            if question.again_ns > now_ns:
                continue
            if question.until_ns <= now_ns:
                decided += self._decide(kind, now_ns)
                continue
            question.again_ns = min(now_ns + self._parameters.nak_rpt_ivl, question.until_ns)
            packet = held_packet(self._state, question.held)
            silent = [keeper for keeper in self._keepers if keeper not in question.starts]
            effects += [control(self._segment_of(keeper), packet, to=keeper) for keeper in silent]
        return effects, decided

    def forget(self) -> None:
        """Forget the keeper, because it does not answer."""
        self.keeper = ""
        self._known.clear()
