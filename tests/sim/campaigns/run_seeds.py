"""Campaigns by seed, of every kind.

python -m tests.sim.campaigns.run_seeds --seeds 200 [--first N] [--kind KIND] [--jobs N] [--verbose]
python -m tests.sim.campaigns.run_seeds --spark [MASTER] --kind all --seeds 100000 --packets 100000000

Failed seeds are printed, each with the command that repeats it. The exit status is 1 if any seed failed. `--done`
names a file of done ranges: the command goes on from there, and runs failed seeds again. The limit of seeds holds for
each kind. The fuzzing kinds (`fuzz`, `fuzz-cores`) run as many seeds as `--packets` needs, if it is given.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgm.errors import PgmError
from tests.sim.campaigns.campaign import TASK_SEEDS, Progress, Task, TaskResult, run_task, tasks_of
from tests.sim.campaigns.done_ranges import DoneRanges
from tests.sim.campaigns.kinds import KINDS
from tests.sim.campaigns.spark_tasks import run_on_spark

_LEAST_TASKS = 8  # so that a small campaign has tasks for all processes
_DONE_ON_SPARK = Path("seeds-done.jsonl")


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="plain", help="kind of the campaign")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds of each kind")
    parser.add_argument("--packets", type=int, default=0, help="number of mutated packets of each fuzzing kind")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--spark", nargs="?", const="local[*]", default="", metavar="MASTER", help="run on Spark")
    parser.add_argument(
        "--done", type=Path, default=None, help=f"file of done ranges; on Spark {_DONE_ON_SPARK} by default"
    )
    parser.add_argument("--verbose", action="store_true", help="print each scenario and its result")
    return parser


def seeds_of(kind: str, given: argparse.Namespace) -> range:
    """Return the wanted seeds of a kind."""
    packets = KINDS[kind].packets
    seeds = -(-given.packets // packets) if packets and given.packets else given.seeds
    return range(given.first, given.first + seeds)


def run_here(tasks: Iterable[Task], jobs: int) -> Iterator[TaskResult]:
    """Run tasks in processes of this machine."""
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(run_task, tasks)


def campaign(given: argparse.Namespace) -> int:
    """Run the campaign; return the exit status."""
    done = DoneRanges(given.done or (_DONE_ON_SPARK if given.spark else None))
    left = {kind: done.left(kind, seeds_of(kind, given)) for kind in (KINDS if given.kind == "all" else (given.kind,))}
    seeds = max(map(len, left.values()))
    most = 1 if given.verbose else max(1, min(TASK_SEEDS, seeds // _LEAST_TASKS))
    tasks = (task for kind, seeds in left.items() for task in tasks_of(kind, seeds, most))
    progress = Progress(sum(map(len, left.values())), functools.partial(print, flush=True), verbose=given.verbose)
    for result in run_on_spark(tasks, given.spark) if given.spark else run_here(tasks, given.jobs):
        done.add(result)
        progress.add(result)
    print(progress.verdict())
    return 1 if progress.failed else 0


def main() -> int:
    """Run the campaign from the command line."""
    try:
        return campaign(options().parse_args())
    except PgmError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
