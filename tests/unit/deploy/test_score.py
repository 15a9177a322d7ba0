"""Scores of `pgm tune`: intervals that cover the spread of seeds, and a choice that luck does not decide."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.tune.command import front_line
from deploy.tune.score import compared, mean
from deploy.tune.search import TimerSearch
from deploy.tune.space import tunable_parameters
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial
from pgm.core_usage import CoreUsage
from pgm.prediction.delays import delays_of
from pgm.topology.load import load_checked

HALL = Path("deploy/topologies/lossy-hall.toml")


def drawn(rng: random.Random, factor: float = 1.0) -> RunMeasures:
    """Return measures with `factor` times the usual waits. The spread is 20 %, and 5 % of the traffic, so that no mean is rejected."""
    wait, p99, traffic, naks = (rng.lognormvariate(0, spread) for spread in (0.2, 0.2, 0.05, 0.2))
    return RunMeasures(factor * wait, 4 * factor * p99, 9.0, traffic, naks, 0, rng.randint(40, 80))


@pytest.mark.parametrize("seeds", [4, 8, 40])
def test_intervals_of_few_and_of_many_seeds_cover_the_score(seeds: int) -> None:
    rng, tries = random.Random(seeds), 400
    is_covered: dict[str, list[bool]] = {"score": [], "mean_ms": [], "p99_ms": []}
    for _ in range(tries):
        files = [drawn(rng) for _ in range(seeds)]
        score = compared(Candidate(), [drawn(rng, 0.5) for _ in range(seeds)], files)
        is_covered["score"].append(abs(score.value - 0.5 ** (1 / 1.75)) < score.errors.score)
        file = mean(files)
        for name in ("mean_ms", "p99_ms"):
            ratio = getattr(score.outcome, name) / getattr(file, name)
            is_covered[name].append(abs(ratio - 0.5) < getattr(score.errors, name))
    shares = {name: sum(of_tries) / tries for name, of_tries in is_covered.items()}
    assert {name: 0.9 < share < 0.99 for name, share in shares.items()} == dict.fromkeys(shares, True), shares


def test_same_losses_make_the_interval_narrow() -> None:
    rng = random.Random(2)
    files = [drawn(rng) for _ in range(8)]
    halved = [
        RunMeasures(one.mean_ms / 2, one.p99_ms / 2, 9.0, one.traffic, one.source_naks, 0, one.missed) for one in files
    ]
    score = compared(Candidate(), halved, files)
    assert (round(score.value, 6), round(score.errors.score, 6)) == (round(0.5 ** (1 / 1.75), 6), 0.0)
    assert score.is_clearly_better
    assert str(compared(Candidate(), files, files)) == "1.00"


def test_rejected_score_and_a_score_of_one_run_have_no_interval() -> None:
    file = RunMeasures(1.0, 1.0, 1.0, 1.0, 1.0, 0, 60)
    lost = compared(Candidate(), [RunMeasures(0.1, 0.1, 0.1, 1.0, 1.0, 1, 60)] * 4, [file] * 4)
    assert (str(lost), lost.as_json()["score"], lost.as_json()["errors"]["score"]) == ("rejected", None, None)
    alone = compared(Candidate(), [RunMeasures(0.1, 0.1, 0.1, 1.0, 1.0, 0, 60)], [file])
    assert (alone.errors.score, alone.is_clearly_better) == (math.inf, False)


class Luck:
    """Runs whose measures do not depend on the candidate."""

    usage = CoreUsage()

    def run(self, cases: Sequence[TuneTrial]) -> list[RunMeasures]:
        """Return measures drawn for each case."""
        return [drawn(random.Random(repr((case.candidate, case.seed)))) for case in cases]


def test_timers_of_the_file_stay_if_only_luck_is_better() -> None:
    topology = load_checked(HALL)
    delays = delays_of(topology, {}, ())
    setting = TrialSetting(HALL.read_text(), str(HALL), 100, 600, tuple(delays.items()))
    parameters = tunable_parameters(topology, delays)
    found = [TimerSearch(Luck(), setting, parameters, topology, seed, 200).go(()) for seed in range(1, 6)]
    assert min(one.value for result in found for one in result.finals) < 0.95
    assert [one.best.candidate for one in found] == [one.file.candidate for one in found] == [Candidate()] * 5
    assert front_line(found[0]).startswith("the timers of the file stay: no finalist is clearly better over ")
