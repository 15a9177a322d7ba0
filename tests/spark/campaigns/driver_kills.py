"""Bars of one second over three sessions, with the driver killed again and again.

python -m tests.spark.campaigns.driver_kills [--trades 5000000] [--kills 10] [--seed 1] [--json]

The sessions are hours apart, and two overlap. The query has a watermark of two seconds and `maxOffsetsPerTrigger`. The driver
and its JVM get SIGKILL at random moments inside micro-batches, and start again from the checkpoint. In the end the bars must
be those that the trades make without Spark, so no row was dropped and none counted twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.net.support.lab import ROOT
from tests.spark.campaigns.trades import Bar, three_sessions, write_trades
from tests.spark.support.archives import at, served
from tests.spark.support.kills import Child

_PATIENCE_S = 3600.0
_POLL_S = 0.05
_BATCHES = 50  # micro-batches of a run, approximately


def _commits(folder: Path) -> int:
    """Return the number of finished micro-batches."""
    names = folder / "checkpoint" / "commits"
    numbers = [int(path.name) for path in names.iterdir() if path.name.isdigit()] if names.is_dir() else []
    return max(numbers, default=-1) + 1


def _bars(folder: Path) -> dict[tuple[str, int], Bar]:
    """Return the last state of each bar."""
    table = ds.dataset(str(folder / "bars"), format="parquet", partitioning="hive").to_table()
    found = {}
    for row in sorted(table.to_pylist(), key=lambda one: one["batch"]):
        found[row["tsi"], row["second"]] = tuple(row[name] for name in ("trades", "open", "high", "low", "close"))
    return found


def campaign(folder: Path, trades: int, kills: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the job with kills; return the figures. Raises `AssertionError` if a bar differs."""
    rng = random.Random(seed)
    sessions = three_sessions(trades, seed)
    write_trades(folder / "archive", sessions)
    wanted = {key: bar for one in sessions for key, bar in one.bars().items()}
    say(f"wrote {trades:,} trades of {len(sessions)} sessions, {len(wanted)} bars")
    with served(folder / "archive") as service:
        words = ["tests.spark.campaigns.bars_job", at(service), str(folder), str(-(-trades // _BATCHES))]
        job = Child(words, folder / "job.log", {**os.environ, "PYTHONPATH": str(ROOT)})
        job.start()
        try:
            killed = _kill(job, folder, kills, rng, say)
        finally:
            job.kill()
    assert killed == kills, f"the job was over after {killed} kills"
    told = json.loads(next(line for line in reversed(job.text().splitlines()) if line.startswith('{"')))
    found = _bars(folder)
    wrong = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
    assert not wrong, (
        f"{len(wrong)} of {len(wanted)} bars differ: {[(key, wanted.get(key), found.get(key)) for key in wrong[:3]]}"
    )
    counted = sum(bar[0] for bar in found.values())
    return {"trades": counted, "bars": len(found), "kills": killed, "micro_batches": _commits(folder), **told}


def _kill(job: Child, folder: Path, kills: int, rng: random.Random, say: Callable[[str], None]) -> int:
    """Kill the job at random moments, spread over its micro-batches, and start it again, until it is done."""
    killed, due_s, until = 0, 0.0, time.monotonic() + _PATIENCE_S
    while job.process is not None and job.process.poll() is None:
        assert time.monotonic() < until, job.text()[-3000:]
        if killed < kills and _commits(folder) >= (killed + 1) * _BATCHES // (kills + 2):
            due_s = due_s or time.monotonic() + rng.uniform(0, 1)
            if time.monotonic() >= due_s:
                job.kill()
                killed, due_s = killed + 1, 0.0
                say(f"killed the driver after {_commits(folder)} micro-batches")
                job.start()
        time.sleep(_POLL_S)
    assert job.process is not None
    assert job.process.returncode == 0, job.text()[-3000:]
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trades", type=int, default=5_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="pgm-bars-") as folder:
        figures = campaign(Path(folder), options.trades, options.kills, options.seed, say)
    figures["seconds"] = round(time.monotonic() - began, 1)
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['trades']:,} trades in {figures['bars']} bars, {figures['kills']} kills, "
              f"{figures['micro_batches']} micro-batches: all bars right, {figures['dropped']} rows dropped, {figures['seconds']} s")  # fmt: skip


if __name__ == "__main__":
    main()
