"""Campaign of ten hosts: planted losses against the verdicts of `pgm explain`, and a day of an operator.

    python -m tests.net.campaigns.ten_hosts --losses 50
    python -m tests.net.campaigns.ten_hosts --day pictures
    python -m tests.net.campaigns.ten_hosts --keep

Losses lie on each link, in sockets, in kernels that refuse to send, in budgets, in repairs and in an application; links have
those that the other kinds leave of `--losses`. The exit status is 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.net.campaigns.ten_hosts.budgets import (
    BUDGETS,
    plant_budgets,
    plant_full_window,
    plant_retries,
    plant_slow_application,
)
from tests.net.campaigns.ten_hosts.losses import (
    REPAIRS,
    SOCKETS,
    Planted,
    Verdict,
    ask,
    plant_links,
    plant_overflows,
    plant_refusals,
    plant_repairs,
)
from tests.net.campaigns.ten_hosts.network import Hosts, hosts_of_ten, start_tree
from tests.net.campaigns.ten_hosts.operator_day import spend
from tests.net.campaigns.ten_hosts.planting import Planter

_APPLICATION = 4  # packets that a slow application loses
_REFUSALS = 2
_OTHERS = len(BUDGETS) + 2 + len(SOCKETS) + len(REPAIRS) + _APPLICATION + _REFUSALS


def plant_all(ten: Hosts, losses: int, seed: int) -> list[Verdict]:
    """Plant losses of all kinds, and return the verdicts about them."""
    planter, rng = Planter(ten), random.Random(seed)
    kinds: list[Callable[[], Iterable[Planted]]] = [
        lambda: plant_links(ten, planter, max(1, losses - _OTHERS), rng),
        lambda: plant_refusals(ten, planter),
        lambda: plant_repairs(ten, planter),
        lambda: plant_overflows(ten),
        lambda: plant_budgets(ten, planter),
        lambda: [plant_retries(ten, planter), plant_full_window(ten, planter)],
        lambda: plant_slow_application(ten, _APPLICATION),
    ]
    verdicts = []
    for plant in kinds:
        for planted in plant():  # a node with a budget of its own runs while it is asked
            verdict = ask(ten, planted)
            print(" | ".join(verdict.row), flush=True)
            if not verdict.is_right:
                print(verdict.answer, flush=True)
            verdicts.append(verdict)
    return verdicts


def total(verdicts: list[Verdict]) -> list[str]:
    """Return the lines of the table of all kinds."""
    every = Counter(one.planted.kind for one in verdicts)
    right = Counter(one.planted.kind for one in verdicts if one.is_right)
    lines = [f"{kind}: {right[kind]} of {count} right" for kind, count in every.items()]
    again = sum(one.tries > 1 for one in verdicts)
    return [*lines, f"all: {right.total()} of {every.total()} right, {again} asked again because a host was busy"]


def main() -> None:
    """Run the campaign, or some of its parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=int, default=50)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--day", type=Path, help="spend the day of an operator, with pictures in this folder")
    parser.add_argument("--keep", action="store_true", help="leave the hosts running until Ctrl-C, and lose nothing")
    options = parser.parse_args()
    with hosts_of_ten() as ten:
        start_tree(ten)
        if options.keep:
            print(f"operator: {' '.join(ten.operator.wrap(['bash']))}\nfile: {ten.file}", flush=True)
            print(
                f"export {' '.join(f'{key}={value}' for key, value in ten.environment('operator').items())}", flush=True
            )
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
            return
        if options.day:
            spend(ten, options.day)
            return
        verdicts = plant_all(ten, options.losses, options.seed)
    print("\n".join(total(verdicts)))
    sys.exit(not all(one.is_right for one in verdicts))


if __name__ == "__main__":
    main()
