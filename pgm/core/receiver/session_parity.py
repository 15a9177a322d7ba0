"""Parity of one session, once the source offers parity (RFC 11)."""

from __future__ import annotations

from pgm.core.parity.recovery import ParityRecovery, offer_of
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.train import Data, Run


class SessionParity:
    """Parity of one session. `is_offered` is False, and calls have no effect, until an SPM offers parity."""

    def __init__(self, context: SessionContext, window: ReceiveWindow, nak_sender: NakSender) -> None:
        self._context = context
        self._window = window
        self._nak_sender = nak_sender
        self._recovery: ParityRecovery | None = None
        self.is_offered = False

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take an SPM, which may carry the size of a short group."""
        if self._recovery is not None:
            self._recovery.on_spm(spm, now_ns)
            self._window.skip(self._recovery.take_skipped())

    def learn_offer(self, spm: Spm) -> None:
        """Learn the source's parity offer, once (FEC-23). The group size stays for the session (FEC-02)."""
        if self.is_offered or not spm.options:
            return
        offer = offer_of(spm, self._nak_sender.state)
        if offer is not None:
            store = RunStore()
            self._window.keep(store)
            self._recovery = ParityRecovery(
                self._context,
                offer,
                self._nak_sender.state,
                self._window.gap_detector,
                store=store,
                kept=store,
                regain=self._window.take_back,
            )
            self._nak_sender.use_parity(self._recovery)
            self.is_offered = True

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note that `first` to `end - 1` were sent, before these packets are taken."""
        if self._recovery is not None:
            self._recovery.sent(first, end, now_ns)

    def on_data(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Take data. Return the packets that can be rebuilt."""
        return [] if self._recovery is None else self._and_skip(self._recovery.on_data(data, first, now_ns))

    def on_parity(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Take parity packets. Return the packets that can be rebuilt."""
        return [] if self._recovery is None else self._and_skip(self._recovery.on_parity(data, first, now_ns))

    def _and_skip(self, rebuilt: list[Run]) -> list[Run]:
        """Skip sqns that were never sent, as far as the last packets have shown."""
        if self._recovery is not None:
            self._window.skip(self._recovery.take_skipped())
        return rebuilt

    def answered(self, nak: Nak) -> list[Span]:
        """Return the sqns that a parity NCF or NAK covers."""
        return [] if self._recovery is None else self._recovery.answered(nak)
