"""Drivers of `pgm.spark.lakehouse` that are killed with all their processes: the table then equals the archive.

`python -m tests.spark.tables.lakehouse_kills --kills 5` kills at random moments, while the archive grows between them.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pgm.archive.tables.reading import read_table
from tests.net.support.lab import ROOT
from tests.spark.support.archives import at, served, writing
from tests.unit.archive.makers import loss, messages
from tests.unit.archive.tables.tables import archive_rows, table_rows, whole_losses

_EACH = 4000
_PATIENCE_S = 240.0
_PROGRAM = """
import sys, pgm.spark
spark = pgm.spark.register(pgm.spark.start(master="local[2]", quick=True))
options = {"maxOffsetsPerTrigger": "1500"}
given = {"availableNow": True} if sys.argv[4] == "end" else {"processingTime": "0 seconds"}
pgm.spark.lakehouse(spark, sys.argv[1], sys.argv[2], to=sys.argv[3], options=options, trigger=given, least_files=6).awaitTermination()
"""


def _driver(recorders: str, root: Path, kind: str, how: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", _PROGRAM, recorders, str(root), kind, how]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL, start_new_session=True)


def _rows(root: Path) -> int:
    return sum(one.rows for one in read_table(root).files)


def run(kind: str, folder: Path, kills: int, seed: int) -> int:
    """Kill drivers some time after their first commit; return the micro-batches that were committed meanwhile."""
    drawn = random.Random(seed)
    root, archives = folder / "table", folder / "archives"
    with writing(archives / "a") as add, served(archives) as service:
        for turn in range(kills):
            first = _EACH * turn
            add([messages(first, 3000), loss(first + 3000, 500), messages(first + 3500, 500)])
            before = _rows(root) if turn else 0
            driver = _driver(at(service), root, kind, "on")
            try:
                until = time.monotonic() + _PATIENCE_S
                while not (root / "_checkpoint").exists() or _rows(root) == before:
                    assert driver.poll() is None, "the driver has ended by itself"
                    assert time.monotonic() < until, "the driver commits nothing"
                    time.sleep(0.05)
                time.sleep(drawn.uniform(0, 3))
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
            print(f"{kind}: driver {turn + 1} killed with {_rows(root):,} rows in the table", flush=True)
        last = _driver(at(service), root, kind, "end")
        assert last.wait(_PATIENCE_S) == 0
    assert whole_losses(table_rows(kind, root)) == whole_losses(archive_rows(archives))
    return _rows(root)


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--to", choices=("iceberg", "parquet"), default="iceberg")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = run(given.to, Path(folder), given.kills, given.seed)
        print(
            f"{given.to}: {given.kills} drivers killed, the table has the {rows:,} rows of the archive, each once",
            flush=True,
        )


if __name__ == "__main__":
    main()
