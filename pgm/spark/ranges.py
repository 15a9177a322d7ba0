"""Ranges of sqns: cut into partitions, assigned to services, read with failover."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from pgm.archive.errors import ArchiveError
from pgm.archive.requests import ACTION_FILES, RangeRequest
from pgm.archive.service.local_reads import read_file_ranges
from pgm.archive.store.schema import check_version, plain
from pgm.archive.store.selection import end_of
from pgm.archive.store.subject_filter import has_losses
from pgm.archive.tables.reading import read_files, read_table
from pgm.spark.errors import DataLoss, RecorderDown, RecorderRefused
from pgm.spark.filters import FilterBounds
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import BUSY, CORRUPT, DROPPED, RetrySchedule, ask, error_from, explained, open_range
from pgm.spark.sessions import ArchivedSession, SessionReplica

_log = logging.getLogger("pgm.spark")
_MAX_FILL = 16_384  # sqns of a loss that are requested from another recorder at once
_NEEDED = ("sqn", "count", "lost")  # for the next sqn, and for losses that another recorder may fill
_OLDEST = re.compile(r"\b(?:oldest|first)=(\d+)")


class RangePiece(InputPartition):
    """Partition: the sqns `first` to `end - 1` of one session, and its holders; those of all sqns come first."""

    def __init__(self, session: ArchivedSession, first: int, end: int, places: tuple[SessionReplica, ...]) -> None:
        super().__init__((session.key, first, end))
        self.session = session
        self.key = session.key
        self.tsi = session.tsi
        self.epoch_us = session.epoch_us
        self.first = first
        self.end = end
        self.places = places


@attrs.frozen
class SessionSpan:
    """Sqns of one session that a batch reads: `first` to `end - 1`."""

    session: ArchivedSession
    first: int
    end: int


def pieces_of(spans: list[SessionSpan], options: SourceOptions) -> list[RangePiece]:
    """Return the partitions of all spans.

    There are at least `minPartitions`, if there are that many sqns. A partition has at most about `maxPartitionBytes`.
    Raises `DataLoss`.
    """
    spans = [span for span in spans if span.end > span.first]
    total = sum(span.end - span.first for span in spans)
    pieces: list[RangePiece] = []
    for span in spans:
        sqns = span.end - span.first
        parts = max(
            1,
            -(-options.least_partitions * sqns // total),
            round(sqns * span.session.octets_each / options.partition_octets),
        )
        parts = min(parts, sqns)
        cuts = [span.first + sqns * at // parts for at in range(parts + 1)]
        for first, end in itertools.pairwise(cuts):
            pieces += _assign(span.session, first, end, options, len(pieces))
    return pieces


def _assign(
    session: ArchivedSession, first: int, end: int, options: SourceOptions, rotation: int
) -> Iterator[RangePiece]:
    """Cut a range where no place holds all of it; rotate among the places that do."""
    at = first
    while at < end:
        holders = [replica for replica in session.places if replica.oldest <= at < replica.next_sqn]
        holders = [replica for replica in holders if not replica.files] or holders  # a table has what recorders lack
        if not holders:
            later = [replica.oldest for replica in session.places if replica.oldest > at]
            to = min([*later, end])
            _lose(session.key, at, to, options, f"held from {min(later, default=session.next_sqn)} on")
            at = to
            continue
        to = min(end, max(replica.next_sqn for replica in holders))
        complete = [replica for replica in holders if replica.next_sqn >= to]
        start = rotation % len(complete)
        others = (replica for replica in session.places if replica not in complete)
        yield RangePiece(session, at, to, (*complete[start:], *complete[:start], *others))
        at = to


def _lose(key: str, first: int, end: int, options: SourceOptions, why: str) -> None:
    """Raise `DataLoss`, or log the loss and continue."""
    if options.fail_on_loss:
        raise DataLoss(
            f"session {key}: the sqns {first} to {end - 1} are not available: {why}",
            remedy="restore them, keep more (record_bytes, record_secs), or continue without them: failOnDataLoss = false",
        )
    _log.warning("session %s continues without the sqns %d to %d: %s", key, first, end - 1, why)


class RangeReader:
    """Reader of one partition. After a failure, the next place continues at the same sqn."""

    def __init__(self, piece: RangePiece, options: SourceOptions) -> None:
        self._piece = piece
        self._options = options
        self._at = piece.first
        self._subjects = options.bounds.subjects if options.subjects is None else options.subjects
        self._columns = options.columns + tuple(name for name in _NEEDED if name not in options.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns. Raises `DataLoss`, `RecorderDown`, `RecorderRefused`, `SchemaTooNew`."""
        retry = RetrySchedule(self._options.retry_s)
        while self._at < self._piece.end:
            problems: dict[str, RecorderDown | RecorderRefused] = {}
            for place in self._holders(self._at, self._piece.end):
                try:
                    for batch in self._read(place):
                        retry = RetrySchedule(self._options.retry_s)
                        yield batch
                    self._at = self._piece.end
                    return
                except (pa.ArrowException, OSError) as error:
                    problems[f"{place.location} {place.node}"] = error_from(place.location, error)
            self._handle_failure(problems, retry)

    def _holders(self, first: int, end: int) -> list[SessionReplica]:
        """Return the places that hold all of a range, in order of preference."""
        return [replica for replica in self._piece.places if replica.oldest <= first and end <= replica.next_sqn]

    def _read(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield the rows from `_at` on: from a table, or from visible files, else from the service."""
        if place.files:
            yield from self._finish(self._from_table(place), place)
            return
        if self._options.local_files:
            yield from self._finish(self._from_files(place), place)
        if self._at < self._piece.end:
            yield from self._finish(self._from_service(place), place)

    def _finish(self, batches: Iterator[pa.RecordBatch], place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield batches as Spark needs them, with losses filled; update `_at`."""
        names = list(self._options.columns)
        for batch in batches:
            for part in self._fill_losses(batch, place):
                yield pa.RecordBatch.from_arrays([plain(part.column(name)) for name in names], names)
            self._at = end_of(batch)

    def _from_files(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield the rows of visible files that match the service's description. Without such files, yield nothing."""
        request = attrs.evolve(self._request(place, self._at), encoded=True)
        try:
            while self._at < self._piece.end:
                at = attrs.evolve(request, first=self._at)
                answer = ask(self._options, place.location, ACTION_FILES, json.loads(at.to_bytes()))
                behind = answer["next_sqn"]
                if behind <= self._at:
                    return
                yield from read_file_ranges(answer, at, self._at, self._piece.end)
                self._at = min(behind, self._piece.end)
        except (RecorderRefused, RecorderDown, ArchiveError, OSError, KeyError, TypeError) as error:
            _log.debug("%s is read through its service: %s", place.location, error)

    def _from_table(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table. Raises `pa.ArrowException`."""
        request = attrs.evolve(self._request(place, self._at), columns=self._columns)
        try:
            try:
                yield from read_files(place.files, request, self._at, self._piece.end)
            except FileNotFoundError:  # merged meanwhile, before any row was yielded
                files = read_table(Path(place.location)).files
                yield from read_files(files, request, self._at, self._piece.end)
        except (pa.ArrowException, OSError, ArchiveError) as error:
            raise pa.ArrowException(f"{CORRUPT}: {place.location}: {error}") from None

    def _from_service(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the service sends. Raises `pa.ArrowException`, OSError."""
        request = attrs.evolve(self._request(place, self._at), encoded=True)
        reader = open_range(self._options, place.location, request.to_bytes())
        try:
            check_version(reader.schema, place.location)
            while self._at < self._piece.end:
                try:
                    batch = reader.read_chunk().data
                except StopIteration:
                    return
                if batch.num_rows:
                    yield batch
        finally:
            reader.cancel()

    def _request(self, place: SessionReplica, first: int, end: int | None = None) -> RangeRequest:
        return RangeRequest(
            self._piece.tsi,
            epoch_us=self._piece.epoch_us,
            first=first,
            end=self._piece.end if end is None else end,
            columns=self._columns,
            subjects=self._subjects,
            node=place.node,
            **self._options.bounds.of_batches,
        )

    # Losses of one recorder, filled from another

    def _fill_losses(self, batch: pa.RecordBatch, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield a batch with its losses replaced by rows of other places."""
        if len(self._piece.places) == 1 or not has_losses(batch):
            yield batch
            return
        batch = pa.RecordBatch.from_arrays([plain(column) for column in batch.columns], batch.schema.names)
        lost = batch.column("lost")
        done = 0
        for row in pc.indices_nonzero(pc.is_valid(lost)).to_pylist():
            if row > done:
                yield batch.slice(done, row - done)
            yield from self._fill_loss(batch.slice(row, 1), place)
            done = row + 1
        if done < batch.num_rows:
            yield batch.slice(done)

    def _fill_loss(self, loss: pa.RecordBatch, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a loss that another place has, in bounded parts, and rows of loss for the others."""
        first: int = loss.column("sqn")[0].as_py()
        end = first + loss.column("count")[0].as_py()
        lost_from = first
        for at in range(first, end, _MAX_FILL):
            to = min(at + _MAX_FILL, end)
            filled = self._from_others(
                [one for one in self._holders(at, to) if one.node != place.node and not one.files], at, to
            )
            if filled is None:
                continue
            if at > lost_from:
                yield _cut(loss, lost_from, at)
            yield from filled
            lost_from = to
        if end > lost_from:
            yield _cut(loss, lost_from, end)

    def _from_others(self, others: list[SessionReplica], first: int, end: int) -> list[pa.RecordBatch] | None:
        """Return the rows of a range from the place that lacks the fewest of its sqns.

        None means that no place has any of them. A message of several packets belongs to the range with its first
        packet. Missing sqns before the first row are the rest of an earlier range's message. The last message may end
        beyond the range.
        """
        least, best = end - first, None
        for place in others:
            request = attrs.evolve(self._request(place, first, end), subjects=None, **FilterBounds().of_batches)
            try:
                table = open_range(self._options, place.location, request.to_bytes()).read_all()
                lost = pc.sum(table.filter(pc.is_valid(table["lost"]))["count"]).as_py() or 0
                if lost < least and (not table.num_rows or _is_complete(table, end)):
                    least, best = lost, self._filter_subjects(place, first, end, table).to_batches()
            except (pa.ArrowException, OSError) as error:
                _log.warning(
                    "a loss of session %s is not filled: %s", self._piece.key, error_from(place.location, error).message
                )
            if not least:
                break
        return best

    def _filter_subjects(self, place: SessionReplica, first: int, end: int, table: pa.Table) -> pa.Table:
        """Return the rows of the chosen subjects, filtered by the service."""
        if self._subjects is None:
            return table
        request = self._request(place, first, end).to_bytes()
        return open_range(self._options, place.location, request).read_all()

    # Failures

    def _handle_failure(self, problems: dict[str, RecorderDown | RecorderRefused], retry: RetrySchedule) -> None:
        """Wait, continue after the missing rows, or raise, when no place gave the rest."""
        messages = "; ".join(error.message for error in problems.values())
        if any(isinstance(error, RecorderDown) or error.service_code == BUSY for error in problems.values()):
            if retry.wait():
                return
            error = self._reason(problems)
            raise type(error)(
                f"session {self._piece.key} from sqn {self._at} on cannot be read: {error.message}", remedy=error.remedy
            )
        first = next(iter(problems.values()))
        if not isinstance(first, RecorderRefused) or first.service_code not in (DROPPED, CORRUPT, "PGM-ARCHIVE"):
            raise first
        resume_sqns = [int(match[1]) for error in problems.values() if (match := _OLDEST.search(error.message))]
        to = min([sqn for sqn in resume_sqns if sqn > self._at], default=self._piece.end)
        to = min(to, self._piece.end)
        _lose(self._piece.key, self._at, to, self._options, messages)
        self._at = to

    def _reason(self, problems: dict[str, RecorderDown | RecorderRefused]) -> RecorderDown:
        """Return why a place does not answer, or that all are busy."""
        for name, error in problems.items():
            if isinstance(error, RecorderDown):
                return explained(self._options, name.partition(" ")[0], error)
        first = next(iter(problems.values()))
        return RecorderDown(first.message, remedy=first.remedy)


def _is_complete(rows: pa.Table, end: int) -> bool:
    """Return whether rows of all subjects have every sqn up to `end - 1`. The first sqn is that of the first row."""
    end_sqn = end_of(rows)
    return bool(end_sqn >= end and pc.sum(rows["count"]).as_py() == end_sqn - rows["sqn"][0].as_py())


def _cut(loss: pa.RecordBatch, first: int, end: int) -> pa.RecordBatch:
    for name, value in (("sqn", first), ("count", end - first)):
        at = loss.schema.get_field_index(name)
        loss = loss.set_column(at, loss.schema.field(at), pa.array([value], pa.int64()))
    return loss
