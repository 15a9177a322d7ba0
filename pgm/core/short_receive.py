"""The short way into a receiver: one plain packet that came alone, is next in order, and whose payload is taken at once.

What `Session.on_data` does for whatever comes, in a fraction of its calls.
"""

from __future__ import annotations

from pgm.core.parity_receiver import ParityReceiver
from pgm.core.session_state import SessionState
from pgm.core.session_view import SessionView
from pgm.wire.formats import Nla
from pgm.wire.serial import HALF, MASK

_OPEN = SessionState.OPEN


class ShortReceive(SessionView):
    """The part of `pgm.core.session.Session` that takes such packets."""

    front: bytes  # what those of them begin with that may be taken, empty where none may
    gsi: bytes
    _parity: ParityReceiver | None

    @property
    def _has_sequels(self) -> bool:
        """Whether more than a delivery may follow from data."""
        is_ending = self._state is not _OPEN or self.path.fin_lead is not None
        return is_ending or self._parity is not None or self.feedback.is_wanted

    def pass_alone(self, wire_sqn: int, wire_trail: int, octets: int, peer: Nla, now_ns: int) -> int | None:
        """Deliver a plain ODATA of so many octets, header included; returns its sqn. None, and nothing was taken, where it is not next."""
        path, window = self.path, self.window
        sqn, behind = path.lead + 1, (wire_sqn - wire_trail) & MASK
        if sqn & MASK != wire_sqn or behind >= HALF or self._has_sequels or not window.pass_alone(sqn, octets):
            return None
        path.heard_at_ns = now_ns
        self._asker.parents.heard(peer)
        path.saw_next(sqn - behind)
        return sqn
