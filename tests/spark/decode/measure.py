"""Rows a second of values that become columns: the decoders alone, and Spark's queries beside Parquet of the same columns.

The decoders are measured by the processor time of this process: `plain` is the general path, one object a value.
Queries are measured by turns with Parquet in one run, after some warm-up turns, as in `tests.spark.support.measure`.

python -m tests.spark.decode.measure [--rows 3000000] [--runs 5] [--codec cbor]
python -m tests.spark.decode.measure --alone
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pgm.spark
from pgm.messages.objects import ARROW, CBOR
from pgm.messages.typed.cbor_rows import CborRows
from pgm.messages.typed.decoder import ValueDecoder
from pgm.messages.typed.fields import TypedField, ValueCodec
from pgm.messages.typed.plain_rows import plain_rows
from tests.net.support.processes import Process
from tests.spark.support.archives import writing
from tests.spark.support.measure import rates
from tests.unit.archive.makers import SESSION, valued

_BATCH = 10_000
_ALONE_ROWS = 200_000
_AT_ONCE = 1 << 15
_SYMBOLS = ("A", "IBM", "AAPL", "MSFT", "GOOGL")
_SUBJECTS = tuple(f"/trades/{symbol}" for symbol in _SYMBOLS)
_DDL = "symbol STRING, price DOUBLE, size INT, ts BIGINT"
_TYPES = {"symbol": pa.string(), "price": pa.float64(), "size": pa.int32(), "ts": pa.int64()}


def trades(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield trades with sizes and symbols of all lengths."""
    draw = np.random.default_rng(first)
    prices, sizes = draw.uniform(1, 500, count).tolist(), draw.integers(1, 5000, count).tolist()
    for row, (price, size) in enumerate(zip(prices, sizes, strict=True), first):
        yield {
            "symbol": _SYMBOLS[row % len(_SYMBOLS)],
            "price": price,
            "size": size,
            "ts": 1_700_000_000_000_000_000 + row * 1000,
        }


def _encoded(codec: ValueCodec, one: dict[str, Any]) -> bytes:
    return cbor2.dumps(one) if codec is ValueCodec.CBOR else json.dumps(one).encode()


def cpu_rates(repeats: int) -> dict[str, int]:
    """Return rows a second of processor time for each decoder, the fastest of some runs."""
    fields = [TypedField.of(name, kind) for name, kind in _TYPES.items()]
    rows = list(trades(0, _ALONE_ROWS))
    cbor = pa.array([_encoded(ValueCodec.CBOR, one) for one in rows], pa.binary())
    lines = pa.array([_encoded(ValueCodec.JSON, one) for one in rows], pa.binary())
    table = pa.Table.from_pylist(rows)
    tables = pa.array([ARROW.encode(table.slice(at, 1000)) for at in range(0, len(rows), 1000)], pa.binary())
    decoder = CborRows(fields)
    works: dict[str, Callable[[], object]] = {
        "cbor": lambda: [decoder.decode(cbor.slice(at, _AT_ONCE)) for at in range(0, len(rows), _AT_ONCE)],
        "json": lambda: list(ValueDecoder(ValueCodec.JSON, fields).parts(lines)),
        "arrow": lambda: list(ValueDecoder(ValueCodec.ARROW, fields).parts(tables)),
        "plain": lambda: plain_rows(cbor.to_pylist(), fields, CBOR.decode),
    }
    least = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            began = time.process_time()
            work()
            least[name] = min(least[name], time.process_time() - began)
    return {name: round(len(rows) / seconds) for name, seconds in least.items()}


def fill(directory: Path, rows: int, codec: ValueCodec) -> None:
    """Write an archive of trades."""
    with writing(directory) as add:
        for first in range(0, rows, _BATCH):
            values = [_encoded(codec, one) for one in trades(first, min(_BATCH, rows - first))]
            add([valued(first, values, _SUBJECTS, time.time_ns() // 1000)], SESSION)


def aggregate(frame: DataFrame) -> None:
    """Aggregate every field of every row."""
    frame.agg(F.max("symbol"), F.sum("price"), F.sum("size"), F.max("ts")).collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", action="store_true", help="only the decoders, without Spark")
    parser.add_argument("--codec", choices=["cbor", "json"], default="cbor")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps({"rows_per_cpu_s": cpu_rates(options.runs)}), flush=True)
    if options.alone:
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="pgm-measure-") as name:
        folder = Path(name)
        fill(folder / "archive", options.rows, ValueCodec(options.codec))
        service = Process("serve", ["serve", str(folder / "archive"), "--listen", "127.0.0.1:0"])
        try:
            service.line_with("ready:")
            where = service.log.rpartition(" on ")[2].strip()
            spark = pgm.spark.register(pgm.spark.start())
            reading = spark.read.format("pgm").option("decode", options.codec).option("minPartitions", 2)
            decoded = reading.schema(_DDL).load(where)
            decoded.write.parquet(str(folder / "parquet"))
            parquet = spark.read.parquet(str(folder / "parquet"))
            works = {options.codec: lambda: aggregate(decoded), "parquet": lambda: aggregate(parquet)}
            print(json.dumps(rates(options.rows, options.runs, works)), flush=True)
            spark.stop()
            service.stop()
        finally:
            service.close()


if __name__ == "__main__":
    main()
