"""Soak of the whole tree for hours.

python -m tests.soak --hours 2 [--json] [--rate 200] [--no-query]

A source, two relaying aggregators, two repairers that record, receivers, `pgm record`, `pgm serve` and a streaming query of
Spark run on loopback. Every node loses one packet in a hundred. Each minute one part of the second hall, or the service
that the query prefers, is killed or terminated, and started again. The account at the end passes or fails each line:
counters add up, nothing is lost, and no role grows by a megabyte an hour. SIGINT and SIGTERM end the soak early, with
its account.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import attrs

from tests.soak.account import lines
from tests.soak.memory import HOUR_S
from tests.soak.run import Plan, Result, Soak


def _as_json(result: Result, account: list[str], *, is_kept: bool) -> str:
    values = attrs.asdict(result)
    for kind in ("steady", "peaks"):
        values[kind] = {
            label: {"seconds": [round(at, 1) for at in series.times], "octets": series.values}
            for label, series in getattr(result, kind).items()
        }
    return json.dumps({"is_kept": is_kept, "account": account, **values})


def main() -> int:
    """Run a soak by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0, help="length of the soak (2)")
    parser.add_argument("--rate", type=float, default=200.0, help="messages of the source in a second (200)")
    parser.add_argument("--loss", default="1%%", help="loss at every node (1%%)")
    parser.add_argument("--restart", type=float, default=60.0, help="seconds between two restarts (60)")
    parser.add_argument("--no-query", action="store_true", help="without Spark")
    parser.add_argument("--folder", type=Path, help="new folder for logs, archives and the samples; by default removed")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, with all samples")
    given = parser.parse_args()
    plan = Plan(
        given.hours * HOUR_S, given.rate, given.loss.replace("%%", "%"), given.restart, has_query=not given.no_query
    )
    began, stop = time.monotonic(), threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())

    def say(text: str) -> None:
        elapsed = int(time.monotonic() - began)
        print(f"{elapsed // 3600}:{elapsed // 60 % 60:02}:{elapsed % 60:02} {text}", file=sys.stderr, flush=True)

    folder = given.folder or Path(tempfile.mkdtemp(prefix="pgm-soak-"))
    folder.mkdir(exist_ok=True)
    try:
        result = Soak(plan, folder, say, stop).run()
        account = lines(result, folder)
    finally:
        if given.folder is None:
            shutil.rmtree(folder)
    is_kept = all(line.is_kept is not False for line in account)
    if given.json:
        print(_as_json(result, [str(line) for line in account], is_kept=is_kept))
    else:
        print("\n".join([*map(str, account), "all kept" if is_kept else "FAILED"]))
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
