"""Archives of repairers and recorders, as a durable receiver reads them: one range at a time, by a thread.

The thread asks the range services for their holdings, and reads from the service that holds most. It waits for rows
that the recorder has not synced yet, and for a service that restarts.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from pgm.archive.client import ArchivedLoss, ArchivedMessages, RangeClient, RangeServices
from pgm.archive.errors import ArchiveError
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.core.effects import LossCause, Lost
from pgm.net.durable.past import PastMessages, PastRange
from pgm.net.framing.items import Batch
from pgm.net.framing.packed_batch import PackedBatch
from pgm.parameters import Parameters
from pgm.units import MICROSECOND, NEVER, SECOND
from pgm.wire.formats import tsi_text

_MOST_PIECES = 8  # that wait for the application, each of a MiB or of one row
_CAUSES = {cause.value: cause for cause in LossCause}


class ArchivePast:
    """Archives of the streams of one receiver."""

    def __init__(self, locations: Sequence[str], batch_ports: frozenset[int], parameters: Parameters) -> None:
        """Read from services at `locations` (HOST:PORT or `grpc://HOST:PORT`). Streams of `batch_ports` have batches."""
        self._services = RangeServices(locations, parameters.durable_archive_ivl / SECOND)
        self._batch_ports = batch_ports
        self._parameters = parameters

    def read(self, wanted: PastRange) -> ArchiveRead:
        """Begin to read a range."""
        convert = _packed_items if wanted.data_port in self._batch_ports else _plain_items
        return ArchiveRead(wanted, self._services, convert, self._parameters)


_Items = tuple[Batch | PackedBatch, ...]


@attrs.frozen(eq=False)
class _Held:
    """Holdings of one archive in a session: `oldest` to `end - 1` in the receiver's sqns."""

    client: RangeClient
    extent: SessionExtent
    oldest: int
    end: int


class ArchiveRead:
    """Range that a thread reads."""

    def __init__(
        self,
        wanted: PastRange,
        services: RangeServices,
        convert: Callable[[PastRange, ArchivedMessages], _Items],
        parameters: Parameters,
    ) -> None:
        """Start the thread."""
        self._wanted = wanted
        self._services = services
        self._convert = convert
        self._poll_s = parameters.archive_poll_ivl / SECOND
        self._patience_ns = parameters.durable_gone_ivl if wanted.end is None else parameters.durable_archive_ivl
        self._pieces: queue.Queue[PastMessages | Lost] = queue.Queue(_MOST_PIECES)
        self._at = wanted.first  # where the thread is
        self._ends = threading.Event()
        self._is_done = False
        self._has_end = False
        self.is_begun = False
        self.next_sqn = wanted.first
        threading.Thread(target=self._run, name="pgm archive", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Return whether nothing more will come."""
        return self._is_done and self._pieces.empty()

    @property
    def is_closed(self) -> bool:
        """Return whether an archive has the end of the session, and all before it was read."""
        return self._has_end and self.is_over

    def take(self) -> PastMessages | Lost | None:
        """Return what comes next; None if it has not come yet, or if the read is over."""
        try:
            piece = self._pieces.get_nowait()
        except queue.Empty:
            return None
        self.next_sqn = max(self.next_sqn, piece.first + piece.count)
        return piece

    def close(self) -> None:
        """Let the thread end."""
        self._ends.set()

    def _run(self) -> None:
        try:
            self._read()
            end = self._wanted.end
            if end is not None:
                self._lose(end, self._wanted.cause)
        finally:
            self._is_done = True

    def _read(self) -> None:
        """Read until the range is complete, nothing can come any more, or nothing has come for too long."""
        end = NEVER if self._wanted.end is None else self._wanted.end
        progress_ns = time.monotonic_ns()
        tsi, epoch_us = tsi_text(self._wanted.tsi), self._wanted.epoch_ns // MICROSECOND
        while self._at < end and not self._ends.is_set():
            before = self._at
            held = [
                _Held(client, extent, self._local(extent.oldest), self._local(extent.next_sqn))
                for client, extent in self._services.extents(tsi, epoch_us)
            ]
            if self._wanted.needs_end and not any(one.extent.closed for one in held):
                return
            if held and min(one.oldest for one in held) >= end:
                return
            is_late = time.monotonic_ns() - progress_ns > self._patience_ns
            self._read_from(held, end, is_late=is_late)
            if self._at > before:
                progress_ns = time.monotonic_ns()
                continue
            if held and all(one.extent.closed for one in held):
                self._has_end = self._at >= max(one.end for one in held)
                return
            if is_late:
                return
            self._ends.wait(self._poll_s)

    def _local(self, sqn: int) -> int:
        return sqn - self._wanted.shift

    def _read_from(self, held: Sequence[_Held], end: int, *, is_late: bool) -> None:
        """Read on from the archive that has the next packets, or the earliest ones behind them.

        A loss that this archive recorded may be rows of another one. The read waits for an archive that is behind,
        unless it `is_late`.
        """
        useful = [one for one in held if one.end > self._at]
        if not useful:
            return
        best = min(useful, key=lambda one: (max(one.oldest, self._at), -one.end))
        others = [one for one in held if one is not best]
        if best.oldest > self._at and not is_late and not all(one.extent.closed for one in others):
            return  # another archive may be behind, and have what is before
        first, end = max(self._at, best.oldest), min(end, best.end)
        if first >= end:
            return
        extent, shift = best.extent, self._wanted.shift
        request = RangeRequest(extent.tsi, extent.epoch_us, first + shift, end + shift, node=extent.node, paced=True)
        try:
            for piece in best.client.rows(request):
                if self._ends.is_set() or not self._take(piece, others, is_late=is_late):
                    return
        except ArchiveError:
            return  # the service is busy or has gone, or retention was faster: what it holds now decides

    def _take(self, piece: ArchivedMessages | ArchivedLoss, others: Sequence[_Held], *, is_late: bool) -> bool:
        """Take rows of one archive. Return False if the others must be asked again first."""
        first, end = self._local(piece.first), self._local(piece.end)
        if end <= self._at:
            return True
        self._lose(first, self._wanted.cause)
        if isinstance(piece, ArchivedLoss):
            while self._at < end and any(one.oldest <= self._at < one.end for one in others):
                before = self._at
                self._read_from(others, end, is_late=True)
                if self._at == before:
                    return False
            if self._at < end and not is_late and any(one.end < end and not one.extent.closed for one in others):
                return False
            self._lose(end, _CAUSES.get(piece.cause, LossCause.RECORDER))
            return True
        self._put(PastMessages(self._wanted.tsi, first, end - first, self._convert(self._wanted, piece)))
        self._at = end
        return True

    def _lose(self, end: int, cause: LossCause) -> None:
        if end > self._at:
            self._put(Lost(self._wanted.tsi, self._at, end - self._at, cause))
            self._at = end

    def _put(self, piece: PastMessages | Lost) -> None:
        self.is_begun = True
        while not self._ends.is_set():
            try:
                self._pieces.put(piece, timeout=self._poll_s)
            except queue.Full:
                continue
            return


def _packed_items(wanted: PastRange, rows: ArchivedMessages) -> _Items:
    """Return messages that share packets."""
    sqns, counts = np.unique(rows.sqns, return_counts=True)
    return (PackedBatch(wanted.tsi, rows.columns, sqns - wanted.shift, counts),)


def _plain_items(wanted: PastRange, rows: ArchivedMessages) -> _Items:
    """Return messages of a packet each, or of several: runs of equal form together."""
    sizes, ends = rows.columns.sizes, rows.columns.ends
    cuts = np.flatnonzero((np.diff(sizes) != 0) | (np.diff(rows.counts) != 0)) + 1
    items = []
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(sizes)], strict=True):
        payloads = rows.columns.data[int(ends[first]) : int(ends[end])].reshape(end - first, int(sizes[first]))
        items.append(Batch(wanted.tsi, int(rows.sqns[first]) - wanted.shift, payloads, int(rows.counts[first])))
    return tuple(items)
