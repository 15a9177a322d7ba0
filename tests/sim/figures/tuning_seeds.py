"""Choices of `pgm tune` with several seeds, and the accuracy that it states, in three small trees.

`python -m tests.sim.figures.tuning_seeds` prints the tables of docs/guide/tuning.md. All choices of a tree are simulated once more with
the same new seeds. Placements are those of the trees of `tests.sim.figures.places`.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from deploy.tune.place import LocalRuns
from deploy.tune.score import Score, compared
from deploy.tune.search import SearchResult, TimerSearch
from deploy.tune.space import tunable_parameters
from deploy.tune.trial import Candidate, TrialSetting, TuneTrial, asked_segments
from pgm.parameters import ROWS
from pgm.prediction.delays import delays_of
from pgm.topology.load import loads
from tests.sim.figures import places
from tests.sim.support.files import TreeFile, floors

RUNS, SEEDS, REPEATS = 100, 3, 40
PLACE_MESSAGES = 250
_HALL = Path("deploy/topologies/lossy-hall.toml")
_KEYS = ("nak_bo_ivl", "nak_rpt_ivl", "nak_rdata_ivl")


@attrs.frozen
class Case:
    """A tree, the messages of a run, and the segment whose timers are printed."""

    text: str
    messages: int
    segment: str
    counts: tuple[tuple[str, int], ...] = ()

    def setting(self) -> TrialSetting:
        """Return the setting of simulations, with the delays of the file."""
        delays = delays_of(loads(self.text), {}, ())
        return TrialSetting(self.text, "<case>", self.messages, 600, tuple(delays.items()), counts=self.counts)


def beside_source() -> Case:
    """Return three receivers on the segment of the source."""
    tree = TreeFile()
    tree.segment("core", "10%")
    tree.source("core")
    tree.receivers("core", 3, "source")
    return Case(tree.text, 150, "core")


def behind_relay() -> Case:
    """Return a source and two receivers behind a relay."""
    return Case(floors(["10%"], [2], "4%").text, 150, "floor-1")


def hall() -> Case:
    """Return the example with bursts of losses, with four devices."""
    return Case(_HALL.read_text(), 150, "hall", (("device-*", 4),))


CASES: dict[str, Callable[[], Case]] = {
    "3 receivers beside the source, 10 %": beside_source,
    "2 receivers behind a relay, 10 %": behind_relay,
    "lossy-hall, 4 devices": hall,
}


def searched(case: Case, seed: int, runs: int = RUNS) -> SearchResult:
    """Return the timers that a search with this seed finds."""
    setting, topology = case.setting(), loads(case.text)
    asked = asked_segments(setting, 2)
    parameters = [one for one in tunable_parameters(topology, dict(setting.delays)) if one.segment in asked]
    return TimerSearch(LocalRuns(), setting, parameters, topology, seed, runs).go(())


def repeated(case: Case, candidates: Sequence[Candidate], seeds: int = REPEATS) -> list[Score]:
    """Return the scores of candidates over the same seeds, which no search has."""
    rng = random.Random("repeated")
    setting, drawn = case.setting(), [rng.getrandbits(31) for _ in range(seeds)]
    runs = [LocalRuns().run([TuneTrial(setting, one, seed) for seed in drawn]) for one in (Candidate(), *candidates)]
    return [compared(one, ours, runs[0]) for one, ours in zip(candidates, runs[1:], strict=True)]


def overlaps(first: Score, second: Score, spread: float = 0.0) -> bool:
    """Return whether the intervals of two scores, wider by `spread`, have a common value."""
    return abs(first.value - second.value) <= first.errors.score + second.errors.score + spread


def agree(first: SearchResult, second: SearchResult) -> bool:
    """Return whether two searches agree within their intervals and the differences between their halves."""
    return overlaps(first.best, second.best, first.spread + second.spread)


def timers_of(score: Score, segment: str) -> str:
    """Return the timers of a segment as text; those of the file as a dash."""
    chosen = dict(dict(score.candidate.overrides).get(segment, ()))
    return ", ".join(ROWS[key].spell(chosen[key]) for key in _KEYS if key in chosen) or "-"


def timer_rows(name: str, runs: int, seeds: int) -> tuple[list[str], bool]:
    """Return the lines of a tree in the table of timers, and whether all seeds agree."""
    case = CASES[name]()
    found = [searched(case, seed, runs) for seed in range(1, seeds + 1)]
    again = repeated(case, [one.best.candidate for one in found])
    rows = []
    for seed, (result, new) in enumerate(zip(found, again, strict=True), 1):
        best, file = result.best, result.file.outcome
        mean_wait = _share(best.outcome.mean_ms / file.mean_ms, best.errors.mean_ms)
        p99 = _share(best.outcome.p99_ms / file.p99_ms, best.errors.p99_ms)
        rows.append(
            f"| {name} | {seed} | {timers_of(best, case.segment)} | {mean_wait} | {p99} | {best} | {result.other} | {new} |"
        )
    is_true = all(overlaps(result.best, new) for result, new in zip(found, again, strict=True))
    return rows, is_true and all(agree(*pair) for pair in itertools.combinations(found, 2))


def _share(ratio: float, error: float) -> str:
    return f"{100 * ratio:.0f} ± {100 * error:.0f} %"


def place_rows(tree: str, seeds: int) -> tuple[list[str], bool]:
    """Return the lines of a tree in the table of places, and whether all seeds choose the same places with a common score."""
    found = [places.placed(tree, messages=PLACE_MESSAGES, seed=seed).best for seed in range(1, seeds + 1)]
    rows = [f"| {tree} | {seed} | {', '.join(best.place)} | {best.score} |" for seed, best in enumerate(found, 1)]
    pairs = itertools.combinations(found, 2)
    return rows, all(one.place == two.place and overlaps(one.score, two.score) for one, two in pairs)


def main() -> int:
    """Print the tables. Return 1 if intervals of two seeds are apart, or if placements differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="simulations of a search")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches of each tree")
    given = parser.parse_args()
    columns = "mean wait | 99 % within | score | other half | score with the same new seeds"
    print(f"| tree | seed | back-off, repeat, wait for RDATA | {columns} |\n|---|---|---|---|---|---|---|---|")
    agrees = [_printed(timer_rows(name, given.runs, given.seeds)) for name in CASES]
    print("\n| tree | seed | repairers | score |\n|---|---|---|---|")
    agrees += [_printed(place_rows(tree, given.seeds)) for tree in places.TREES]
    return int(not all(agrees))


def _printed(found: tuple[list[str], bool]) -> bool:
    rows, agrees = found
    print("\n".join(rows), flush=True)
    return agrees


if __name__ == "__main__":
    sys.exit(main())
