"""Reader of an archive, also while the archive is written: holdings and ranges.

Only synced batches are read. A damaged segment, a dropped range and an unknown session are errors, never silently
skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.errors import ArchiveError, BadRequest, CorruptSegment, RangeDropped, UnknownSession
from pgm.archive.requests import RangeRequest, SessionExtent
from pgm.archive.store.committed import CommitPoint, read_committed
from pgm.archive.store.index import Index, SessionEntries
from pgm.archive.store.recovery import scan
from pgm.archive.store.segment import BatchEntry, SegmentFile, numbers_in
from pgm.archive.store.selection import RowSelection, received_us


class ArchiveReader:
    """Reader of one archive, for any number of threads."""

    def __init__(self, directory: Path) -> None:
        """Read the index of the archive. Raises `ArchiveError`, `SchemaTooNew`."""
        self.directory = directory
        self._lock = threading.Lock()
        self._index = Index()
        self._ends: dict[int, int] = {}  # segment -> octet up to which the segment was scanned
        self._sealed: set[int] = set()
        self._last_seen: CommitPoint | None = None
        self.damage: list[CorruptSegment] = []
        numbers_in(directory)
        self.refresh()

    def refresh(self, *, is_forced: bool = False) -> bool:
        """Read the changes since the last call; return whether there were any.

        The files are read if the writer recorded a new extent, or if `is_forced`. Raises `ArchiveError`.
        """
        with self._lock:
            committed = read_committed(self.directory)
            if committed is not None and committed == self._last_seen and not is_forced:
                return False
            self._last_seen = committed
            numbers = numbers_in(self.directory)
            for dropped_number in [number for number in self._ends if number < (numbers[0] if numbers else 1 << 62)]:
                self._index.drop_segment(dropped_number)
                del self._ends[dropped_number]
                self._sealed.discard(dropped_number)
            before = dict(self._ends)
            for number in numbers:
                if number not in self._sealed and (committed is None or number <= committed.segment):
                    self._scan_segment(number, committed)
            return self._ends != before

    def _scan_segment(self, number: int, committed: CommitPoint | None) -> None:
        try:
            file = SegmentFile(self.directory, number)
        except FileNotFoundError:
            return  # the segment was dropped just now
        with file:
            is_newest = committed is None or number == committed.segment
            limit = committed.offset if committed is not None and is_newest else file.octets
            start = self._ends.get(number, 0)
            try:
                file.read_head()
                self._ends[number], _ = scan(file, limit, self._index, start=start)
            except CorruptSegment as error:
                if committed is None and number == numbers_in(self.directory)[-1]:
                    return  # without a recorded extent, a torn tail of the newest segment is no damage
                self.damage.append(error)
                self._ends[number] = limit
            if not is_newest:
                self._sealed.add(number)

    def holdings(self) -> list[SessionExtent]:
        """Return the extent of every session, by TSI and epoch."""
        with self._lock:
            return self._index.holdings()

    def session(self, tsi: str, epoch_us: int | None) -> SessionEntries:
        """Return the only session of a TSI, or that of an epoch. Raises `UnknownSession`, `BadRequest`."""
        with self._lock:
            candidates = [entries for key, entries in self._index.sessions.items() if key[0] == tsi and entries.entries]
        if epoch_us is not None:
            candidates = [entries for entries in candidates if entries.session.epoch_us == epoch_us]
        if not candidates:
            self._raise_damage()
            epoch = "" if epoch_us is None else f" with epoch_us {epoch_us}"
            raise UnknownSession(
                f"nothing is held of session {tsi}{epoch}",
                remedy="list the sessions with pgm archive ls, or the action holdings",
            )
        if len(candidates) > 1:
            epochs = ", ".join(str(entries.session.epoch_us) for entries in candidates)
            raise BadRequest(f"there are several sessions of {tsi}", remedy=f"select one by its epoch_us: {epochs}")
        return candidates[0]

    def _raise_damage(self) -> None:
        if self.damage:
            raise self.damage[0]

    def read(self, request: RangeRequest) -> RangeRead:
        """Prepare to read a range. Raises `RangeDropped`, `UnknownSession`, `BadRequest`."""
        session = self.session(request.tsi, request.epoch_us)
        with self._lock:
            oldest, next_sqn = session.oldest, session.next_sqn
        first = oldest if request.first is None else request.first
        if first < oldest:
            self._raise_damage()
            raise dropped(request.tsi, first, oldest)
        end = request.end
        if end is None and not request.tail:
            end = next_sqn
        return RangeRead(self, session, first, end, RowSelection(request))

    def sqn_at(self, session: SessionEntries, time_us: int) -> int:
        """Return the first sqn received at `time_us` or later; else the next sqn to come."""
        with self._lock:
            entries = list(session.entries)
        for entry in entries:
            if entry.received_us[1] >= time_us:
                with SegmentFile(self.directory, entry.segment) as file:
                    stored = file.batch_of(entry)
                at = int(np.searchsorted(received_us(stored), time_us, "left"))
                return int(stored.column("sqn")[min(at, entry.rows - 1)].as_py())
        return session.next_sqn

    def sessions(self, tsi: str | None = None) -> list[SessionEntries]:
        """Return all sessions, or those of a TSI."""
        with self._lock:
            return [
                entries for key, entries in self._index.sessions.items() if tsi in (None, key[0]) and entries.entries
            ]

    def entries(self, session: SessionEntries, first: int) -> list[BatchEntry]:
        """Return the present batches from `first` on."""
        with self._lock:
            return list(session.reaching(first))


def dropped(tsi: str, first: int, oldest: int) -> RangeDropped:
    """Return the error of a range whose beginning is not held."""
    return RangeDropped(
        f"session {tsi} is held from sqn {oldest} on, not from {first}: oldest={oldest}",
        remedy="begin with the oldest row held, or keep more: record_bytes, record_secs",
    )


@attrs.define(eq=False)
class RangeRead:
    """Range that is being read. Iterate again whenever more rows may have come. `at` is the sqn to continue from.

    `read_octets` counts the batches that were read or told, and `skipped_octets` those that cannot have wanted rows.
    """

    reader: ArchiveReader
    session: SessionEntries
    at: int
    end: int | None
    selection: RowSelection
    read_octets: int = 0
    skipped_octets: int = 0

    @property
    def schema(self) -> pa.Schema:
        """Schema of the yielded batches."""
        return self.selection.schema

    @property
    def is_over(self) -> bool:
        """Whether all requested rows were yielded."""
        return self.end is not None and self.at >= self.end

    def spots(self, most: int) -> list[tuple[int, int, int, int, int]]:
        """Return the next `most` batches of the range as segment, offset, octets, first sqn, end sqn.

        `at` is behind them afterwards, and behind batches passed over. Raises `ArchiveError` for a gap, also in front of a
        batch that is passed over.
        """
        found: list[tuple[int, int, int, int, int]] = []
        for entry in self.reader.entries(self.session, self.at):
            if len(found) == most or self.is_over:
                break
            self._check_gap(entry)
            self.at = max(self.at, entry.end)
            if self.selection.may_have(entry):
                self.read_octets += entry.octets
                found.append((entry.segment, entry.offset, entry.octets, entry.first, entry.end))
            else:
                self.skipped_octets += entry.octets
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are there now. Raises `RangeDropped`, `CorruptSegment`."""
        file: SegmentFile | None = None
        try:
            for entry in self.reader.entries(self.session, self.at):
                if self.is_over:
                    break
                self._check_gap(entry)
                end = entry.end if self.end is None else min(entry.end, self.end)
                if not self.selection.may_have(entry):
                    self.at = max(self.at, end)
                    self.skipped_octets += entry.octets
                    continue
                self.read_octets += entry.octets
                if file is None or file.number != entry.segment:
                    if file is not None:
                        file.close()
                    file = self._file(entry)
                batch = self.selection.of(self._stored(file, entry), self.at, end)
                self.at = max(self.at, end)
                if batch is not None:
                    yield batch
        finally:
            if file is not None:
                file.close()

    @staticmethod
    def _stored(file: SegmentFile, entry: BatchEntry) -> pa.RecordBatch:
        try:
            return file.batch_of(entry)
        except CorruptSegment as error:
            raise CorruptSegment(
                error.message, remedy=f"{error.remedy}; to continue after it, first={entry.end}"
            ) from None

    def _file(self, entry: BatchEntry) -> SegmentFile:
        try:
            return SegmentFile(self.reader.directory, entry.segment)
        except FileNotFoundError:
            self.reader.refresh(is_forced=True)
            raise dropped(self.session.session.tsi, self.at, self.session.oldest) from None

    def _check_gap(self, entry: BatchEntry) -> None:
        """Raise the reason if the next batch leaves a gap: a segment is damaged or gone."""
        if entry.first <= self.at:
            return
        if self.reader.damage:
            damage = self.reader.damage[0]
            raise CorruptSegment(damage.message, remedy=f"{damage.remedy}; to continue after it, first={entry.first}")
        if self.session.oldest > self.at:
            raise dropped(self.session.session.tsi, self.at, self.session.oldest)
        raise ArchiveError(
            f"session {self.session.session.tsi} has no rows for the sqns {self.at} to {entry.first - 1}: a segment is missing",
            remedy=f"restore it, or begin with first={entry.first}",
        )
