"""Ranges of sqns: cut into partitions, given to the services that have them, and read with failover."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from pgm.archive.errors import ArchiveError
from pgm.archive.requests import ACTION_FILES, RangeRequest
from pgm.archive.service.local_reads import read_file_ranges
from pgm.archive.store.schema import check_version, plain
from pgm.archive.store.selection import end_of
from pgm.spark.errors import DataLoss, RecorderDown, RecorderRefused
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import BUSY, CORRUPT, DROPPED, RetrySchedule, ask, open_range, told_by
from pgm.spark.sessions import ArchivedSession, SessionReplica

_log = logging.getLogger("pgm.spark")
_MOST_MENDED = 16_384  # sqns of a loss that are asked of another recorder at once
_NEEDED = ("sqn", "count", "lost")  # to know where to go on, and what another one may have
_OLDEST = re.compile(r"\b(?:oldest|first)=(\d+)")


class RangePiece(InputPartition):
    """The sqns `first` to `end` - 1 of one session, and who holds the session: first those who have all of them."""

    def __init__(self, session: ArchivedSession, first: int, end: int, places: tuple[SessionReplica, ...]) -> None:
        super().__init__((session.key, first, end))
        self.key = session.key
        self.tsi = session.tsi
        self.epoch_us = session.epoch_us
        self.first = first
        self.end = end
        self.places = places


@attrs.frozen
class SessionSpan:
    """What a batch reads of one session."""

    session: ArchivedSession
    first: int
    end: int


def pieces_of(spans: list[SessionSpan], options: SourceOptions) -> list[RangePiece]:
    """Partitions: at least `minPartitions` where there are so many sqns, each of about `maxPartitionBytes` at most. Raises `DataLoss`."""
    spans = [one for one in spans if one.end > one.first]
    total = sum(one.end - one.first for one in spans)
    found: list[RangePiece] = []
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
            found += _placed(span.session, first, end, options, len(found))
    return found


def _placed(session: ArchivedSession, first: int, end: int, options: SourceOptions, turn: int) -> Iterator[RangePiece]:
    """Cut where nobody has all of it; take turns among those who have."""
    at = first
    while at < end:
        having = [one for one in session.places if one.oldest <= at < one.next_sqn]
        if not having:
            later = [one.oldest for one in session.places if one.oldest > at]
            to = min([*later, end])
            _lose(session.key, at, to, options, f"held from {min(later, default=session.next_sqn)} on")
            at = to
            continue
        to = min(end, max(one.next_sqn for one in having))
        whole = [one for one in having if one.next_sqn >= to]
        start = turn % len(whole)
        rest = (one for one in session.places if one not in whole)
        yield RangePiece(session, at, to, (*whole[start:], *whole[:start], *rest))
        at = to


def _lose(key: str, first: int, end: int, options: SourceOptions, why: str) -> None:
    """Raise `DataLoss`, or say so and go on."""
    if options.fail_on_loss:
        raise DataLoss(
            f"session {key}: the sqns {first} to {end - 1} are asked for and cannot be had: {why}",
            remedy="restore them, keep more (record_bytes, record_secs), or go on without them: failOnDataLoss = false",
        )
    _log.warning("session %s goes on without the sqns %d to %d: %s", key, first, end - 1, why)


class RangeReader:
    """Reads one piece: from the first place that has it, from the next where that one fails, and goes on where it was."""

    def __init__(self, piece: RangePiece, options: SourceOptions) -> None:
        self._piece = piece
        self._options = options
        self._at = piece.first
        self._columns = options.columns + tuple(name for name in _NEEDED if name not in options.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches of the columns asked for. Raises `DataLoss`, `RecorderDown`, `RecorderRefused`, `SchemaTooNew`."""
        patience = RetrySchedule(self._options.retry_s)
        while self._at < self._piece.end:
            problems: dict[str, RecorderDown | RecorderRefused] = {}
            for place in self._having(self._at, self._piece.end):
                try:
                    for batch in self._read(place):
                        patience = RetrySchedule(self._options.retry_s)
                        yield batch
                    self._at = self._piece.end
                    return
                except (pa.ArrowException, OSError) as error:
                    problems[f"{place.location} {place.node}"] = told_by(place.location, error)
            self._after(problems, patience)

    def _having(self, first: int, end: int) -> list[SessionReplica]:
        """Who has all of a range, best first."""
        return [one for one in self._piece.places if one.oldest <= first and end <= one.next_sqn]

    def _read(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """The rows from `_at` on: from the files where this process sees them, else from the service."""
        if self._options.local_files:
            yield from self._given(self._in_files(place), place)
        if self._at < self._piece.end:
            yield from self._given(self._sent(place), place)

    def _given(self, batches: Iterator[pa.RecordBatch], place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """Batches as Spark wants them, mended; keeps `_at`."""
        names = list(self._options.columns)
        for batch in batches:
            for part in self._filled(batch, place):
                yield pa.RecordBatch.from_arrays([plain(part.column(name)) for name in names], names)
            self._at = end_of(batch)

    def _in_files(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """As far as there are files here that are what the service says of them; nothing where there are none."""
        request = attrs.evolve(self._request(place, self._at), encoded=True)
        try:
            while self._at < self._piece.end:
                at = attrs.evolve(request, first=self._at)
                told = ask(self._options, place.location, ACTION_FILES, json.loads(at.to_bytes()))
                if not told["spots"]:
                    return
                yield from read_file_ranges(told, at, self._at, self._piece.end)
                self._at = min(told["spots"][-1][-1], self._piece.end)
        except (RecorderRefused, RecorderDown, ArchiveError, OSError, KeyError, TypeError) as error:
            _log.debug("%s is read through its service: %s", place.location, error)

    def _sent(self, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """What the service sends. Raises `pa.ArrowException`, OSError."""
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
            subjects=self._options.subjects,
            node=place.node,
        )

    # What one recorder lost, another may have

    def _filled(self, batch: pa.RecordBatch, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """The batch, its losses replaced by what another place has of them."""
        lost = batch.column("lost")
        if len(self._piece.places) == 1 or _is_all_null(lost):
            yield batch
            return
        batch = pa.RecordBatch.from_arrays([plain(column) for column in batch.columns], batch.schema.names)
        lost = batch.column("lost")
        done = 0
        for row in pc.indices_nonzero(pc.is_valid(lost)).to_pylist():
            if row > done:
                yield batch.slice(done, row - done)
            yield from self._mended(batch.slice(row, 1), place)
            done = row + 1
        if done < batch.num_rows:
            yield batch.slice(done)

    def _mended(self, loss: pa.RecordBatch, place: SessionReplica) -> Iterator[pa.RecordBatch]:
        """A loss, a bounded part at a time: what another place has of it, or the row of the loss, cut to what is lost."""
        first: int = loss.column("sqn")[0].as_py()
        end = first + loss.column("count")[0].as_py()
        lost_from = first
        for at in range(first, end, _MOST_MENDED):
            to = min(at + _MOST_MENDED, end)
            found = self._from_others([one for one in self._having(at, to) if one.node != place.node], at, to)
            if found is None:
                continue
            if at > lost_from:
                yield _cut(loss, lost_from, at)
            yield from found
            lost_from = to
        if end > lost_from:
            yield _cut(loss, lost_from, end)

    def _from_others(self, others: list[SessionReplica], first: int, end: int) -> list[pa.RecordBatch] | None:
        """Return the rows that begin in a range, of the place that lacks the fewest of its sqns; None if nobody has any.

        A message of several packets belongs to the range that has its first packet. Sqns that are missing before the first row
        are the rest of an earlier range's message. The last message may end beyond the range.
        """
        least, best = end - first, None
        for place in others:
            request = attrs.evolve(self._request(place, first, end), subjects=None)
            try:
                table = open_range(self._options, place.location, request.to_bytes()).read_all()
                lost = pc.sum(table.filter(pc.is_valid(table["lost"]))["count"]).as_py() or 0
                if lost < least and (not table.num_rows or _is_whole(table, end)):
                    least, best = lost, self._chosen(place, first, end, table).to_batches()
            except (pa.ArrowException, OSError) as error:
                _log.warning("what is lost of session %s: %s", self._piece.key, told_by(place.location, error).message)
            if not least:
                break
        return best

    def _chosen(self, place: SessionReplica, first: int, end: int, table: pa.Table) -> pa.Table:
        """With subjects: what the service chooses of them."""
        if self._options.subjects is None:
            return table
        request = self._request(place, first, end).to_bytes()
        return open_range(self._options, place.location, request).read_all()

    # What can go wrong

    def _after(self, problems: dict[str, RecorderDown | RecorderRefused], patience: RetrySchedule) -> None:
        """Nobody has given the rest: wait, go on behind it, or raise."""
        all_told = "; ".join(error.message for error in problems.values())
        if any(isinstance(error, RecorderDown) or error.told == BUSY for error in problems.values()):
            if patience.wait():
                return
            raise RecorderDown(
                f"session {self._piece.key} from sqn {self._at} on cannot be read: {all_told}",
                remedy=next(iter(problems.values())).remedy,
            )
        first = next(iter(problems.values()))
        if not isinstance(first, RecorderRefused) or first.told not in (DROPPED, CORRUPT, "PGM-ARCHIVE"):
            raise RecorderRefused(all_told, told=getattr(first, "told", ""), remedy=first.remedy)
        found = [int(one[1]) for error in problems.values() if (one := _OLDEST.search(error.message))]
        to = min([one for one in found if one > self._at], default=self._piece.end)
        to = min(to, self._piece.end)
        _lose(self._piece.key, self._at, to, self._options, all_told)
        self._at = to


def _is_all_null(column: pa.Array) -> bool:
    values = column.values if pa.types.is_run_end_encoded(column.type) else column
    return bool(values.null_count == len(values))


def _is_whole(rows: pa.Table, end: int) -> bool:
    """Return whether rows of all subjects have every sqn from their first to `end` - 1."""
    behind = end_of(rows)
    return bool(behind >= end and pc.sum(rows["count"]).as_py() == behind - rows["sqn"][0].as_py())


def _cut(loss: pa.RecordBatch, first: int, end: int) -> pa.RecordBatch:
    """The row of a loss, made to speak of a part of it."""
    for name, value in (("sqn", first), ("count", end - first)):
        at = loss.schema.get_field_index(name)
        loss = loss.set_column(at, loss.schema.field(at), pa.array([value], pa.int64()))
    return loss
