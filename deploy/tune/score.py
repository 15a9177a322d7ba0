"""Score of a candidate, relative to the original file: latency, traffic and NAKs at the source."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import attrs

from deploy.terminal.tables import TableColumn
from deploy.tune.trial import Candidate, RunMeasures

# Weights in the score: the latency of repairs (mean and p99) 1, the traffic for repairs 0.5, the NAKs at the source 0.25.
_WEIGHTS = {"mean_ms": 0.5 / 1.75, "p99_ms": 0.5 / 1.75, "traffic": 0.5 / 1.75, "source_naks": 0.25 / 1.75}
_MEAN_OF_RUNS = "p99_ms"  # the measure that is a mean over runs; others are means over missed packets
_FLOOR = 1e-3  # smaller measures count as this one
_WORST_TRAFFIC = 1.25  # largest acceptable ratio of the traffic to that of the original file
_CONFIDENCE = 0.95  # of the stated intervals

SCORE_COLUMNS = (
    TableColumn("mean wait"), TableColumn("99 % within"), TableColumn("packets per missed"),
    TableColumn("NAKs at source", 1), TableColumn("lost", 2), TableColumn("score"),
)  # fmt: skip


@attrs.frozen
class Errors:
    """Half widths of 95 % intervals: of a score, and of the ratios of its measures to those that it is relative to."""

    score: float = 0.0
    mean_ms: float = 0.0
    p99_ms: float = 0.0
    traffic: float = 0.0
    source_naks: float = 0.0


@attrs.frozen
class Score:
    """Mean outcome and score of a candidate over the seeds of a round. The original file scores 1; less is better."""

    candidate: Candidate
    outcome: RunMeasures
    value: float
    runs: int
    errors: Errors = Errors()

    def __str__(self) -> str:
        exact = self.value == math.inf or not self.errors.score
        return spelled(self.value) + ("" if exact else f" ± {self.errors.score:.2f}")

    @property
    def is_clearly_better(self) -> bool:
        """Return whether the score is below 1 by more than its error."""
        return self.value + self.errors.score < 1

    def cells(self) -> list[str]:
        """Return the row of a table with `SCORE_COLUMNS`."""
        run = self.outcome
        figures = (f"{run.mean_ms:.1f} ms", f"{run.p99_ms:.0f} ms", f"{run.traffic:.2f}", f"{run.source_naks:.3f}")
        return [*figures, f"{run.lost:,}", str(self)]

    def as_json(self) -> dict[str, Any]:
        """Return the score and its measures as a value for JSON."""
        errors = {name: finite(error) for name, error in attrs.asdict(self.errors).items()}
        return {"score": finite(self.value), "errors": errors, "runs": self.runs, **attrs.asdict(self.outcome)}


def spelled(value: float) -> str:
    """Return the value of a score for people."""
    return "rejected" if value == math.inf else f"{value:.2f}"


def finite(value: float) -> float | None:
    """Return the value of a score for JSON; None if it is infinite."""
    return None if value == math.inf else round(value, 4)


def mean(outcomes: Sequence[RunMeasures]) -> RunMeasures:
    """Return the mean of outcomes, with the sum of losses and of missed packets, and the maximum of the worst waits.

    Means other than the p99 are weighted by missed packets.
    """
    count, missed = len(outcomes), max(1, sum(outcome.missed for outcome in outcomes))

    def of_missed(name: str) -> float:
        return float(sum(getattr(outcome, name) * outcome.missed for outcome in outcomes) / missed)

    return RunMeasures(
        mean_ms=of_missed("mean_ms"),
        p99_ms=sum(outcome.p99_ms for outcome in outcomes) / count,
        worst_ms=max(outcome.worst_ms for outcome in outcomes),
        traffic=of_missed("traffic"),
        source_naks=of_missed("source_naks"),
        lost=sum(outcome.lost for outcome in outcomes),
        missed=sum(outcome.missed for outcome in outcomes),
    )


def value_of(outcome: RunMeasures, file: RunMeasures) -> float:
    """Return the score of an outcome relative to the file's: a weighted geometric mean of ratios, less is better.

    The score is infinite for more losses than the file's, or for more than `_WORST_TRAFFIC` times its traffic.
    """
    if outcome.lost > file.lost or outcome.traffic > _WORST_TRAFFIC * file.traffic:
        return math.inf
    return math.exp(sum(weight * math.log(_ratio(outcome, file, name)) for name, weight in _WEIGHTS.items()))


def compared(candidate: Candidate, runs: Sequence[RunMeasures], others: Sequence[RunMeasures]) -> Score:
    """Return the score of a candidate's runs relative to those of another candidate with the same seeds.

    The errors come from the spread of the differences between runs of the same seed.
    """
    ours, theirs = mean(runs), mean(others)
    differences = {
        name: [
            our - their for our, their in zip(_effects(runs, ours, name), _effects(others, theirs, name), strict=True)
        ]
        for name in _WEIGHTS
    }
    value = value_of(ours, theirs)
    of_runs = [sum(map(float.__mul__, _WEIGHTS.values(), one)) for one in zip(*differences.values(), strict=True)]
    errors = {name: _ratio(ours, theirs, name) * _half_width(found) for name, found in differences.items()}
    errors["score"] = math.inf if value == math.inf else value * _half_width(of_runs)
    return Score(candidate, ours, value, len(runs), Errors(**errors))


def _ratio(ours: RunMeasures, theirs: RunMeasures, name: str) -> float:
    return float(max(getattr(ours, name), _FLOOR) / max(getattr(theirs, name), _FLOOR))


def _effects(runs: Sequence[RunMeasures], outcome: RunMeasures, name: str) -> list[float]:
    """Return by how much each run moves the logarithm of a mean measure, to first order and times the number of runs."""
    whole = float(getattr(outcome, name))
    if whole <= _FLOOR:
        return [0.0] * len(runs)
    if name == _MEAN_OF_RUNS:
        return [getattr(run, name) / whole - 1 for run in runs]
    missed = max(1, outcome.missed) / len(runs)
    return [run.missed / missed * (getattr(run, name) / whole - 1) for run in runs]


def _half_width(effects: Sequence[float]) -> float:
    """Return half the width of the interval of a mean. It is infinite for one run."""
    if len(effects) < 2:
        return math.inf
    return _student(len(effects) - 1) * statistics.stdev(effects) / math.sqrt(len(effects))


def _student(freedom: int) -> float:
    """Return the quantile of Student's distribution for `_CONFIDENCE`, by the expansion of Cornish and Fisher.

    The value is too small by 24 % for one degree of freedom, 3 % for two, 0.7 % for three, and 0.1 % at most from five on. scipy
    would be exact, but is no dependency of the command.
    """
    z = statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2) + third
