"""Repairers where `pgm tune --place` puts them, beside an even spread, in three trees with uneven loss.

`python -m tests.sim.figures.places` prints the table of docs/guide/tuning.md. The relays keep nothing, as in RFC 3208, so every loss
below a segment without a repairer reaches the source.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from deploy.tune.command import shapes_of
from deploy.tune.place import SEARCH_DRAWS, LocalRuns, PlaceResult, PlaceSearch, proved
from deploy.tune.score import Score, spelled
from deploy.tune.trial import TrialSetting
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, Offer
from pgm.topology.load import loads
from tests.sim.support.files import NO_CACHE, TreeFile, floors

MESSAGES, SIZE = 1500, 1000
REPAIRERS = 2
SEEDS = 4


def uneven_losses() -> TreeFile:
    """Return eight floors of six receivers, of which two lose ten times as much as the others."""
    losses = ["3%", *["0.2%"] * 4, "2%", *["0.2%"] * 2]
    return floors(losses, [6] * 8, "0.2%", keeps=False)


def uneven_crowds() -> TreeFile:
    """Return six floors with the same loss, two of them with many receivers."""
    return floors(["0.5%"] * 6, [2, 30, 2, 2, 2, 24], "0.2%", keeps=False)


def two_tiers() -> TreeFile:
    """Return three houses of two floors, behind two relays that keep nothing, with one bad house and one bad floor."""
    tree = TreeFile(rate="40Mbit/s")
    tree.segment("core")
    tree.source("core")
    for house, uplink in ((1, "0.2%"), (2, "1.5%"), (3, "0.2%")):
        tree.segment(f"house-{house}")
        upper = tree.relay("core", f"house-{house}", uplink, more=NO_CACHE)
        for floor in (1, 2):
            name = f"floor-{house}-{floor}"
            tree.segment(name, "2.5%" if name in ("floor-1-2", "floor-3-2") else "0.3%")
            tree.receivers(name, 6, tree.relay(f"house-{house}", name, "0.2%", upper, more=NO_CACHE))
    return tree


TREES: dict[str, Callable[[], TreeFile]] = {
    "8 floors, two lose 3 % and 2 %, others 0.2 %": uneven_losses,
    "6 floors at 0.5 %, two with 30 and 24 receivers": uneven_crowds,
    "two tiers, two floors lose 2.5 %, one house 1.5 %": two_tiers,
}


def placed(tree: str, *, messages: int = MESSAGES, seeds: int = SEEDS, seed: int = 1) -> PlaceResult:
    """Return the placements of a tree."""
    text = TREES[tree]().text
    topology = loads(text, tree)
    delays = delays_of(topology, {}, ())
    conditions = Conditions(delays=delays, offer=Offer(size=SIZE), draws=SEARCH_DRAWS)
    setting = TrialSetting(text, tree, messages, SIZE, tuple(delays.items()))
    return proved(PlaceSearch(topology, conditions, shapes_of(topology)), REPAIRERS, setting, LocalRuns(), seeds, seed)


def lines(tree: str, result: PlaceResult) -> list[str]:
    """Return the lines of a tree in the table."""
    rows = [("as it is", result.file), (_named(result.best.place), result.best.score)]
    rows.append((f"even spread: {_named(result.even.place)}", result.even.score))
    return [f"| {tree} | {name} | {_cells(score)} |" for name, score in rows]


def _named(place: tuple[str, ...]) -> str:
    return ", ".join(place)


def _cells(score: Score) -> str:
    run = score.outcome
    return f"{run.mean_ms:.1f} ms | {run.p99_ms:.0f} ms | {run.traffic:.2f} | {run.source_naks:.3f} | {spelled(score.value)}"


def main() -> int:
    """Print the table. Return 1 if an even spread is as good in some tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="messages of a run")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each placement")
    given = parser.parse_args()
    heads = "| tree | repairers | mean wait | 99 % within | packets per packet missed | NAKs at the source per packet missed | score |"
    print(f"{heads}\n|---|---|---|---|---|---|---|")
    is_better = True
    for tree in TREES:
        result = placed(tree, messages=given.messages, seeds=given.seeds)
        print("\n".join(lines(tree, result)), flush=True)
        is_better = is_better and result.best.score.value < result.even.score.value
    return int(not is_better)


if __name__ == "__main__":
    sys.exit(main())
