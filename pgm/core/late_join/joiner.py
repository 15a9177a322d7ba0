"""Start of a session in the past, with history from nearby caches.

The joiner sends one request to each node that may hold history: an SPMR by unicast with OPT_PGM_HELD. The repairers of
the own segments are asked first. If there are none, or they hold nothing, the request goes to the aggregators upstream,
which forward the request further up. A joiner that knows no element asks the node that SPMs name, which on a flat subnet
is the source. The answer names the oldest available sqn of the requested part.

The sqns from there to the regular start of the session are history. NAKs for history go to the node that answered. Sqns
requested by number that no node holds are lost at once. Without a node to ask, or without an answer in
`open_hold_ivl`, the session begins now, with a notice.

A position of an application is requested for `durable_hold_ivl`. If the window of the source reaches further back than
all answers, the packets of the window are requested like any other loss.
"""

from __future__ import annotations

import attrs

from pgm.core.effects import Effects, LossCause, Notice, control
from pgm.core.late_join.history_server import held_packet
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.segment import Segment
from pgm.core.session.state import NO_EPOCH
from pgm.core.window.receive_window import ReceiveWindow
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.options import HeldHistory
from pgm.wire.sequence_numbers import unwrap, wrap


class LateJoiner:
    """Request of one session to begin earlier.

    `is_wanted` is True until the request is answered or given up.
    """

    def __init__(
        self,
        window: ReceiveWindow,
        asker: NakSender,
        segment: Segment,
        repairers: frozenset[Nla],
        others: tuple[Nla, ...],
        parameters: Parameters,
    ) -> None:
        """`repairers` of the own segments are asked first, then `others` upstream.

        The `others` are asked if the repairers hold nothing or do not answer.
        """
        self._window = window
        self._nak_sender = asker
        self._state = asker.state
        self._segment = segment
        self._stages = [stage for stage in (frozenset(repairers), frozenset(others) - repairers) if stage]
        self._without_history: set[Nla] = set()
        self._parameters = parameters
        self._patience = parameters.open_hold_ivl
        self._has_position = False
        self._next_stage_ns = NEVER
        self.is_wanted = parameters.join_from != "now"
        self.deadline_ns = NEVER
        self.until_ns = NEVER  # when the request is given up

    def hold_until(self, until_ns: int, now_ns: int) -> int:
        """Return how long the session waits for an SPM: `until_ns`, as history adds nothing to this wait."""
        return until_ns

    def want(self, sqn: int) -> None:
        """Request this sqn, in place of what the parameters say. A request that has begun stays."""
        if self.until_ns == NEVER:
            self._parameters = attrs.evolve(self._parameters, join_from="sqn", join_sqns=sqn)
            self._patience = self._parameters.durable_hold_ivl
            self._has_position = True
            self.is_wanted = True

    def begin(self, now_ns: int) -> None:
        """Start to send the request, because the path is known now.

        The request is repeated until an answer comes. Without a node to ask, the request is given up at once. Sources
        of other implementations hold no history: only those of this one tell an epoch.
        """
        if self.until_ns == NEVER:
            if not self._stages and self._state.path_nla is not None and self._state.epoch is not NO_EPOCH:
                self._stages.append(frozenset((self._state.path_nla,)))
            self.deadline_ns = now_ns
            self.until_ns = now_ns + (self._patience if self._stages else 0)
            self._next_stage_ns = now_ns + self._parameters.open_hold_ivl // 2

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return requests to the nodes of this stage, or notice that joining failed."""
        if not self.is_wanted or now_ns < self.deadline_ns:
            return ()
        if now_ns >= self.until_ns:
            return self._give_up(now_ns)
        if now_ns >= self._next_stage_ns and len(self._stages) > 1:
            del self._stages[0]
        self.deadline_ns = min(now_ns + self._parameters.nak_rpt_ivl, self.until_ns)
        packet = held_packet(self._state, self._question())
        silent = sorted(self._stages[0] - self._without_history)
        return [control(self._nak_sender.home_of(keeper, self._segment), packet, to=keeper) for keeper in silent]

    def _give_up(self, now_ns: int) -> Effects:
        """Begin now. If a first sqn was requested, the sqns from there to now are lost."""
        self.is_wanted, self.deadline_ns = False, NEVER
        begins, wanted = self._window.next_sqn, self._wanted_sqn
        if wanted is not None:
            self._window.begin_earlier(wanted, now_ns)  # the window may reach back further than the application
            if wanted < begins:
                self._lose_before(self._window_begin(begins))
        return (self._notice("no node nearby reports history of the stream: the session begins now"),)

    @property
    def _wanted_sqn(self) -> int | None:
        """The first sqn that was requested; None if the request names no sqn."""
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
        """Begin with the history that `peer` holds.

        Return nothing for a packet that is no answer, or for a late or foreign answer.
        """
        if not self.is_wanted or not held.answers or self.until_ns == NEVER:
            return ()
        if not any(peer in stage for stage in self._stages):
            return ()
        if held.nothing:
            self._without_history.add(peer)
            while self._stages and self._stages[0] <= self._without_history:
                del self._stages[0]  # the nodes upstream may hold history
                self.deadline_ns = now_ns
            if not self._stages:
                self.until_ns = now_ns
            return ()
        self.is_wanted, self.deadline_ns = False, NEVER
        self._begin_with(max(0, unwrap(held.amount, self._state.lead)), peer, now_ns)
        return (self._notice(f"{peer} keeps history from sqn {max(0, unwrap(held.amount, self._state.lead))} on"),)

    def _begin_with(self, first: int, keeper: Nla, now_ns: int) -> None:
        begins, wanted = self._window.next_sqn, self._wanted_sqn
        recovery = self._nak_sender.recovery
        if wanted is not None and wanted < first:
            self._window.begin_earlier(wanted, now_ns)
            from_window = self._window_begin(begins)
            self._lose_before(min(first, from_window))
            if from_window < first:
                return  # NAKs for packets of the window go to the parents, as for all other losses
        else:
            self._window.begin_earlier(first, now_ns)
        self._nak_sender.ask_for_history(keeper, begins, has_position=self._has_position)
        recovery.cached_below_sqn = begins

    def _window_begin(self, begins: int) -> int:
        """Return the first sqn before `begins` that the window of the source has for a position, at most `begins`."""
        return min(self._state.trail, begins) if self._has_position else begins

    def _lose_before(self, sqn: int) -> None:
        self._window.give_up(self._nak_sender.recovery.give_up_before(sqn), LossCause.WINDOW)

    def on_gone(self, held: HeldHistory, peer: Nla) -> bool:
        """Give up history that its keeper reports as no longer held.

        The loss is reported now, not after a timeout. Return whether there was any.
        """
        if peer != self._nak_sender.keeper or not (held.answers and held.nothing and held.by_sqn):
            return False
        first = unwrap(held.amount, self._state.lead)
        gone = self._nak_sender.recovery.arrived(first, min(first + held.number, self._nak_sender.history_end))
        self._window.give_up(gone, LossCause.WINDOW)
        return bool(gone)

    def _notice(self, text: str) -> Notice:
        return Notice("late-join", f"session {tsi_text(self._state.tsi)}: {text}")
