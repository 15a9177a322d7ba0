"""What elements above keep of a session, asked for once on behalf of everybody below who came late.

A late joiner's question goes up from element to element, until one answers whose cache holds enough; sources are never asked. However many
ask here, one question of a kind goes up: what is kept at all serves for every beginning that is a sqn or a number of packets.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, control
from pgm.core.late_join.history_server import held_packet
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory
from pgm.wire.sequence_numbers import unwrap

_MOST_KINDS = 16  # questions under way, and answers remembered: times differ, all else is one kind
_MOST_ASKERS = 1024  # that wait for one answer; who is not among them asks again
_ALL = -1


def begins_at(held: HeldHistory, oldest: int, lead: int) -> int:
    """The sqn that what a question asks for begins with, where everything from `oldest` on is held."""
    if held.by_sqn:
        wanted = unwrap(held.amount, lead)
    elif held.by_count:
        wanted = lead + 1 - held.amount
    else:
        wanted = oldest
    return min(max(wanted, oldest), lead + 1)


@attrs.frozen
class HistoryReply:
    """A child's question that can be answered now: what is held above begins with `first`; None for nothing."""

    held: HeldHistory
    segment: Segment
    peer: Nla
    first: int | None


@attrs.define(eq=False)
class _Question:
    """One that has gone up."""

    held: HeldHistory
    again_ns: int
    until_ns: int
    askers: dict[tuple[int, Nla], HistoryReply] = attrs.field(factory=dict)
    said: dict[Nla, int | None] = attrs.field(factory=dict)


class UpstreamHistory:
    """The questions of one session that have gone up, and who keeps what."""

    def __init__(
        self,
        state: SessionState,
        keepers: tuple[Nla, ...],
        segment_of: Callable[[Nla], Segment],
        parameters: Parameters,
        counters: Counters,
    ) -> None:
        self._state = state
        self._keepers = keepers
        self._segment_of = segment_of
        self._parameters = parameters
        self._counters = counters
        self._open: dict[int, _Question] = {}  # by kind: the time back, or _ALL
        self._known: dict[int, tuple[int, int | None]] = {}  # when it was answered, and how
        self.keeper: Nla | None = None  # who is to be asked for history
        self.first = 0  # what it holds from on

    @property
    def is_empty(self) -> bool:
        """Whether there is nobody above to ask."""
        return not self._keepers

    @property
    def deadline_ns(self) -> int:
        """When to ask again, or to do without an answer."""
        if not self._open:
            return NEVER
        return min(one.again_ns for one in self._open.values())

    def ask(
        self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int
    ) -> tuple[list[Effect], list[HistoryReply]]:
        """A child wants to know: ask, wait with those who have asked, or answer by what was said just now."""
        kind = held.amount if held.by_time else _ALL
        known = self._known.get(kind)
        if known is not None and now_ns - known[0] < self._parameters.open_hold_ivl:
            return [], [HistoryReply(held, segment, peer, known[1])]
        question = self._question(kind, now_ns)
        if question is None:
            return [], []
        if len(question.askers) < _MOST_ASKERS:
            question.askers[segment.index, peer] = HistoryReply(held, segment, peer, None)
        return self.handle_deadline(now_ns)

    def _question(self, kind: int, now_ns: int) -> _Question | None:
        question = self._open.get(kind)
        if question is None:
            if len(self._open) >= _MOST_KINDS:
                self._counters.states_refused += 1
                return None
            above = HeldHistory(amount=0) if kind == _ALL else HeldHistory(amount=kind, by_time=True)
            # A receiver waits open_hold_ivl for its answer: half of that leaves time to bring one.
            question = self._open[kind] = _Question(above, now_ns, now_ns + self._parameters.open_hold_ivl // 2)
        return question

    def seek(self, now_ns: int) -> bool:
        """Somebody wants history of which this element, perhaps started anew, knows nothing: ask, unless there is no hope."""
        known = self._known.get(_ALL)
        if known is not None and now_ns - known[0] < self._parameters.open_hold_ivl:
            return known[1] is not None
        return bool(self._keepers) and self._question(_ALL, now_ns) is not None

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> list[HistoryReply]:
        """What somebody above says; returns what can be answered now."""
        if peer not in self._keepers:
            return []
        kind = held.number if held.by_time else _ALL
        question = self._open.get(kind)
        if question is None:
            return []
        first = None if held.nothing else max(0, unwrap(held.amount, self._state.lead))
        question.said[peer] = first
        if len(question.said) == len(self._keepers):
            return self._decide(kind, now_ns)
        if first is not None:  # others may hold more, and are not waited for for long
            question.until_ns = min(question.until_ns, now_ns + self._parameters.nak_rpt_ivl)
            question.again_ns = min(question.again_ns, question.until_ns)
        return []

    def _decide(self, kind: int, now_ns: int) -> list[HistoryReply]:
        question = self._open.pop(kind)
        first: int | None = None
        for keeper in self._keepers:
            said = question.said.get(keeper)
            if said is not None and (first is None or said < first):
                first, self.keeper = said, keeper
        if first is not None:
            self.first = first
        while len(self._known) >= _MOST_KINDS:
            del self._known[next(iter(self._known))]
        self._known[kind] = (now_ns, first)
        return [attrs.evolve(asked, first=first) for asked in question.askers.values()]

    def handle_deadline(self, now_ns: int) -> tuple[list[Effect], list[HistoryReply]]:
        """Questions, repeated while they are not answered; and children to be answered without."""
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
            silent = [keeper for keeper in self._keepers if keeper not in question.said]
            effects += [control(self._segment_of(keeper), packet, to=keeper) for keeper in silent]
        return effects, decided

    def forget(self) -> None:
        """Who was to be asked does not answer."""
        self.keeper = None
        self._known.clear()
