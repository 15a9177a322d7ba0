"""Frames of the messages of one signed session, made as the rows are collected."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pgm.archive.store.frames import Frame
from pgm.messages.batch_decoder import DecodedBatch
from pgm.messages.batch_format import BatchLayout, read_layout
from pgm.wire.train import Octets, Run, fragment_of


class FrameMaker:
    """Maker of frames, which sees every run before the messages that the run completes."""

    def __init__(self) -> None:
        self._sizes: list[tuple[int, int]] = []  # of the fragments of the unfinished message
        self._layout: BatchLayout | None = None  # of the last batch, which the next one usually has too

    def note(self, run: Run) -> None:
        """Note the sizes of fragments. A run has fragments of one message only."""
        fragment = fragment_of(run)
        if fragment is None or fragment.offset == 0:
            self._sizes.clear()
        if fragment is None:
            return
        size, count = run.stride - run.payload_at, run.count
        if self._sizes and self._sizes[-1][1] == size:
            count += self._sizes.pop()[0]
        self._sizes.append((count, size))

    def of_large(self) -> Mapping[int, bytes]:
        """Return the frame of the message that the last run has completed."""
        return {0: Frame(tuple(self._sizes)).to_bytes()}

    def of_batches(self, batch: DecodedBatch, packets: Octets, *, is_large: bool) -> Mapping[int, bytes]:
        """Return the frames of decoded packets by the place of their first row. `packets` are those of `batch`."""
        sizes = tuple(self._sizes) if is_large else ()
        ends = np.cumsum(batch.counts)
        octets: npt.NDArray[np.int64] = np.diff(batch.columns.ends[np.append(0, ends)])
        frames = {}
        for row, packet, length in zip((ends - batch.counts).tolist(), packets, octets.tolist(), strict=True):
            at = self._data_at(packet)
            frames[row] = Frame(sizes, packet[:at].tobytes(), packet[at + length :].tobytes(), True).to_bytes()
        return frames

    def _data_at(self, packet: Octets) -> int:
        """Return where the messages of a batch begin."""
        layout = self._layout
        if layout is None or layout.octets != len(packet) or not layout.fits(packet):
            layout = self._layout = read_layout(packet.tobytes())
        return layout.data.begin
