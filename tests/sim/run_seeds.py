"""Run drawn scenarios: `python tests/sim/run_seeds.py --seeds 200 [--first N] [--parity] [--verbose]`.

Prints a line per seed when asked, always the failing ones, and ends with 1 if there were any.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from deploy.roles import build_core  # noqa: E402
from pgm.sim.invariant import InvariantBroken  # noqa: E402
from pgm.sim.scenario import scenario  # noqa: E402
from pgm.sim.swarm import Outcome, repeat_command, run  # noqa: E402


def attempt(seed: int, parity: bool = False) -> tuple[int, float, Outcome | None, str]:
    """One seed: how long it took, and what came of it or what went wrong."""
    begun = time.perf_counter()
    try:
        outcome, wrong = run(seed, build_core, drawn=scenario(seed, parity=parity)), ""
    except InvariantBroken as broken:
        outcome, wrong = None, str(broken)
    except Exception:  # a core that raises is a failing seed like any other
        outcome, wrong = (
            None,
            f"seed {seed} raised\n{traceback.format_exc()}  repeat: {repeat_command(seed, parity=parity)}",
        )
    return seed, time.perf_counter() - begun, outcome, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--parity", action="store_true", help="streams with parity of some kind")
    parser.add_argument("--verbose", action="store_true", help="describe each scenario and its outcome")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    failed = []
    begun = time.perf_counter()
    with multiprocessing.Pool(options.jobs) as pool:
        for seed, seconds, outcome, wrong in pool.imap(functools.partial(attempt, parity=options.parity), seeds):
            if options.verbose:
                print(scenario(seed, parity=options.parity).describe())
            if wrong:
                failed.append(seed)
                print(f"FAILED after {seconds:.1f} s: {wrong}", flush=True)
            elif options.verbose:
                print(f"  {seconds:.1f} s: {outcome}", flush=True)
            elif (seed - options.first + 1) % 20 == 0:
                print(f"{seed - options.first + 1} of {options.seeds}, {time.perf_counter() - begun:.0f} s", flush=True)
    verdict = f"failed: {failed}" if failed else "all good"
    print(f"{options.seeds} seeds from {options.first} in {time.perf_counter() - begun:.0f} s: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
