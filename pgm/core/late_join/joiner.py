"""Beginning a session before now: with what somebody near still holds, asked for by one question to each who may.

The question is an SPMR by unicast with OPT_PGM_HELD. The repairers of the own segments are asked first; where there are none, or they have
nothing, the aggregators above, who ask further up. The answer names the oldest sqn of what is wanted that can be had. From there to
where the session would have begun is history: NAKs for it go to whoever answered, never to a source. What is wanted by its sqn and
held by nobody is lost at once. Nobody to ask, or no answer in `open_hold_ivl`: the session begins now, and a notice says so.
"""

from __future__ import annotations

from pgm.core.effects import Effects, LossCause, Notice, control
from pgm.core.late_join.history_server import held_packet
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.segment import Segment
from pgm.core.window.receive_window import ReceiveWindow
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.options import HeldHistory
from pgm.wire.sequence_numbers import unwrap, wrap


class LateJoiner:
    """One session's wish to begin earlier. `is_wanted` until it was answered or given up."""

    def __init__(
        self,
        window: ReceiveWindow,
        asker: NakSender,
        segment: Segment,
        repairers: frozenset[Nla],
        others: tuple[Nla, ...],
        parameters: Parameters,
    ) -> None:
        """`repairers` of the own segments are asked first, `others` above when those have nothing."""
        self._window = window
        self._nak_sender = asker
        self._state = asker.state
        self._segment = segment
        self._stages = [stage for stage in (frozenset(repairers), frozenset(others) - repairers) if stage]
        self._with_nothing: set[Nla] = set()
        self._parameters = parameters
        self._next_stage_ns = NEVER
        self.is_wanted = parameters.join_from != "now"
        self.deadline_ns = NEVER
        self.until_ns = NEVER  # it is given up

    def begin(self, now_ns: int) -> None:
        """The path is known: ask at once, and again until an answer comes. Without anybody to ask it is over."""
        if self.until_ns == NEVER:
            self.deadline_ns = now_ns
            self.until_ns = now_ns + (self._parameters.open_hold_ivl if self._stages else 0)
            self._next_stage_ns = now_ns + self._parameters.open_hold_ivl // 2

    def handle_deadline(self, now_ns: int) -> Effects:
        """The question, to everybody whose turn it is; or the notice that it is given up."""
        if not self.is_wanted or now_ns < self.deadline_ns:
            return ()
        if now_ns >= self.until_ns:
            return self._without(now_ns)
        if now_ns >= self._next_stage_ns and len(self._stages) > 1:
            del self._stages[0]
        self.deadline_ns = min(now_ns + self._parameters.nak_rpt_ivl, self.until_ns)
        packet = held_packet(self._state, self._question())
        silent = sorted(self._stages[0] - self._with_nothing)
        return [control(self._nak_sender.home_of(keeper, self._segment), packet, to=keeper) for keeper in silent]

    def _without(self, now_ns: int) -> Effects:
        """Begin now. A beginning that was named is owed: what lies between is lost."""
        self.is_wanted, self.deadline_ns = False, NEVER
        begins, wanted = self._window.next_sqn, self._wanted_sqn
        if wanted is not None and wanted < begins:
            self._window.begin_earlier(wanted, now_ns)
            self._window.give_up(self._nak_sender.recovery.give_up_before(begins), LossCause.WINDOW)
        return (self._told("nobody near says that it keeps the stream: it begins now"),)

    @property
    def _wanted_sqn(self) -> int | None:
        """The sqn to begin with, if it is named."""
        return self._parameters.join_sqns if self._parameters.join_from == "sqn" else None

    def _question(self) -> HeldHistory:
        wanted = self._parameters
        if wanted.join_from == "oldest":
            return HeldHistory(amount=0)
        if wanted.join_from == "sqn":
            return HeldHistory(amount=wrap(wanted.join_sqns), by_sqn=True)
        if wanted.join_secs:
            return HeldHistory(amount=min(wanted.join_secs // MILLISECOND, (1 << 32) - 1), by_time=True)
        return HeldHistory(amount=min(wanted.join_sqns, (1 << 32) - 1), by_count=True)

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Begin with what somebody says to hold; nothing for what is no answer, or comes too late."""
        if not self.is_wanted or not held.answers or self.until_ns == NEVER:
            return ()
        if not any(peer in stage for stage in self._stages):
            return ()
        if held.nothing:
            self._with_nothing.add(peer)
            while self._stages and self._stages[0] <= self._with_nothing:
                del self._stages[0]  # perhaps those above have something
                self.deadline_ns = now_ns
            if not self._stages:
                self.until_ns = now_ns
            return ()
        self.is_wanted, self.deadline_ns = False, NEVER
        self._begin_with(max(0, unwrap(held.amount, self._state.lead)), peer, now_ns)
        return (self._told(f"{peer} keeps it from sqn {max(0, unwrap(held.amount, self._state.lead))} on"),)

    def _begin_with(self, first: int, keeper: Nla, now_ns: int) -> None:
        begins, wanted = self._window.next_sqn, self._wanted_sqn
        recovery = self._nak_sender.recovery
        if wanted is not None and wanted < first:
            self._window.begin_earlier(wanted, now_ns)
            self._window.give_up(recovery.give_up_before(min(first, begins)), LossCause.WINDOW)
        else:
            self._window.begin_earlier(first, now_ns)
        self._nak_sender.keeper, self._nak_sender.history_end = keeper, begins
        recovery.cached_below_sqn = begins

    def on_gone(self, held: HeldHistory, peer: Nla) -> bool:
        """Whoever keeps history says that nobody holds some of it any more: that is lost now, not after a time-out."""
        if peer != self._nak_sender.keeper or not (held.answers and held.nothing and held.by_sqn):
            return False
        first = unwrap(held.amount, self._state.lead)
        gone = self._nak_sender.recovery.arrived(first, min(first + held.number, self._nak_sender.history_end))
        self._window.give_up(gone, LossCause.WINDOW)
        return bool(gone)

    def _told(self, text: str) -> Notice:
        return Notice("late-join", f"session {tsi_text(self._state.tsi)}: {text}")
