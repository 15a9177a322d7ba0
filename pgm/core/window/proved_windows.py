"""Choice of the receive window of a signed stream, by its order and by the time of the check."""

from __future__ import annotations

from pgm.core.recovery.recovery import Recovery
from pgm.core.session_context import SessionContext
from pgm.core.window.late_proved_window import LateProvedWindow
from pgm.core.window.proved_window import ProvedWindow, Trial
from pgm.core.window.receive_window import DeliveryBudget, ReceiveWindow
from pgm.core.window.unordered_proved_window import UnorderedProvedWindow


def proved_window(context: SessionContext, recovery: Recovery, room: DeliveryBudget, trial: Trial) -> ReceiveWindow:
    """Return the receive window of a session whose packets need proofs."""
    if trial.is_late:
        return LateProvedWindow(context, recovery, room, trial)
    return (ProvedWindow if trial.is_ordered else UnorderedProvedWindow)(context, recovery, room, trial)
