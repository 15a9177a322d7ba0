"""Small values of a summary: ratios, quantiles of histograms, and times as text."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from pgm.figures.event_rows import Ints

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def ratio(part: float, total: float) -> float | None:
    """Return a share; None of nothing."""
    return part / total if total else None


def percentile(values: Sequence[float], counts: Ints, share: float) -> float:
    """Return a quantile of sorted values that occur `counts` times, between two neighbours in proportion, as Spark does."""
    ends = counts.cumsum()
    place = (int(ends[-1]) - 1) * share
    low, high = math.floor(place), math.ceil(place)
    lower, higher = (values[int(ends.searchsorted(at + 1))] for at in (low, high))
    return float(lower) if lower == higher else (high - place) * lower + (place - low) * higher


def iso(time_us: int) -> str:
    """Return a time in microseconds since 1970 as text in UTC."""
    return (_EPOCH + datetime.timedelta(microseconds=time_us)).isoformat()
