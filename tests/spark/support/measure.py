"""Rows a second from the range service into an aggregate, and the time of a micro-batch.

Works are measured in pairs, interleaved, after some warm-up turns, since the JVM compiles code that runs often.
`files` and `parquet` are the two columns of the aggregate, read from the recorder's files and from Parquet.
`sent` are the rows that the service sends, and `all` is every column of every row.
`rate` is Spark's rate-micro-batch, and `range` the rows of spark.range beside it.

python -m tests.spark.support.measure [--rows 3000000] [--size 70] [--runs 5]
python -m tests.spark.support.measure --telemetry 10000000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pgm.spark
from pgm.archive.recording.rows import rows_of
from pgm.core.window.reassembly import WholeMessages
from pgm.spark.jobs.events import read
from pgm.spark.jobs.summary import summarise
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.train import Run
from tests.net.support.processes import Process
from tests.spark.support.archives import writing
from tests.spark.support.cluster import is_below, processes
from tests.spark.support.synthetic_telemetry import write_events
from tests.unit.archive.makers import SESSION, TSI

_BATCH = 10_000
_MICRO_BATCH = 50_000
_WARM_UP = 3  # turns
_TIMES_AT = 11  # in /proc/PID/stat, after the name: ticks of the process in user and kernel mode


def fill(directory: Path, rows: int, size: int) -> None:
    """Write messages of random octets, all different.

    Equal values would be stored only once.
    """
    with writing(directory) as add:
        for first in range(0, rows, _BATCH):
            octets = np.frombuffer(os.urandom(_BATCH * (DATA_HEADER_OCTETS + size)), np.uint8)
            run = Run(first, _BATCH, octets, 0, DATA_HEADER_OCTETS + size, DATA_HEADER_OCTETS)
            add([rows_of(WholeMessages(TSI, run), 0, time.time_ns() // 1000)], SESSION)


def aggregate(frame: DataFrame) -> None:
    """Aggregate every row's sqn and value."""
    frame.agg(F.count("sqn"), F.max("sqn"), F.sum(F.octet_length("value"))).collect()


def aggregate_all(frame: DataFrame) -> None:
    """Aggregate every column of every row."""
    others = [F.max(name) for name in frame.columns if name != "value"]
    frame.agg(F.count("sqn"), F.sum(F.octet_length("value")), *others).collect()


def rates(rows: int, runs: int, works: dict[str, Callable[[], object]]) -> dict[str, object]:
    """Return medians of rows a second and processor seconds.

    The first work is also compared with the second, turn by turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    used: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(_WARM_UP + runs):
        for name, work in works.items():
            before, began = _used_s(), time.monotonic()
            work()
            if turn >= _WARM_UP:
                seconds[name].append(time.monotonic() - began)
                used[name].append(_used_s() - before)
        last = {name: round(times[-1], 2) for name, times in seconds.items() if times}
        print(f"turn {turn}: {last}", file=sys.stderr)
    first, second = seconds.values()
    return {
        "rows_per_s": {name: round(rows / statistics.median(found)) for name, found in seconds.items()},
        "cpu_s": {name: round(statistics.median(found), 2) for name, found in used.items()},
        "ratio": round(statistics.median(b / a for a, b in zip(first, second, strict=True)), 2),
    }


def micro_batch(spark: SparkSession, where: str, folder: Path) -> float:
    """Return the median seconds of a micro-batch from trigger to commit."""
    source = spark.readStream.format("pgm").option("columns", "sqn,value")
    stream = source.option("maxOffsetsPerTrigger", _MICRO_BATCH).load(where)
    sink = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [
        one.durationMs["triggerExecution"] / 1000 for one in query.recentProgress if one.numInputRows == _MICRO_BATCH
    ]
    return statistics.median(found[1:])


def telemetry(rows: int, folder: Path) -> None:
    """Run all jobs over `rows` events; print seconds and processor seconds.

    The processor time includes all processes of Spark.
    """
    spark = pgm.spark.start()
    write_events(spark, folder, rows)
    began, used = time.monotonic(), _used_s()

    def progress(name: str) -> None:
        told = f"{time.monotonic() - began:.1f} s, {_used_s() - used:.1f} s of CPU: {name}"
        print(told, file=sys.stderr, flush=True)

    found = summarise(read(spark, folder), progress=progress)
    progress("done")
    told = {"rows": found["events"], "seconds": time.monotonic() - began, "cpu_seconds": _used_s() - used}
    print(json.dumps({name: round(value, 1) for name, value in told.items()}))
    spark.stop()


def _used_s() -> float:
    """Return the processor seconds of this process and its descendants."""
    parents = {pid: parent for pid, parent, _ in processes()}
    mine = [pid for pid in parents if is_below(pid, os.getpid(), parents)]
    ticks = 0
    for pid in mine:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[_TIMES_AT]) + int(words[_TIMES_AT + 1])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--telemetry", type=int, metavar="ROWS", help="measure the jobs over this many rows of telemetry instead"
    )
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--size", type=int, default=70)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="pgm-measure-") as name:
        folder = Path(name)
        if options.telemetry:
            telemetry(options.telemetry, folder / "telemetry")
            return
        fill(folder / "archive", options.rows, options.size)
        service = Process("serve", ["serve", str(folder / "archive"), "--listen", "127.0.0.1:0"])
        try:
            service.line_with("ready:")
            where = service.log.rpartition(" on ")[2].strip()
            spark = pgm.spark.register(pgm.spark.start())
            source = spark.read.format("pgm").option("minPartitions", 2)
            every = source.load(where)
            archive = source.option("columns", "sqn,value").load(where)
            sent = source.option("localFiles", "false").load(where)
            every.write.parquet(str(folder / "parquet"))
            parquet = spark.read.parquet(str(folder / "parquet"))
            value = F.expr(f"repeat('x', {options.size})").cast("binary")
            own = spark.range(0, options.rows, 1, 2).select(F.col("id").alias("sqn"), value.alias("value"))

            def rate() -> None:
                batch = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.rows)
                rows = batch.option("numPartitions", 2).load().select(F.col("value").alias("sqn"), value.alias("value"))
                query = rows.writeStream.foreachBatch(lambda frame, _: aggregate(frame)).start()
                while query.isActive and not any(one.numInputRows for one in query.recentProgress):
                    time.sleep(0.005)
                query.stop()

            pairs: tuple[dict[str, Callable[[], object]], ...] = (
                {"files": lambda: aggregate(archive), "parquet": lambda: aggregate(parquet)},
                {"sent": lambda: aggregate(sent), "parquet": lambda: aggregate(parquet)},
                {"rate": rate, "range": lambda: aggregate(own)},
                {"all": lambda: aggregate_all(every), "parquet": lambda: aggregate_all(parquet)},
            )
            for works in pairs:
                print(json.dumps(rates(options.rows, options.runs, works)), flush=True)
            told = {"rows": options.rows, "size": options.size, "micro_batch_s": micro_batch(spark, where, folder)}
            print(json.dumps(told))
            spark.stop()
            service.stop()
        finally:
            service.close()


if __name__ == "__main__":
    main()
