"""Telemetry in memory: columns as numpy arrays, texts as codes in their order, and groups of rows.

A code is the place of a text among the sorted texts of its column. Rows that are grouped by codes thus come in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import ProcessError, UsageError
from pgm.figures.rules import SAME_SQNS_S
from pgm.telemetry.events import arrow_schema
from pgm.telemetry.schema import COLUMNS, KINDS

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HAS_VALUE = "has_value"  # column: whether `value_us` is a number
_SECOND_US = 1_000_000
_MOST_KEYS = 1 << 62  # of combined columns, so that a number of 64 bits holds them
_TEXTS = tuple(name for name, (kind, _) in COLUMNS.items() if kind == "string")


@attrs.frozen(eq=False)
class EventRows:
    """Rows of telemetry. `columns` has an array for each column, and `texts` the texts of each column of texts."""

    columns: dict[str, Ints]
    texts: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def __getitem__(self, column: str) -> Ints:
        return self.columns[column]

    def where(self, mask: Flags) -> EventRows:
        """Return the rows of a mask."""
        return EventRows({name: values[mask] for name, values in self.columns.items()}, self.texts)

    def has(self, column: str, *texts: str) -> Flags:
        """Return whether each row has one of these texts in `column`."""
        codes = [self.texts[column].index(text) for text in texts if text in self.texts[column]]
        return np.isin(self.columns[column], codes)

    def of_kind(self, *kinds: str) -> EventRows:
        """Return the events of some kinds."""
        assert set(kinds) <= set(KINDS), kinds
        return self.where(self.has("kind", *kinds))

    def text(self, column: str, code: int) -> str:
        """Return the text of a code."""
        return self.texts[column][code]

    def windows(self, seconds: int) -> Ints:
        """Return the start of each row's window of `seconds`, in microseconds since 1970."""
        width = seconds * _SECOND_US
        return self.columns["time"] // width * width


@attrs.frozen(eq=False)
class Sqns:
    """Rows that are unfolded by sqn: `at` is the row of each sqn, and `era` the time within which sqns are unique."""

    at: Ints
    sqn: Ints
    era: Ints


def by_sqn(rows: EventRows) -> Sqns:
    """Return a place for each sqn of the rows."""
    counts = np.maximum(rows["count"], 0)
    at = np.repeat(np.arange(len(rows)), counts)
    ends = np.cumsum(counts)
    sqn = rows["first"][at] + np.arange(len(at)) - (ends - counts)[at]
    return Sqns(at, sqn, rows["time"][at] // (SAME_SQNS_S * _SECOND_US))


def combined(*columns: Ints) -> Ints:
    """Return one number for each row, which is equal and in order if all columns are."""
    keys, span = np.zeros(len(columns[0]), np.int64), 1
    if not len(keys):
        return keys
    for column in columns:
        least = int(column.min())
        width = int(column.max()) - least + 1
        if span * width >= _MOST_KEYS:
            texts, keys = np.unique(keys, return_inverse=True)
            span = len(texts)
        keys = keys * width + (column - least)
        span *= width
    return keys


@attrs.frozen(eq=False)
class Groups:
    """Groups of rows with equal keys, in the order of the keys. `lead` is a row of each group."""

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, *columns: Ints) -> Groups:
        """Group rows by columns."""
        keys = combined(*columns)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        is_start = np.ones(len(ordered), bool)
        is_start[1:] = ordered[1:] != ordered[:-1]
        return cls(order, np.flatnonzero(is_start))

    @property
    def lead(self) -> Ints:
        """Return the first row of each group."""
        return self.order[self.starts]

    @property
    def sizes(self) -> Ints:
        """Return the number of rows of each group."""
        return np.diff(self.starts, append=len(self.order))

    @property
    def of_rows(self) -> Ints:
        """Return the group of each row."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(np.arange(len(self.starts)), self.sizes)
        return found

    def sums(self, values: Ints | Flags) -> Ints:
        """Return the sum of `values` in each group."""
        return self._reduced(np.add, values)

    def most(self, values: Ints) -> Ints:
        """Return the highest of `values` in each group."""
        return self._reduced(np.maximum, values)

    def least(self, values: Ints) -> Ints:
        """Return the lowest of `values` in each group."""
        return self._reduced(np.minimum, values)

    def _reduced(self, function: np.ufunc, values: Ints | Flags) -> Ints:
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.asarray(function.reduceat(values[self.order].astype(np.int64), self.starts))

    def members(self) -> Iterator[Ints]:
        """Yield the rows of each group."""
        yield from np.split(self.order, self.starts[1:]) if len(self.starts) else ()


def files_of(folder: Path) -> list[Path]:
    """Return the telemetry files of a folder, as readers see them. Raises `UsageError` if there are none."""
    files = sorted(file for file in folder.rglob("*.parquet") if not file.name.startswith((".", "_")))
    if not files:
        raise UsageError(
            f"there is no telemetry in {folder}",
            remedy="let nodes write it: pgm demo --telemetry DIR, or the key telemetry of the topology file",
        )
    return files


def read(files: Sequence[Path]) -> EventRows:
    """Return all events of Parquet files.

    Raises `UsageError` if pyarrow is missing, and `ProcessError` for a file that is incomplete or no telemetry.
    """
    schema = arrow_schema()
    import pyarrow
    from pyarrow import dataset

    coded = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    for name in _TEXTS:
        schema = schema.set(schema.get_field_index(name), pyarrow.field(name, coded))
    form = dataset.ParquetFileFormat(read_options=dataset.ParquetReadOptions(dictionary_columns=set(_TEXTS)))
    try:
        table = dataset.dataset([str(file) for file in files], schema=schema, format=form).to_table()
    except (OSError, pyarrow.ArrowException) as error:
        raise ProcessError(
            f"telemetry cannot be read: {str(error).strip().splitlines()[0]}",
            remedy="a file named here is incomplete or no telemetry: remove it",
        ) from error
    return rows_of(table)


def rows_of(table: Any) -> EventRows:
    """Return the rows of an Arrow table with the columns of telemetry, whose columns of texts have dictionaries."""
    import pyarrow

    columns: dict[str, Ints] = {}
    texts: dict[str, list[str]] = {}
    for name in table.column_names:
        column = table.column(name)
        if name in _TEXTS:
            columns[name], texts[name] = _coded(column)
        elif name == "value_us":
            columns[HAS_VALUE] = column.is_valid().to_numpy().astype(np.int64)
            columns[name] = column.fill_null(0).to_numpy()
        else:
            columns[name] = column.cast(pyarrow.int64()).to_numpy()
    return EventRows(columns, texts)


def _coded(column: Any) -> tuple[Ints, list[str]]:
    """Return the codes and sorted texts of a column that has dictionaries."""
    whole = column.unify_dictionaries().combine_chunks()
    if hasattr(whole, "chunks"):  # an empty table, or several chunks
        whole = whole.cast(whole.type.value_type).combine_chunks().dictionary_encode()
    found: list[str] = whole.dictionary.to_pylist()
    texts = sorted(found)
    place = {text: code for code, text in enumerate(texts)}
    places = np.array([place[text] for text in found], np.int64)
    codes = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return (places[codes] if len(places) else codes), texts
