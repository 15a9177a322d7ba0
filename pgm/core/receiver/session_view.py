"""Read-only view of a receiver's session, for tests, operators and the core."""

from __future__ import annotations

from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.phase import SessionPhase
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.redundant_lines import RedundantLines
from pgm.core.session.state import SessionState
from pgm.core.status import SessionStatus
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.formats import tsi_text


class SessionView:
    """The read-only side of `pgm.core.receiver.session.ReceiverSession`."""

    state: SessionState
    window: ReceiveWindow
    feedback: Feedback
    lines: RedundantLines | None
    _phase: SessionPhase
    _recovery: Recovery
    _nak_sender: NakSender

    @property
    def is_over(self) -> bool:
        """Whether the end was reported to the application."""
        return self._phase is SessionPhase.CLOSED

    @property
    def is_running(self) -> bool:
        """Whether the opening was reported to the application, and the end was not."""
        return self._phase in (SessionPhase.OPEN, SessionPhase.SILENT)

    @property
    def is_quiet(self) -> bool:
        """Whether the session has ended or fallen silent."""
        return self._phase in (SessionPhase.CLOSED, SessionPhase.SILENT)

    @property
    def missing_sqns(self) -> int:
        """Number of sqns in recovery now."""
        return self._recovery.missing.sqns

    @property
    def missing_ranges(self) -> int:
        """Number of ranges in recovery now, which `rxw_gaps` bounds."""
        return len(self._recovery.missing)

    @property
    def nak_bo_ivl_ns(self) -> int:
        """Bound of the random back-off in ns: the parameter, or the advertised interval."""
        return self._recovery.nak_bo_ivl

    @property
    def may_ask(self) -> bool:
        """Whether NAKs may be sent: the path is known, and no upstream node forbids it."""
        return self._recovery.may_ask

    @property
    def intervals_ns(self) -> tuple[int, int]:
        """Timeouts for an NCF and for RDATA, in ns.

        The timeouts are `nak_rpt_ivl` and `nak_rdata_ivl`, or longer while answers are late.
        """
        return self._recovery.ncf_timeout.ivl_ns, self._recovery.data_timeout.ivl_ns

    def is_missing(self, sqn: int) -> bool:
        """Return whether this sqn is in recovery now."""
        return self._recovery.is_missing(sqn)

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's row for operators."""
        return SessionStatus(
            tsi=tsi_text(self.state.tsi),
            data_port=self.state.data_port,
            state=self._phase.name.lower(),
            trail=self.state.trail,
            lead=self.state.lead,
            next_sqn=self.window.next_sqn,
            missing_sqns=self.missing_sqns,
            held_octets=self.window.held_octets,
            parent=self._nak_sender.parents.current or "",
            silent_ns=now_ns - self.state.heard_at_ns,
            acked=self.feedback.status,
            lines=[] if self.lines is None else self.lines.status(now_ns),
        )
