"""Score of a candidate, relative to the original file: latency, traffic and NAKs at the source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from deploy.terminal.tables import TableColumn
from deploy.tune.trial import Candidate, RunMeasures

# Weights in the score: the latency of repairs, the traffic for repairs, the NAKs at the source.
_LATENCY, _TRAFFIC, _SOURCE = 1.0, 0.5, 0.25
_WORST_TRAFFIC = 1.25  # largest acceptable ratio of the traffic to that of the original file

SCORE_COLUMNS = (
    TableColumn("mean wait"), TableColumn("99 % within"), TableColumn("packets per missed"),
    TableColumn("NAKs at source", 1), TableColumn("lost", 2), TableColumn("score"),
)  # fmt: skip


@attrs.frozen
class Score:
    """Mean outcome and score of a candidate over the seeds of a round. The original file scores 1; less is better."""

    candidate: Candidate
    outcome: RunMeasures
    value: float
    runs: int

    def __str__(self) -> str:
        return spelled(self.value)

    def cells(self) -> list[str]:
        """Return the row of a table with `SCORE_COLUMNS`."""
        run = self.outcome
        figures = (f"{run.mean_ms:.1f} ms", f"{run.p99_ms:.0f} ms", f"{run.traffic:.2f}", f"{run.source_naks:.3f}")
        return [*figures, f"{run.lost:,}", str(self)]

    def as_json(self) -> dict[str, Any]:
        """Return the score and its measures as a value for JSON."""
        return {"score": finite(self.value), "runs": self.runs, **attrs.asdict(self.outcome)}


def spelled(value: float) -> str:
    """Return the value of a score for people."""
    return "rejected" if value == math.inf else f"{value:.2f}"


def finite(value: float) -> float | None:
    """Return the value of a score for JSON; None if the candidate is rejected."""
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

    def log_ratio(ours: float, theirs: float) -> float:
        return math.log(max(ours, 1e-3) / max(theirs, 1e-3))

    latency = (log_ratio(outcome.mean_ms, file.mean_ms) + log_ratio(outcome.p99_ms, file.p99_ms)) / 2
    traffic, source = log_ratio(outcome.traffic, file.traffic), log_ratio(outcome.source_naks, file.source_naks)
    weights = _LATENCY + _TRAFFIC + _SOURCE
    return math.exp((_LATENCY * latency + _TRAFFIC * traffic + _SOURCE * source) / weights)
