"""One source as one receiver sees it: path, window and recovery together (RFC 6)."""

from __future__ import annotations

from pgm.core.effects import CloseCause, Effect, Effects, LossCause
from pgm.core.receiver.data_path import DataPath
from pgm.core.receiver.delivery import Delivery
from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.nak_exchange import NakExchange
from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.session_start import SessionStart
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.redundant_lines import RedundantLines, all_parents, lines_of
from pgm.core.session.state import SessionState, SpmVerdict
from pgm.core.session_context import SessionContext
from pgm.core.source_names import source_of
from pgm.core.status import SessionStatus
from pgm.core.timers import Timers
from pgm.core.window.proved_windows import proved_window
from pgm.core.window.receive_window import DeliveryBudget, ReceiveWindow
from pgm.wire.control_packets import Spm
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.train import Data, DataWithGaps

_OPEN = SessionPhase.OPEN  # a look-up in an enum is slow


class ReceiverSession:
    """The receiver's side of one TSI, heard first at `begun_ns`."""

    def __init__(self, context: SessionContext, setup: ReceiverSetup, room: DeliveryBudget, begun_ns: int) -> None:
        self._parameters = context.parameters
        self._counters = context.counters
        self.begun_ns = begun_ns
        self.state = SessionState(context)
        self.state.heard_at_ns = begun_ns
        self.parents = Parents(context, all_parents(setup.parents, setup.lines))
        self.recovery = Recovery(context, self.parents.response_timeout, setup.repair_table)
        trial = setup.new_trial(self.state, self.parents)
        if trial is not None:
            self.window = proved_window(context, self.recovery, room, trial)
        else:
            is_ordered = context.data_port not in setup.unordered_ports
            self.window = ReceiveWindow(context, self.recovery, room, is_ordered=is_ordered)
        lines = lines_of(setup.segment, setup.parents, setup.lines)
        self.lines = RedundantLines(context, lines, self.state, self.recovery)
        self.feedback = Feedback(context, self.state, self.parents, setup, self.recovery.is_missing, self.lines)
        nak_sender = NakSender(context, self.state, self.parents, self.recovery, self.feedback, self.lines)
        self.delivery = Delivery(context, self.state, self.window, self.feedback)
        self.start = SessionStart(context, setup, self.delivery, nak_sender)
        self.data_path = DataPath(context, setup, self.delivery, self.start, self.feedback, nak_sender)
        self.naks = NakExchange(context, setup, self.delivery, self.data_path, nak_sender)
        # One composite holds the timers of all parts: a composite for each part takes longer for each packet.
        self._timers: Timers[ReceiverSession] = Timers(
            self.start.spm_request,
            self.start.late_join,
            self.start.hold,
            self.naks.nak_control.answers,
            (self.state.end, ReceiverSession._believe_end),
            (self.recovery, ReceiverSession._send_naks),
            (self.naks.self_limit, ReceiverSession._review_own_naks),
        )

    def change(self, setup: ReceiverSetup) -> None:
        """Take the parents of the setup and the timers of the parameters as they are now."""
        self.parents.change(all_parents(setup.parents, setup.lines))
        self.recovery.change(has_lines=bool(setup.lines))
        self.naks.nak_control.change(self._parameters)

    @property
    def is_over(self) -> bool:
        """Whether the end was reported to the application."""
        return self.delivery.phase is SessionPhase.CLOSED

    @property
    def is_quiet(self) -> bool:
        """Whether the session has ended or fallen silent."""
        return self.delivery.phase in (SessionPhase.CLOSED, SessionPhase.SILENT)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        phase, parameters = self.delivery.phase, self._parameters
        feedback_ns = self.feedback.deadline_ns
        if phase is SessionPhase.ENDING:
            return feedback_ns  # only the application can move the session on
        expiry = parameters.peer_expiry if phase is SessionPhase.OPEN else parameters.session_expiry
        expires_ns = min(self.state.heard_at_ns + expiry, feedback_ns)
        if phase is SessionPhase.CLOSED:
            return expires_ns
        return min(expires_ns, self._timers.deadline_ns)

    def on_data(self, data: Data | DataWithGaps, peer: Nla, now_ns: int) -> Effects:
        """Take ODATA or RDATA, then send NAKs that now fit the outstanding limit: in trains, deadlines are late."""
        effects = self.data_path.take(data, peer, now_ns)
        if self.recovery.has_room_at_ns > now_ns or self.delivery.phase is not _OPEN:
            return effects
        return [*effects, *self.naks.send(now_ns)]

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM: the path, the window's edges, and perhaps the end."""
        delivery, state = self.delivery, self.state
        if delivery.end_cause is CloseCause.EXPIRED:
            return ()  # heard too late: after the application has taken the rest, the SPM starts a new session
        verdict = state.on_spm(spm, now_ns)
        if verdict is SpmVerdict.STALE:
            return ()
        if verdict is SpmVerdict.UNPROVED:
            return state.report_doubt(peer, now_ns)
        effects = self.data_path.heard(peer, now_ns, answers=False)
        if verdict is SpmVerdict.UNREACHABLE:
            self.naks.nak_control.on_unreachable(now_ns)
            return effects
        self.naks.on_spm(spm, now_ns)
        self.data_path.parity.learn_offer(spm)
        self.feedback.on_spm(spm, now_ns)
        effects += self.start.on_spm(peer, now_ns)
        if delivery.phase is SessionPhase.WAITING or delivery.is_dropping:
            return effects
        if verdict is SpmVerdict.JUMPED:
            self.window.skip_to(state.trail, LossCause.JUMP)
        self.data_path.follow_trail(now_ns)
        self.window.reveal(state.lead + 1, now_ns)
        self.data_path.parity.on_spm(spm, now_ns)
        if state.end.is_claimed:
            self.recovery.source_leaves(now_ns)
        else:
            self.recovery.source_stays()
        return [*effects, *delivery.advance()]

    def _believe_end(self, now_ns: int) -> Effects:
        """End the session once everything up to its end is delivered or lost: nothing has contradicted the end."""
        end, delivery = self.state.end, self.delivery
        end.believe()
        self.start.spm_request.heard_spm()
        is_whole = end.has_fin and self.window.next_sqn > self.state.lead  # a source that fails later changes nothing
        if end.reset is not None and not is_whole:
            delivery.end_cause = CloseCause.RESET
            if end.reset.no_naks:
                self.window.give_up_before(self.state.lead + 1, LossCause.SOURCE_GONE)
        return delivery.advance()

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due: NAKs, giving up, SPMRs, silence."""
        delivery, state = self.delivery, self.state
        effects: list[Effect] = [*self.feedback.handle_deadline(now_ns)]
        if delivery.is_dropping:
            return effects
        effects += self._timers.handle_deadline(self, now_ns)
        silence = now_ns - state.heard_at_ns
        if delivery.phase is SessionPhase.OPEN and silence >= self._parameters.peer_expiry:
            if state.end.lead is not None:
                return [*effects, *delivery.end(delivery.end_cause)]  # no outage: the source announced its end
            effects += delivery.fall_silent()
        elif silence >= self._parameters.session_expiry:
            self._counters.sessions_expired += 1
            effects += delivery.end(CloseCause.EXPIRED)
        return effects

    def _send_naks(self, now_ns: int) -> Effects:
        return () if self.is_over else self.naks.send(now_ns)  # the end may have been due, too

    def _review_own_naks(self, now_ns: int) -> Effects:
        return self.naks.review_own_naks(now_ns)

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's row for operators."""
        return SessionStatus(
            tsi=tsi_text(self.state.tsi),
            source=source_of(self.state.tsi),
            data_port=self.state.data_port,
            state=self.delivery.phase.name.lower(),
            trail=self.state.trail,
            lead=self.state.lead,
            next_sqn=self.window.next_sqn,
            missing_sqns=self.recovery.missing.sqns,
            held_octets=self.window.held_octets,
            parent=self.parents.current or "",
            silent_ns=now_ns - self.state.heard_at_ns,
            file=self.state.file,
            verified_ns=self.state.verified_ns(now_ns),
            acked=self.feedback.status,
            lines=self.lines.status(now_ns),
        )
