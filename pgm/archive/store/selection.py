"""Selection of rows: stored batches cut to sqns, filtered by subject, as plain columns in the requested order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.errors import BadRequest
from pgm.archive.requests import RangeRequest
from pgm.archive.store.schema import ALL_NAMES, COLUMN_NAMES, STORED_SCHEMA, plain, served_schema
from pgm.archive.store.segment import BatchEntry
from pgm.archive.store.subject_filter import may_have

ANY_ENDING = "*"  # at the end of a subject


def check_columns(columns: Sequence[str] | None) -> None:
    """Raise `BadRequest` for unknown columns, or for columns named twice."""
    for name in columns or ():
        if name not in ALL_NAMES:
            raise BadRequest(f"rows have no column {name!r}", remedy=f"they have {', '.join(ALL_NAMES)}")
    if columns is not None and (len(set(columns)) < len(columns) or not columns):
        raise BadRequest(
            "columns are named twice, or none is", remedy="name each column once, or omit the key for all columns"
        )


class RowSelection:
    """Selection that one request applies to every batch."""

    def __init__(self, request: RangeRequest) -> None:
        check_columns(request.columns)
        self._columns = request.columns or COLUMN_NAMES
        self._subjects = request.subjects
        self._streams = request.streams
        self._received_us = (request.received_from_us, request.received_until_us)
        self._is_encoded = request.encoded and request.subjects is None  # Arrow cannot filter encoded columns
        self.schema: pa.Schema = served_schema(request.columns, is_encoded=self._is_encoded)

    def may_have(self, entry: BatchEntry) -> bool:
        """Return whether a batch may have rows that are wanted, by its description alone.

        A batch with losses may: losses come with all subjects, and a reader may fill them from a recorder that received
        the packets at another time.
        """
        if entry.has_losses:
            return True
        if self._streams is not None and entry.session.stream not in self._streams:
            return False
        low, high = self._received_us
        if (low is not None and entry.received_us[1] < low) or (high is not None and entry.received_us[0] >= high):
            return False
        return self._subjects is None or any(
            subject.endswith(ANY_ENDING) or may_have(entry.subjects, subject) for subject in self._subjects
        )

    def of(self, stored: pa.RecordBatch, first: int, end: int) -> pa.RecordBatch | None:
        """Return the rows and cut losses of a stored batch with `first <= sqn < end`, or None without any."""
        stored_columns = self._columns_of(stored, first, end)
        if stored_columns is None:
            return None
        served = {name: self._as_served(column, name) for name, column in stored_columns.items()}
        batch = pa.RecordBatch.from_arrays([served[name] for name in self._columns], schema=self.schema)
        if self._subjects is not None:
            batch = batch.filter(matching_subjects(self._subjects, served["subject"], served["lost"]))
        return batch if batch.num_rows else None

    def _columns_of(self, stored: pa.RecordBatch, first: int, end: int) -> dict[str, pa.Array] | None:
        """Return the needed columns, cut to the range; None if no row is in the range."""
        if stored.column("sqn")[0].as_py() >= first and end_of(stored) <= end:
            return {name: stored.column(name) for name in self._needed()}  # usually the whole batch
        sqns, counts = _numbers(stored.column("sqn")), _numbers(plain(stored.column("count")))
        low = int(np.searchsorted(sqns, first, "left"))
        if low and sqns[low - 1] + counts[low - 1] > first and not stored.column("value")[low - 1].is_valid:
            low -= 1  # a loss that extends into the range
        high = int(np.searchsorted(sqns, end, "left"))
        if high <= low:
            return None
        sqns, counts = sqns[low:high], counts[low:high]
        cut = self._cut(stored.column("value")[high - 1].is_valid, sqns, counts, first, end)
        return {name: cut.get(name, stored.column(name).slice(low, high - low)) for name in self._needed()}

    def _as_served(self, column: pa.Array, name: str) -> pa.Array:
        if not self._is_encoded:
            return plain(column)
        is_as_wanted = column.type == STORED_SCHEMA.field(name).type
        return column if is_as_wanted else pc.run_end_encode(column)  # counts of losses that were cut

    def _needed(self) -> tuple[str, ...]:
        """Return the names of the columns that this selection reads."""
        if self._subjects is None:
            return self._columns
        return (*self._columns, *(name for name in ("subject", "lost") if name not in self._columns))

    @staticmethod
    def _cut(
        last_is_message: bool, sqns: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], first: int, end: int
    ) -> dict[str, pa.Array]:
        """Return new columns if the first or last row is a loss that exceeds the range."""
        is_low = sqns[0] < first
        is_high = sqns[-1] + counts[-1] > end and not last_is_message
        if not is_low and not is_high:
            return {}
        sqns, counts = sqns.copy(), counts.copy()
        if is_low:
            counts[0] -= first - sqns[0]
            sqns[0] = first
        if is_high:
            counts[-1] = end - sqns[-1]
        return {"sqn": pa.array(sqns), "count": pa.array(counts)}


def matching_subjects(wanted: Sequence[str], subjects: pa.Array, lost: pa.Array) -> pa.Array:
    """Return which rows have one of the wanted subjects, or are losses. A final `*` matches any ending."""
    is_selected = pc.is_valid(lost)
    for subject in wanted:
        matches = (
            pc.starts_with(subjects, subject[:-1]) if subject.endswith(ANY_ENDING) else pc.equal(subjects, subject)
        )
        is_selected = pc.or_(is_selected, pc.fill_null(matches, False))
    return is_selected


def end_of(rows: pa.RecordBatch | pa.Table) -> int:
    """Return the sqn after the last packet of at least one row.

    Messages that share a packet have the `count` 0, except for the first of them. If subjects are selected, that first
    row may be missing. The packets then count as one. No row begins between that end and the right one.
    """
    sqns = _numbers(rows.column("sqn"))
    first_of_last = int(np.searchsorted(sqns, sqns[-1], "left"))
    return int(sqns[-1]) + max(1, int(rows.column("count")[first_of_last].as_py()))


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def received_us(stored: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the receive times of a stored batch's rows, microseconds since 1970."""
    return _numbers(plain(stored.column("received")).cast(pa.int64()))
