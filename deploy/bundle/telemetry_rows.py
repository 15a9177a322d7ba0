"""Last minutes of a folder of telemetry, as one Parquet file with the columns of its schema alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy.bundle.redaction import Redactor
from pgm.errors import ProcessError, UsageError
from pgm.telemetry.events import arrow_schema
from pgm.units import MIB

MOST_ROWS = 500_000  # the newest: some 10 MiB of Parquet
_MOST_FILES = 4096  # the newest
_MOST_FILE = 256 * MIB  # octets of one file, which is read as a whole


def recent_rows(folder: Path, since_s: float, redactor: Redactor) -> bytes:
    """Return the rows of a folder since a time in seconds since 1970, as the octets of a Parquet file.

    Files with other columns are no telemetry, and are left out. Raises `UsageError` without pyarrow, `ProcessError` without
    a row, and `OSError`.
    """
    schema = arrow_schema()
    import pyarrow as pa
    from pyarrow import parquet

    tables = [pa.Table.from_batches([], schema), *_tables(folder, since_s, schema)]
    table = pa.concat_tables(tables).sort_by("time")
    if not table.num_rows:
        raise ProcessError(f"{folder} has no rows of the last minutes", remedy="give more --minutes")
    table = table.slice(max(0, table.num_rows - MOST_ROWS))
    for at, field in enumerate(schema):
        if pa.types.is_string(field.type):
            words = table.column(at).combine_chunks().dictionary_encode()
            texts = pa.array([redactor.text(text) for text in words.dictionary.to_pylist()], pa.string())
            table = table.set_column(at, field, pa.DictionaryArray.from_arrays(words.indices, texts).cast(pa.string()))
    sink = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(schema.metadata), sink, compression="zstd")
    return sink.getvalue()


def _tables(folder: Path, since_s: float, schema: Any) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import compute, parquet

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", remedy="give the folder of the telemetry by --telemetry")
    stats = sorted((path.stat().st_mtime, path) for path in folder.glob("*.parquet") if not path.name.startswith("."))
    start = pa.scalar(int(since_s * 1e6), pa.timestamp("us", "UTC"))
    for changed_s, path in stats[-_MOST_FILES:]:
        if changed_s < since_s or path.stat().st_size > _MOST_FILE or path.is_symlink():
            continue
        try:
            found = parquet.read_table(path, partitioning=None)
        except (OSError, pa.ArrowException):  # damaged, or being replaced
            continue
        if found.schema.equals(schema):
            yield found.filter(compute.greater_equal(found.column("time"), start)).replace_schema_metadata(
                schema.metadata
            )
