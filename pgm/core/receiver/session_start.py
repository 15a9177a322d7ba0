"""Start of one session: the request for an SPM, the hold for earlier data, and late joining."""

from __future__ import annotations

from pgm.core.effects import Effect, Effects
from pgm.core.late_join.joiner import LateJoiner
from pgm.core.receiver.delivery import Delivery
from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.receiver.snapshot_start import SnapshotStart
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.recovery.spm_request import SpmRequest
from pgm.core.session_context import SessionContext
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory, Join, find
from pgm.wire.train import Data


class Hold:
    """Time for which an unopened session holds packets; the session opens at its end."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.deadline_ns = NEVER

    def end(self) -> list[Effect]:
        """Open the session."""
        self.deadline_ns = NEVER
        return self._delivery.open()

    def handle_deadline(self, now_ns: int) -> Effects:
        """Open the session without an SPM."""
        return [*self.end(), *self._delivery.advance()]


class SessionStart:
    """Start of one session. Delivery waits a moment for the SPM that NAKs need; its OPT_JOIN may begin earlier."""

    def __init__(
        self, context: SessionContext, setup: ReceiverSetup, delivery: Delivery, nak_sender: NakSender
    ) -> None:
        self._parameters = context.parameters
        self._state = nak_sender.state
        self._delivery = delivery
        self._window = delivery.window
        self._starts = setup.starts
        self.spm_request = SpmRequest(context, setup.segment)
        self.late_join: LateJoiner | SnapshotStart
        if context.parameters.join_from == "snapshot":
            self.late_join = SnapshotStart(delivery, nak_sender, setup.segment, context.parameters)
        else:
            self.late_join = LateJoiner(
                delivery.window, nak_sender, setup.segment, setup.local_repairers, setup.keepers, context.parameters
            )
        self.hold = Hold(delivery)

    def on_first_data(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> list[Effect]:
        """Start reception at the first data packet (RCV-01) or by OPT_JOIN (RCV-03)."""
        state, self._delivery.opener = self._state, peer
        if not state.has_edges:
            state.begin_at(first + data.count - 1, trail)
        join = find(data.options, Join)
        start = first if join is None else min(first, state.unwrap(join.min_sqn))
        self._window.begin(max(start, state.oldest))
        if state.spm is not None:
            return self.hold.end()
        self.want_spm(peer, now_ns)
        self._delivery.phase = SessionPhase.HOLDING
        has_position = self._starts.start_of(state) is not None
        hold_ivl = self._parameters.durable_hold_ivl if has_position else self._parameters.open_hold_ivl
        self.hold.deadline_ns = self.late_join.hold_until(now_ns + hold_ivl, now_ns)
        return []

    def want_spm(self, peer: Nla, now_ns: int) -> None:
        """Request an SPM if none has come (SPMR-01). The request goes to the group and to the data's sender."""
        if self._state.spm is None:
            self._delivery.opener = peer
            self.spm_request.want(peer, now_ns)

    def on_spmr_heard(self, now_ns: int) -> None:
        """Note another receiver's SPMR."""
        self.spm_request.heard_request(now_ns)

    def on_spm(self, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM: the session opens here, or at the start that OPT_JOIN allows."""
        if self._state.end.deadline_ns == NEVER:
            self.spm_request.heard_spm()
        else:
            self.spm_request.want(peer if self._delivery.opener == "" else self._delivery.opener, now_ns)
        phase, join_at = self._delivery.phase, self._state.join_at
        if phase not in (SessionPhase.WAITING, SessionPhase.HOLDING):
            return ()
        self._delivery.opener = peer
        start = self._starts.start_of(self._state) if self._state.has_edges else None
        if start is not None and self._begin_near(start, now_ns):
            return self.hold.end()
        if self.late_join.is_wanted:
            return self._begin_late(now_ns)
        if phase is SessionPhase.HOLDING:
            if join_at is not None:
                self._window.begin_earlier(join_at, now_ns)
            return self.hold.end()
        if join_at is None:
            return ()
        self._window.begin(join_at)
        return self.hold.end()

    def _begin_near(self, start: int, now_ns: int) -> bool:
        """Begin at a wanted sqn that needs no history, and return True. Else let the late joiner request it."""
        join_at = self._state.join_at
        begins = self._state.lead + 1 if join_at is None else join_at
        if self._delivery.phase is SessionPhase.WAITING:
            if start >= begins:
                self._window.begin(min(start, self._state.lead + 1))
                return True
        else:
            if start >= begins:
                self._window.begin_earlier(start, now_ns)
            if start >= self._window.next_sqn:
                self._window.begin_earlier(start, now_ns)  # the window may reach back further than the application
                return True
        self.late_join.want(start)
        return False

    def _begin_late(self, now_ns: int) -> Effects:
        """Hold packets until a repairer has said which history it holds."""
        join_at = self._state.join_at
        if self._delivery.phase is SessionPhase.WAITING:
            if not self._state.has_edges:
                return ()
            self._window.begin(self._state.lead + 1 if join_at is None else join_at)
            self._delivery.phase = SessionPhase.HOLDING
        elif join_at is not None:
            self._window.begin_earlier(join_at, now_ns)
        self.late_join.begin(now_ns)
        self.hold.deadline_ns = self.late_join.until_ns
        return self.late_join.handle_deadline(now_ns)

    def on_held(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer about history: begin there, or give up history that is gone."""
        if self._delivery.is_running:
            return self._delivery.advance() if self.late_join.on_gone(held, peer) else ()
        if self._delivery.phase is not SessionPhase.HOLDING:
            return ()
        notices = self.late_join.on_answer(held, peer, now_ns)
        self.hold.deadline_ns = min(self.hold.deadline_ns, self.late_join.until_ns)
        return [*notices, *self.hold.end(), *self._delivery.advance()] if notices else ()
