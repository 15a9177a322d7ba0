"""Campaigns by seed: many drawn scenarios, several at a time, with what broke told as it breaks."""

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
    """One seed. A core that raises is a failing seed like any other."""
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
    """The options of every campaign."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--verbose", action="store_true", help="describe each scenario and what came of it")
    return parser


def campaign(
    given: argparse.Namespace,
    run: Callable[[int], object],
    describe: Callable[[int], str] = lambda seed: f"seed {seed}",
) -> int:
    """Go through the seeds; gives the exit code: 1 if any broke. Prints a line per seed when asked, always the failing ones."""
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
