"""Search of all states of small trees of production cores.

python -m tests.explore [SETUP ...] [--states N] [--messages N] [--losses N] [--copies N] [--flights N] [--heartbeats N]
python -m tests.explore --spark [MASTER] --json
python -m tests.explore aggregator --mutation lead-off-by-one --tests FOLDER

The exit status is 1 if a property is broken. The shortest run to each fault is then written as a test.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import PgmError
from tests.explore.mutations import MUTATIONS, broken
from tests.explore.replay import Counterexample, events_of, kind_of, minimised
from tests.explore.search import Account, RunShares, Search, forget_trees, run_here
from tests.explore.setups import SETUPS, Bounds
from tests.explore.spark_shares import SparkShares

_BOUNDS = Bounds()
_MOST_FAULTS = 8  # that are minimised: each takes some hundred replays


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("setups", nargs="*", metavar="SETUP", help=f"of {', '.join(SETUPS)}; all by default")
    parser.add_argument("--states", type=int, default=1_000_000, help="states of each set-up after which to stop")
    for field in attrs.fields(Bounds):
        if field.name != "horizon_ns":
            help_text = f"{_HELP[field.name]}; {field.default} by default"
            parser.add_argument(f"--{field.name}", type=int, default=field.default, help=help_text)
    parser.add_argument("--endings", type=int, default=16, help="one in so many states is run to its end (16)")
    parser.add_argument("--spark", nargs="?", const="local[*]", default="", metavar="MASTER", help="run on Spark")
    parser.add_argument("--mutation", default="", choices=("", *MUTATIONS), help="put this fault into the cores")
    parser.add_argument("--tests", type=Path, default=Path("counterexamples"), help="folder for tests of faults")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and progress to stderr")
    return parser


_HELP = {
    "messages": "messages of the application",
    "before": "messages of these that all nodes have when the search begins",
    "losses": "packets that the network loses",
    "copies": "packets that arrive twice",
    "flights": "packets in flight above which no timer runs and nothing is sent",
    "heartbeats": "SPMs that the source sends by its timer",
}


def bounds_of(given: argparse.Namespace) -> Bounds:
    """Return the bounds of a command line."""
    return Bounds(**{name: getattr(given, name) for name in _HELP})


def search_setup(setup: str, given: argparse.Namespace, run_shares: RunShares, file: Any) -> dict[str, Any]:
    """Search one set-up; write a test for each fault. Return the row of the result."""
    bounds = bounds_of(given)
    with broken(given.mutation):
        forget_trees()
        began = time.process_time()
        search = Search(setup, bounds, ending_share=given.endings)
        account = search.run(given.states, run_shares, tell=functools.partial(_tell, setup, began, file))
        found = list(_counterexamples(search, bounds))
    for number, one in enumerate(found):
        name = "_".join(("counterexample", *setup.split("-"), *given.mutation.split("-"), str(number))).replace(
            "__", "_"
        )
        given.tests.mkdir(parents=True, exist_ok=True)
        path = given.tests / f"test_{name}.py"
        path.write_text(one.module(name))
        print(f"{setup}: {one.text}: {len(one.events)} steps in {path}", file=file, flush=True)
    return {
        "setup": setup,
        "mutation": given.mutation,
        "bounds": attrs.asdict(bounds),
        "states": account.states,
        "steps": account.steps,
        "depth": account.depth,
        "is_complete": account.is_complete,
        "core_states": account.cores,
        "core_calls": account.calls,
        "compared_calls": account.compared,
        "runs_to_the_end": account.endings,
        "cpu_s": round(time.process_time() - began, 1),
        "faults": [one.text for one in found],
    }


def _tell(setup: str, began: float, file: Any, account: Account) -> None:
    took_s = time.process_time() - began
    print(
        f"{setup}: depth {account.depth}: {account.states} states, {account.steps} steps, {account.cores} states of "
        f"cores, {account.endings} runs to the end, {took_s:.0f} s",
        file=file,
        flush=True,
    )


def _counterexamples(search: Search, bounds: Bounds) -> Iterator[Counterexample]:
    """Yield the shortest run to each kind of fault."""
    kinds: set[str] = set()
    for fault, depth in search.account.faults:
        if kind_of(fault.text) not in kinds and len(kinds) < _MOST_FAULTS:
            kinds.add(kind_of(fault.text))
            events = events_of(search.tree, search.path(fault, depth))
            yield minimised(search.tree.setup, events, bounds.before)


def run(given: argparse.Namespace) -> int:
    """Search; return the exit status."""
    file = sys.stderr if given.json else sys.stdout
    rows = []
    with SparkShares(given.spark) if given.spark else _Here() as run_shares:
        for setup in given.setups or SETUPS:
            rows.append(search_setup(setup, given, run_shares, file))
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            whole = "all states within the bounds" if row["is_complete"] else "not all states"
            faults = f"{len(row['faults'])} {'fault' if len(row['faults']) == 1 else 'faults'}"
            print(f"{row['setup']}: {row['states']} states ({whole}), {faults}, {row['cpu_s']} s of CPU")
    return 1 if any(row["faults"] for row in rows) else 0


class _Here:
    """Shares of this process."""

    def __enter__(self) -> RunShares:
        return run_here

    def __exit__(self, *_error: object) -> None:
        pass


def main(arguments: Iterable[str] | None = None) -> int:
    """Search from the command line."""
    parser = options()
    given = parser.parse_args(None if arguments is None else list(arguments))
    unknown = [setup for setup in given.setups if setup not in SETUPS]
    if unknown:
        parser.error(f"there is no set-up {unknown[0]!r}; choose from {', '.join(SETUPS)}")
    if given.mutation and given.spark:
        parser.error("a mutation is in this process only: leave out --spark")
    try:
        return run(given)
    except PgmError as error:
        print(error, file=sys.stderr)
        return 2
