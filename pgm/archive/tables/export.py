"""Export of archives into a table: what the table lacks, in commits of bounded size.

The table itself has the progress. A killed export therefore goes on where its last commit ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.errors import ArchiveError, RowsMissing
from pgm.archive.requests import RangeRequest, SessionExtent, session_key
from pgm.archive.service.collection import Archives
from pgm.archive.session import COMPANIONS, RecordedSession
from pgm.archive.store.index import SessionEntries
from pgm.archive.store.reader import ArchiveReader, RangeRead
from pgm.archive.store.schema import SCHEMA
from pgm.archive.store.segment import BatchEntry
from pgm.archive.store.selection import RowSelection
from pgm.archive.tables.files import write_files
from pgm.archive.tables.state import TableState, extents_of
from pgm.archive.tables.store import TableStore
from pgm.parameters import Parameters

LOST_CAUSE = "archive"  # of rows that the archive no longer had


@attrs.define
class ExportTotals:
    """Totals of an export so far. `missing` counts packets that the archive no longer had."""

    rows: int = 0
    packets: int = 0
    octets: int = 0
    commits: int = 0
    files: int = 0
    missing: int = 0


class Export:
    """One pass over all sessions of messages of archives."""

    def __init__(
        self,
        store: TableStore,
        parameters: Parameters,
        *,
        may_miss: bool = False,
        on_commit: Callable[[ExportTotals], None] = lambda _: None,
    ) -> None:
        """`may_miss`: write rows that the archive no longer has as a loss, instead of an error."""
        self._store = store
        self._most = parameters.table_commit_bytes
        self._may_miss = may_miss
        self._on_commit = on_commit
        self._state = store.content().state
        self._held: list[pa.RecordBatch] = []
        self._held_octets = 0
        self._sessions: dict[str, RecordedSession] = {}
        self._closed: dict[str, int] = {}  # end of each session that has ended
        self.totals = ExportTotals()

    def run(self, archives: Archives) -> ExportTotals:
        """Commit the rows that the archives hold now and the table lacks. Raises `ArchiveError`."""
        for reader, session in archives.sessions():
            if session.session.kind not in COMPANIONS:
                self._take(reader, session)
        self._commit()
        return self.totals

    def _take(self, reader: ArchiveReader, session: SessionEntries) -> None:
        named = session.session
        key = session_key(named.tsi, named.epoch_us, named.node, each_copy=True)
        if key in self._sessions:  # a directory may have a copy of an archive: its rows count once
            self._commit()
        self._sessions[key] = named
        known = self._state.next_sqn(key)
        end = session.next_sqn
        if session.closed:
            self._closed[key] = end
        at = session.oldest if known is None else known
        while at < end:
            read = RangeRead(reader, session, at, end, RowSelection(RangeRequest(named.tsi)))
            try:
                for batch in read.batches():
                    self._add(batch)
                return
            except ArchiveError as error:
                at = self._pass_over(reader, session, read.at, error)

    def _add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._held_octets += batch.nbytes
        if self._held_octets >= self._most:
            self._commit()

    def _pass_over(self, reader: ArchiveReader, session: SessionEntries, at: int, error: ArchiveError) -> int:
        """Add the loss of rows that cannot be read; return the sqn behind them. Raises `RowsMissing`."""
        named = session.session
        entry = _readable_after(reader, session, at)
        to, received_us = (
            (session.next_sqn, session.received_us) if entry is None else (entry.first, entry.received_us[0])
        )
        if not self._may_miss:
            raise RowsMissing(
                f"session {named.tsi} of {named.node} cannot be exported from sqn {at} on: {error.message}",
                remedy=f"restore the rows up to sqn {to - 1}, or write them as a loss: --missing loss",
            )
        self.totals.missing += to - at
        self._add(_loss(named, at, to, received_us))
        return to

    def _commit(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held, SCHEMA)
        self._held, self._held_octets = [], 0
        files = write_files(rows, self._store.folder)
        state = self._state.with_rows(self._completed(one) for one in extents_of(rows))
        self._store.commit(state, files)
        self._state = state
        self.totals.rows += rows.num_rows
        self.totals.packets += pc.sum(rows["count"]).as_py()
        self.totals.octets += rows.nbytes
        self.totals.commits += 1
        self.totals.files += len(files)
        self._on_commit(self.totals)

    def _completed(self, extent: SessionExtent) -> SessionExtent:
        """Return an extent with what the archive knows of its session beyond the rows."""
        key = extent.key(each_copy=True)
        is_closed = self._closed.get(key) == extent.next_sqn
        return attrs.evolve(extent, kind=self._sessions[key].kind, closed=is_closed)


def _readable_after(reader: ArchiveReader, session: SessionEntries, at: int) -> BatchEntry | None:
    """Return the first batch that begins after `at` behind the batch with `at`, which cannot be read."""
    return next((entry for entry in reader.entries(session, at) if entry.first > at), None)


def _loss(named: RecordedSession, first: int, end: int, received_us: int) -> pa.RecordBatch:
    """Return the row of packets that the archive no longer has."""
    values = {
        "tsi": named.tsi,
        "stream": named.stream,
        "source": named.source,
        "node": named.node,
        "segment": named.segment,
        "epoch": named.epoch_us,
        "sqn": first,
        "count": end - first,
        "index": 0,
        "received": received_us,
        "repaired": False,
        "lost": LOST_CAUSE,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(field.name)], field.type) for field in SCHEMA], schema=SCHEMA
    )


def lacking(archives: Archives, state: TableState) -> Iterator[tuple[SessionExtent, int]]:
    """Yield the sessions of messages of which a table lacks rows, and how many of their sqns."""
    for extent in archives.holdings():
        if extent.kind not in COMPANIONS:
            known = state.next_sqn(extent.key(each_copy=True))
            count = extent.next_sqn - (extent.oldest if known is None else known)
            if count > 0:
                yield extent, count
