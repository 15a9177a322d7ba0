"""Transmit window of a sealed stream: payloads are encrypted as they are taken, so the window holds ciphertext alone."""

from __future__ import annotations

import numpy as np

from pgm.core.session.key_records import PayloadSealer
from pgm.core.window.transmit_window import Payload, TransmitWindow
from pgm.parameters import Parameters
from pgm.wire.formats import DATA_HEADER_OCTETS, Tsi
from pgm.wire.train import Octets, Run


class SealedWindow(TransmitWindow):
    """Transmit window that seals whole trains. Headers and options stay in the clear."""

    def __init__(self, tsi: Tsi, data_port: int, parameters: Parameters, first: int, sealer: PayloadSealer) -> None:
        super().__init__(tsi, data_port, parameters, first)
        self._sealer = sealer

    def _build(self, run: Run, options: bytes, offsets: range | None) -> None:
        self._sealer.seal(run.first, run.payloads, run.payloads)
        self._frame(run, options, offsets)

    def _append_rows(self, payloads: Octets, options: bytes, offsets: range | None) -> None:
        run = self._room_for(payloads.shape[0], DATA_HEADER_OCTETS + len(options), payloads.shape[1])
        self._sealer.seal(run.first, payloads, run.payloads)  # instead of a copy that is encrypted in place
        self._frame(run, options, offsets)

    def _append_alone(self, payload: Payload) -> None:
        self._append_rows(np.frombuffer(bytes(payload), np.uint8).reshape(1, -1), b"", None)
