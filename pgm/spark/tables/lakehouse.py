"""Streaming job that keeps the archives of range services as a table, exactly once.

Each micro-batch is a commit. The table has the progress, so that a repeated micro-batch adds nothing, and a query
without its checkpoint goes on with what the table lacks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql import DataFrame, SparkSession

from pgm.archive.store.schema import COLUMN_NAMES
from pgm.archive.tables.compaction import compact
from pgm.archive.tables.opening import KINDS, open_table
from pgm.archive.tables.state import EACH, JOIN, TableState
from pgm.parameters import Parameters
from pgm.spark.errors import BadOption
from pgm.spark.option_table import READ
from pgm.spark.options import read_options
from pgm.spark.recorders import survey
from pgm.spark.sessions import sessions_of
from pgm.spark.tables.task_files import TOLD, TaskFiles, told_files, told_sessions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "_checkpoint"  # in the folder of the table
_TRIGGER = {"processingTime": "30 seconds"}


def lakehouse(
    spark: SparkSession,
    recorders: str,
    folder: str | Path,
    *,
    to: str = "iceberg",
    options: Mapping[str, str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    least_files: int = 16,
) -> StreamingQuery:
    """Start a query that adds new rows of range services to the table in `folder`.

    `to` is `iceberg` or `parquet`. `options` are those of `format("pgm")`; `copies` is `each` by default. `trigger` has the
    arguments of Spark's trigger, by default every 30 s. An hour of a stream with `least_files` small files is merged. The
    session needs `register`; the driver and all executors need the same folder. Raises `BadOption`, `TableError`, and
    the errors of a read.
    """
    chosen = {"copies": EACH, **{key: str(value) for key, value in (options or {}).items()}, "recorders": recorders}
    checked = read_options(chosen, READ)
    if to not in KINDS:
        raise BadOption(f"a table cannot be of {to!r}", remedy=f"choose from {', '.join(KINDS)}")
    if set(COLUMN_NAMES) - set(checked.columns):
        raise BadOption("a table has all columns of the rows", remedy="leave out the options columns and payload")
    if checked.subjects is not None:  # its progress would cover rows that it lacks
        raise BadOption("a table has the rows of all subjects", remedy="leave out the option subjects")
    if any(key.lower().startswith("decode") for key in chosen):
        raise BadOption(
            "a table has the values as they came",
            remedy="leave out decode, and decode what is read with option history",
        )
    root = Path(folder).absolute()
    batches = _Batches(root, to, EACH if checked.each_copy else JOIN, Parameters(), least_files)
    state = batches.state()
    checkpoint = root / CHECKPOINT
    if state.sessions and not checkpoint.exists():
        held = sessions_of(survey(checked), checked)
        chosen["startingOffsets"] = json.dumps(
            {key: min(one.next_sqn, held[key].next_sqn) for key, one in state.sessions.items() if key in held}
        )
    rows = spark.readStream.format("pgm").options(**chosen).load()
    writer = rows.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or _TRIGGER)).start()


@attrs.frozen
class _Batches:
    """Function of `foreachBatch`. It holds the lock of the table during a micro-batch."""

    root: Path
    kind: str
    copies: str
    parameters: Parameters
    least_files: int

    def state(self) -> TableState:
        """Return the progress; create the table if needed. Raises `TableError`."""
        store = open_table(self.kind, self.root, self.copies)
        try:
            return store.content().state
        finally:
            store.close()

    def __call__(self, rows: DataFrame, _batch: int) -> None:
        """Commit the rows of a micro-batch that the table lacks. Raises `TableError`."""
        store = open_table(self.kind, self.root, self.copies)
        try:
            state = store.content().state
            write = TaskFiles(str(store.folder), state, self.parameters.table_commit_bytes)
            told = rows.mapInArrow(write, TOLD).collect()
            files = [one for row in told for one in told_files(row.files, store.folder)]
            if files:
                store.commit(state.with_rows(one for row in told for one in told_sessions(row.sessions)), files)
                compact(store, self.parameters, least=self.least_files)
        finally:
            store.close()
