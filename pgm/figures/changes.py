"""Changes of regime in series by minute: candidates by the library ruptures, kept if they are significant.

A series is told to have changed only if values before and after differ by a test of ranks, which assumes nothing about their
distribution. The test counts dependent neighbours as fewer samples, and its level is shared by all places where a change
could be. A change must also be large enough to matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import UsageError

Floats = npt.NDArray[np.float64]

_LEAST_SAMPLES = 10  # on each side of a change
# Chance of a false change in one look, at most. A job looks each minute, and tells each finding that any look has: 200 series
# without a change of eight hours, looked at every ten minutes, had two such findings at most (at 0.01, six).
_LEVEL = 0.001
_PENALTY = 3.0  # x log(samples), of a change; low, since the test decides
_LEAST_TIMES = 1.3  # ratio of the means
_MOST_DEPENDENT = 0.95  # correlation of neighbours
_MOST_SAMPLES = 10_080  # of a series: a week of minutes


@attrs.frozen
class Change:
    """Change between two samples. `at` is the index of the first sample after it.

    `before` and `after` are the means of `samples_before` and `samples_after` samples. `p` is the chance of so clear a
    difference anywhere in a series without a change.
    """

    at: int
    before: float
    after: float
    samples_before: int
    samples_after: int
    p: float


def changes_of(values: Sequence[float]) -> list[Change]:
    """Return the changes of a series, the earliest first. Raises `UsageError` without ruptures."""
    series = np.asarray(values[-_MOST_SAMPLES:], float)
    skipped = len(values) - len(series)
    edges = [0, *_candidates(series), len(series)]
    while len(edges) > 2:
        tests = [_p(series[low:at], series[at:high], len(series)) for low, at, high in zip(edges, edges[1:], edges[2:], strict=False)]  # fmt: skip
        worst = int(np.argmax(tests))
        if tests[worst] <= _LEVEL:
            break
        del edges[worst + 1]  # the least significant goes first, and its neighbours are tested anew
    found = [_change(series, *place) for place in zip(edges, edges[1:], edges[2:], strict=False)]
    return [attrs.evolve(change, at=change.at + skipped) for change in found]


def _candidates(series: Floats) -> list[int]:
    """Return where ruptures divides the series: ranks, so that a burst is no change."""
    if len(series) < 2 * _LEAST_SAMPLES or series.min() == series.max():
        return []
    try:
        import ruptures
        from scipy.stats import rankdata
    except ImportError:
        raise UsageError(
            "changes of regime are found by ruptures, which is missing",
            remedy="pip install 'pgm-repair-network[spark]'",
        ) from None
    ranks = rankdata(series)
    signal = (ranks - ranks.mean()) / ranks.std()
    search = ruptures.KernelCPD(kernel="linear", min_size=_LEAST_SAMPLES).fit(signal.reshape(-1, 1))
    places: list[int] = search.predict(pen=_PENALTY * math.log(len(series)))
    return places[:-1]


def _p(before: Floats, after: Floats, places: int) -> float:
    """Return the chance of such a difference at any of `places` in a series without changes; 1 for one too small to matter."""
    from scipy.stats import mannwhitneyu

    low, high = sorted((float(before.mean()), float(after.mean())))
    if high < _LEAST_TIMES * low or before.min() == before.max() == after.min() == after.max():
        return 1.0
    chance = float(mannwhitneyu(before, after, method="asymptotic").pvalue)
    deviations = math.sqrt(2) * _normal(chance)
    rest = np.concatenate([before - before.mean(), after - after.mean()])
    deviations *= math.sqrt((1 - _dependence(rest)) / (1 + _dependence(rest)))
    return min(1.0, places * math.erfc(deviations / math.sqrt(2)))


def _normal(chance: float) -> float:
    """Return x with erfc(x) = `chance`."""
    from scipy.special import erfcinv

    return float(erfcinv(max(chance, 1e-300)))


def _dependence(rest: Floats) -> float:
    """Return the correlation of neighbours, 0 to `_MOST_DEPENDENT`."""
    spread = float((rest**2).sum())
    if not spread:
        return 0.0
    return min(_MOST_DEPENDENT, max(0.0, float((rest[1:] * rest[:-1]).sum()) / spread))


def _change(series: Floats, low: int, at: int, high: int) -> Change:
    before, after = series[low:at], series[at:high]
    p = _p(before, after, len(series))
    return Change(at, float(before.mean()), float(after.mean()), len(before), len(after), p)
