"""Reads an archive, also while it is written: what it holds, and ranges of it.

What is read is what was synced. Nothing is passed over in silence: a damaged segment, a range that was dropped, a session that is not there
are errors.
"""

from __future__ import annotations

import itertools
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
    """One archive, read by any number of threads."""

    def __init__(self, directory: Path) -> None:
        """Look through the archive. Raises `ArchiveError`, `SchemaTooNew`."""
        self.directory = directory
        self._lock = threading.Lock()
        self._index = Index()
        self._ends: dict[int, int] = {}  # segment -> octet up to which it was looked at
        self._sealed: set[int] = set()
        self._seen: CommitPoint | None = None
        self.damage: list[CorruptSegment] = []
        numbers_in(directory)
        self.refresh()

    def refresh(self, *, is_forced: bool = False) -> bool:
        """Take in what was written and dropped since, where the writer says that there is something, or `is_forced`; returns whether anything was. Raises `ArchiveError`."""
        with self._lock:
            committed = read_committed(self.directory)
            if committed is not None and committed == self._seen and not is_forced:
                return False
            self._seen = committed
            numbers = numbers_in(self.directory)
            for gone in [one for one in self._ends if one < (numbers[0] if numbers else 1 << 62)]:
                self._index.drop_segment(gone)
                del self._ends[gone]
                self._sealed.discard(gone)
            before = dict(self._ends)
            for number in numbers:
                if number not in self._sealed and (committed is None or number <= committed.segment):
                    self._look_into(number, committed)
            return self._ends != before

    def _look_into(self, number: int, committed: CommitPoint | None) -> None:
        try:
            file = SegmentFile(self.directory, number)
        except FileNotFoundError:
            return  # dropped this very moment
        with file:
            is_newest = committed is None or number == committed.segment
            limit = committed.offset if committed is not None and is_newest else file.octets
            start = self._ends.get(number, 0)
            try:
                file.read_head()
                self._ends[number], _ = scan(file, limit, self._index, start=start)
            except CorruptSegment as error:
                if committed is None and number == numbers_in(self.directory)[-1]:
                    return  # nobody says what was synced: a torn tail of the newest segment is none of a reader's business
                self.damage.append(error)
                self._ends[number] = limit
            if not is_newest:
                self._sealed.add(number)

    def holdings(self) -> list[SessionExtent]:
        """What is held of every session, by TSI and epoch."""
        with self._lock:
            return self._index.holdings()

    def session(self, tsi: str, epoch_us: int | None) -> SessionEntries:
        """The one session of a TSI, or that of an epoch. Raises `UnknownSession`, `BadRequest`."""
        with self._lock:
            found = [one for key, one in self._index.sessions.items() if key[0] == tsi and one.entries]
        if epoch_us is not None:
            found = [one for one in found if one.session.epoch_us == epoch_us]
        if not found:
            self._raise_damage()
            epoch = "" if epoch_us is None else f" with epoch_us {epoch_us}"
            raise UnknownSession(
                f"nothing is held of session {tsi}{epoch}",
                remedy="see what is held: pgm archive ls, or the action holdings",
            )
        if len(found) > 1:
            epochs = ", ".join(str(one.session.epoch_us) for one in found)
            raise BadRequest(f"there are several sessions of {tsi}", remedy=f"name one by its epoch_us: {epochs}")
        return found[0]

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
        """The first sqn that was received at that time or later; the next one if there is none yet."""
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
        """All sessions, or those of a TSI."""
        with self._lock:
            return [one for key, one in self._index.sessions.items() if tsi in (None, key[0]) and one.entries]

    def entries(self, session: SessionEntries, first: int) -> list[BatchEntry]:
        """The batches from `first` on, as many as there are now."""
        with self._lock:
            return list(session.reaching(first))


def dropped(tsi: str, first: int, oldest: int) -> RangeDropped:
    """The error of a range whose beginning is not held."""
    return RangeDropped(
        f"session {tsi} is held from sqn {oldest} on, not from {first}: oldest={oldest}",
        remedy="begin with what is held, or keep more: record_bytes, record_secs",
    )


@attrs.define(eq=False)
class RangeRead:
    """A range that is being read; iterate over it as often as more may have come. `at` is the sqn to go on from."""

    reader: ArchiveReader
    session: SessionEntries
    at: int
    end: int | None
    selection: RowSelection

    @property
    def schema(self) -> pa.Schema:
        """Of what it gives."""
        return self.selection.schema

    @property
    def is_over(self) -> bool:
        """Whether everything asked for was given."""
        return self.end is not None and self.at >= self.end

    def spots(self, most: int) -> list[tuple[int, int, int, int, int]]:
        """Where the first `most` batches of the range lie: segment, offset and octets, first sqn and the one behind the last."""
        entries = itertools.islice(self.reader.entries(self.session, self.at), most)
        return [
            (one.segment, one.offset, one.octets, one.first, one.end)
            for one in entries
            if self.end is None or one.first < self.end
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are there now. Raises `RangeDropped`, `CorruptSegment`."""
        file: SegmentFile | None = None
        try:
            for entry in self.reader.entries(self.session, self.at):
                if self.end is not None and entry.first >= self.end:
                    break
                self._check_gap(entry)
                if file is None or file.number != entry.segment:
                    if file is not None:
                        file.close()
                    file = self._file(entry)
                end = entry.end if self.end is None else min(entry.end, self.end)
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
                error.message, remedy=f"{error.remedy}; to go on behind it, first={entry.end}"
            ) from None

    def _file(self, entry: BatchEntry) -> SegmentFile:
        try:
            return SegmentFile(self.reader.directory, entry.segment)
        except FileNotFoundError:
            self.reader.refresh(is_forced=True)
            raise dropped(self.session.session.tsi, self.at, self.session.oldest) from None

    def _check_gap(self, entry: BatchEntry) -> None:
        """What comes next begins behind what was given: a segment is damaged, or gone."""
        if entry.first <= self.at:
            return
        if self.reader.damage:
            damage = self.reader.damage[0]
            raise CorruptSegment(damage.message, remedy=f"{damage.remedy}; to go on behind it, first={entry.first}")
        if self.session.oldest > self.at:
            raise dropped(self.session.session.tsi, self.at, self.session.oldest)
        raise ArchiveError(
            f"session {self.session.session.tsi} has no rows for the sqns {self.at} to {entry.first - 1}: a segment is missing",
            remedy=f"restore it, or begin with first={entry.first}",
        )
