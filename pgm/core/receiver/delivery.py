"""Delivery of one session to the application: phase, opening, deliveries, end."""

from __future__ import annotations

from pgm.core.effects import CloseCause, Closed, Effect, Effects, LossCause, Notice, Opened
from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.phase import SessionPhase
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.options import Syn, find
from pgm.wire.train import Data

_ENDING = SessionPhase.ENDING  # a look-up in an enum is slow

# The cause of loss of missing packets when a session ends for a special reason.
_LOST_WITH = {
    CloseCause.EXCESS_NAKS: LossCause.EXCESS_NAKS,
    CloseCause.OVERRUN: LossCause.OVERRUN,
    CloseCause.NO_SECRET: LossCause.SEALED,
}


class Delivery:
    """Delivery of one session, from its first packet to its end."""

    def __init__(self, context: SessionContext, state: SessionState, window: ReceiveWindow, feedback: Feedback) -> None:
        self._state = state
        self._counters = context.counters
        self._feedback = feedback
        self.window = window
        self.phase = SessionPhase.WAITING
        self.end_cause = CloseCause.FIN
        self.opener: Nla = ""  # the peer whose packets began the session
        self._starts_at: int | None = None  # the sqn that OPT_SYN was on

    @property
    def is_dropping(self) -> bool:
        """Whether data is dropped, because the session was given up."""
        return self.phase in (SessionPhase.CLOSED, SessionPhase.ENDING)

    @property
    def is_running(self) -> bool:
        """Whether the opening was reported to the application, and the end was not."""
        return self.phase in (SessionPhase.OPEN, SessionPhase.SILENT)

    @property
    def is_receiving(self) -> bool:
        """Whether packets are taken and requested: the session is running, or holds packets until it opens."""
        return self.is_running or self.phase is SessionPhase.HOLDING

    @property
    def has_seen_end(self) -> bool:
        """Whether the session was closed by a FIN or RST. An acknowledged session has left its source for good."""
        is_by_source = self.phase is SessionPhase.CLOSED and self.end_cause in (CloseCause.FIN, CloseCause.RESET)
        return is_by_source and self.window.is_open and not self._feedback.is_acked

    def open(self) -> list[Effect]:
        """Open the session at the next sqn of the window."""
        self.phase = SessionPhase.OPEN
        self.window.open()
        self._feedback.open(self.window.next_sqn)
        self._counters.sessions_opened += 1
        state, first = self._state, self.window.next_sqn
        opened = Opened(state.tsi, first, self.opener, state.data_port, at_start=self._starts_at == first)
        return self.window.opening(opened)

    def heard(self, peer: Nla) -> list[Effect]:
        """Note a packet of the session. A silent session is open again."""
        if self.phase is not SessionPhase.SILENT:
            return []
        self.phase = SessionPhase.OPEN
        return [Opened(self._state.tsi, self.window.next_sqn, peer, self._state.data_port, resumed=True)]

    def reopen(self, peer: Nla) -> list[Effect]:
        """Continue a session that was closed by a false FIN or RST: data has come from behind its end."""
        if self._state.end.is_claimed:
            self._state.end.contradict()
        self.phase, self.end_cause = SessionPhase.OPEN, CloseCause.FIN
        return [Opened(self._state.tsi, self.window.next_sqn, peer, self._state.data_port)]

    def note_syn(self, data: Data, first: int) -> list[Effect]:
        """Note OPT_SYN: the stream begins here (RFC 9.6.1). In an opened session, a notice reports the start."""
        if self._starts_at is not None or find(data.options, Syn) is None:
            return []
        self._starts_at = first
        if self.phase is not SessionPhase.OPEN or self.window.gap_detector.first != first:
            return []
        return [Notice("session-start", f"session {tsi_text(self._state.tsi)} is heard from its start")]

    def advance(self, *, is_last: bool = False) -> list[Effect]:
        """Return the deliveries and losses in order, and the end of the session once it is reached."""
        window = self.window
        effects = window.advance(is_last=is_last)
        if not window.is_open:
            return effects
        if self._feedback.is_wanted:
            self._feedback.reached(window.settled_sqn - 1)
        end = self._state.end
        is_finished = end.lead is not None and window.settled_sqn > end.lead
        if is_finished or (self.phase is _ENDING and window.is_drained):
            self.phase = SessionPhase.CLOSED
            self._feedback.ends()
            # Only the end itself has told of the last packets, and they were lost. Parity may rebuild them.
            is_unproven = is_finished and not end.is_witnessed and window.lost_end == window.next_sqn
            cause = CloseCause.UNPROVEN if is_unproven else self.end_cause
            reset = end.reset if cause is CloseCause.RESET else None
            effects += [*window.late_opening(window.next_sqn), self._closed(cause, 0 if reset is None else reset.error)]
        return effects

    def _closed(self, cause: CloseCause, error: int = 0) -> Closed:
        return Closed(self._state.tsi, self.window.next_sqn, cause, error)

    def resume(self) -> Effects:
        """Continue to deliver, because the application has made room."""
        return self.advance() if self.is_running or self.phase is SessionPhase.ENDING else ()

    def resync(self) -> Effects:
        """Skip everything held or missing, and continue with the newest packet."""
        if self.phase is not SessionPhase.OPEN:
            return ()
        self.window.skip_all(LossCause.RESYNC)
        return self.advance()

    def fall_silent(self) -> Effects:
        """Report that the session has fallen silent."""
        self.phase = SessionPhase.SILENT
        return [*self.window.late_opening(self.window.next_sqn), self._closed(CloseCause.SILENT)]

    def end(self, cause: CloseCause) -> Effects:
        """Give up missing packets, and close once the rest is delivered."""
        if self.phase is SessionPhase.CLOSED:
            return ()
        if self.phase is SessionPhase.WAITING:
            self.phase = SessionPhase.CLOSED
            return ()
        opening = self.open() if self.phase is SessionPhase.HOLDING else []
        self.phase, self.end_cause = SessionPhase.ENDING, cause
        self.window.give_up_rest(_LOST_WITH.get(cause, LossCause.SOURCE_GONE))
        return [*opening, *self.advance(is_last=cause is CloseCause.EVICTED)]
