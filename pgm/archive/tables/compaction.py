"""Merge of the small files of a table. Rows and progress stay as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pgm.archive.errors import TableError
from pgm.archive.tables.files import SORTED_BY, TABLE_SCHEMA, TableFile, write_files
from pgm.archive.tables.store import TableStore
from pgm.parameters import Parameters
from pgm.units import SECOND

ALL = 2  # files that can be merged
_MOST_ROWS = 1 << 21  # of a merge: small rows take some hundred octets each in memory, whatever their size on disk


@attrs.define
class MergeTotals:
    """Files that were merged, the files made of them, and files removed since no version has them any more."""

    merged: int = 0
    made: int = 0
    swept: int = 0


def compact(
    store: TableStore,
    parameters: Parameters,
    *,
    least: int = ALL,
    on_commit: Callable[[MergeTotals], None] = lambda _: None,
) -> MergeTotals:
    """Merge the small files of each hour and stream that has at least `least`. Each merge is a commit of its own.

    Raises `TableError`.
    """
    totals = MergeTotals()
    content = store.content()
    for files in _groups(content.files, parameters.table_file_bytes, least):
        made = write_files(_rows(files), store.folder)
        store.commit(content.state, made, files)
        totals.merged += len(files)
        totals.made += len(made)
        on_commit(totals)
    if totals.merged or least == ALL:
        totals.swept = store.sweep(parameters.table_keep_ivl / SECOND)
    return totals


def _groups(files: Sequence[TableFile], target: int, least: int) -> Iterator[list[TableFile]]:
    """Yield files of one hour and stream each that together reach the wanted size, as far as there are so many."""
    small = sorted((one for one in files if one.octets < target // 2), key=_partition)
    for _, members in itertools.groupby(small, key=_partition):
        some = sorted(members, key=lambda one: one.sqns)
        if len(some) < least:
            continue
        group: list[TableFile] = []
        for one in some:
            octets, rows = (
                sum(values) for values in zip(*((each.octets, each.rows) for each in (*group, one)), strict=True)
            )
            if group and (octets > target or rows > _MOST_ROWS):
                if len(group) > 1:
                    yield group
                group = []
            group.append(one)
        if len(group) > 1:
            yield group


def _partition(file: TableFile) -> tuple[int, bool, str]:
    return file.hour, file.stream is None, file.stream or ""


def _rows(files: Sequence[TableFile]) -> pa.Table:
    try:
        parts = [pq.ParquetFile(one.path).read(TABLE_SCHEMA.names) for one in files]
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"a file of the table cannot be read: {error}", remedy="restore the file from a copy"
        ) from None
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in SORTED_BY])
