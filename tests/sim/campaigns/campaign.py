"""Campaigns by seed: many drawn scenarios in parallel.

Failures are printed at once.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import time
import traceback
from collections.abc import Callable

from pgm.sim.invariant_broken import InvariantBroken

Attempt = tuple[int, float, str, str]  # the seed, its seconds, what came of it, what broke


def attempt(run: Callable[[int], object], seed: int) -> Attempt:
    """Run one seed. An exception in a core counts as a failure of the seed."""
    begun = time.perf_counter()
    told, broke = "", ""
    try:
        told = str(run(seed))
    except InvariantBroken as broken:
        broke = str(broken)
    except Exception:
        broke = f"seed {seed} raised\n{traceback.format_exc()}"
    return seed, time.perf_counter() - begun, told, broke


def arguments(what: str | None) -> argparse.ArgumentParser:
    """Return the parser with the options of every campaign."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--verbose", action="store_true", help="print each scenario and its result")
    return parser


def campaign(
    given: argparse.Namespace,
    run: Callable[[int], object],
    describe: Callable[[int], str] = lambda seed: f"seed {seed}",
) -> int:
    """Run the seeds; return the exit code, 1 if any seed failed.

    Failed seeds are always printed, other seeds with --verbose.
    """
    begun = time.perf_counter()
    failed = []
    with multiprocessing.Pool(given.jobs) as pool:
        seeds = range(given.first, given.first + given.seeds)
        for seed, seconds, told, broke in pool.imap(functools.partial(attempt, run), seeds):
            if given.verbose:
                print(describe(seed), flush=True)
            if broke:
                failed.append(seed)
                print(f"FAILED after {seconds:.1f} s: {broke}", flush=True)
            elif given.verbose:
                print(f"  {seconds:.1f} s: {told}", flush=True)
            elif (seed - given.first + 1) % 20 == 0:
                print(f"{seed - given.first + 1} of {given.seeds}, {time.perf_counter() - begun:.0f} s", flush=True)
    verdict = f"failed: {failed}" if failed else "all good"
    print(f"{given.seeds} seeds from {given.first} in {time.perf_counter() - begun:.0f} s: {verdict}")
    return 1 if failed else 0
