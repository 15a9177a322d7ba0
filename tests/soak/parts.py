"""Processes of the soak that are no commands of pgm: the application that sends, and the streaming query.

python -m tests.soak.parts source FILE SIZE RATE
python -m tests.soak.parts query RECORDERS FOLDER

Both say "ready" when they run. A line on standard input starts the source, and the end of standard input ends each. The
last line of the output is an account in JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import attrs

import pgm.blocking
from deploy.node.sample_messages import generate

_TURN_S = 0.02
_BATCH_S = 10.0
_STATE = "state.json"
# A heap of fixed size whose pages are touched at the start: what grows then is no heap.
_HEAP = "-Xms512m -XX:+AlwaysPreTouch -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _HEAP,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}


def _until_end_of_input() -> threading.Event:
    ended = threading.Event()

    def read() -> None:
        while sys.stdin.readline():
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def source(file: str, size: int, rate: float) -> None:
    """Send `rate` messages a second until standard input ends."""
    sent = 0
    with pgm.blocking.open_source(file, node="source") as opened:
        print("ready", flush=True)
        sys.stdin.readline()
        ended, began = _until_end_of_input(), time.monotonic()
        most = max(1, round(rate * _TURN_S))
        for rows in generate(1 << 40, size, 1, most=most):
            opened.send_batch(rows)
            sent += len(rows)
            if ended.wait(max(0.0, began + sent / rate - time.monotonic())):
                break
    counters = opened.counters.snapshot()
    print(json.dumps({"sent": sent, "seconds": round(time.monotonic() - began, 1), "counters": counters}), flush=True)


@attrs.define
class Taken:
    """What the query has read of each session. A batch that comes again counts once."""

    batch: int = -1
    sessions: dict[str, list[int]] = attrs.field(factory=dict)  # first, next sqn, rows, lost sqns, sqns of gaps

    def add(self, batch: int, rows: list[Any]) -> None:
        """Add the sums of a batch: tsi, first, end, rows, sqns of rows, lost sqns."""
        if batch <= self.batch:
            return
        self.batch = batch
        for tsi, first, end, count, sqns, lost in rows:
            has = self.sessions.setdefault(tsi, [first, first, 0, 0, 0])
            has[4] += abs(first - has[1]) + (end - first - sqns)
            has[1] = end
            has[2] += count
            has[3] += lost

    def save(self, file: Path) -> None:
        """Write the state, at once or not at all."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(attrs.asdict(self)))
        new.replace(file)

    @classmethod
    def load(cls, file: Path) -> Taken:
        """Return the state of an earlier query, or an empty one."""
        return cls(**json.loads(file.read_text())) if file.exists() else cls()


def query(recorders: str, folder: Path) -> None:
    """Read the archives as they grow, and keep the sums of each session in a file."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

    import pgm.spark

    settings = _SETTINGS | {"spark.local.dir": str(folder / "spark")}
    spark = pgm.spark.register(pgm.spark.start("soak", master="local[1]", settings=settings, quick=True))
    taken, file = Taken.load(folder / _STATE), folder / _STATE

    def add(rows: DataFrame, batch: int) -> None:
        sums = rows.groupBy("tsi").agg(
            F.min("sqn"), F.max(F.col("sqn") + F.col("count")), F.count("sqn"), F.sum("count"),
            F.sum(F.when(F.col("lost").isNotNull(), F.col("count")).otherwise(0)),
        )  # fmt: skip
        taken.add(batch, [list(row) for row in sums.collect()])
        taken.save(file)

    rows = spark.readStream.format("pgm").option("recorders", recorders).option("columns", "tsi,sqn,count,lost").load()
    running = (
        rows.writeStream.foreachBatch(add)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{_BATCH_S} seconds")
        .start()
    )
    print("ready", flush=True)
    ended = _until_end_of_input()
    while not ended.wait(1.0):
        failure = running.exception()
        if failure is not None:
            raise failure
    running.processAllAvailable()
    running.stop()
    spark.stop()
    print(json.dumps(attrs.asdict(taken)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "source":
        source(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        query(sys.argv[2], Path(sys.argv[3]))
