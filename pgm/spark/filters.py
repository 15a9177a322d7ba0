"""Filters of a query that Spark tells the data source: sessions, sqns, receive times and subjects.

A filter decides what is not read. Spark applies all filters again to the rows that come, so a filter here may keep more
rows than it says, and never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from pgm.archive.store.selection import ANY_ENDING

_US = 1_000_000

Names = tuple[str, ...] | None  # None: all
Bounds = tuple[int | None, int | None]  # lowest value, and the value behind the highest
_UNBOUNDED: Bounds = (None, None)


@attrs.frozen
class FilterBounds:
    """Part of an archive that the filters of a query leave."""

    tsis: Names = None
    streams: Names = None
    nodes: Names = None
    subjects: Names = None
    sqns: Bounds = _UNBOUNDED
    received_us: Bounds = _UNBOUNDED  # microseconds since 1970

    @property
    def of_batches(self) -> dict[str, Any]:
        """Return what decides over single batches, as fields of a request."""
        low, high = self.received_us
        return {"streams": self.streams, "received_from_us": low, "received_until_us": high}


def bounds_of(filters: Iterable[Filter]) -> FilterBounds:
    """Return what all filters together leave. A filter of another kind or column leaves everything."""
    found = FilterBounds()
    for one in filters:
        column = ".".join(getattr(one, "attribute", ()))
        match column:
            case "tsi":
                found = attrs.evolve(found, tsis=_names(found.tsis, one))
            case "stream":
                found = attrs.evolve(found, streams=_names(found.streams, one))
            case "node":
                found = attrs.evolve(found, nodes=_names(found.nodes, one))
            case "subject":
                found = attrs.evolve(found, subjects=_subjects(found.subjects, one))
            case "sqn":
                found = attrs.evolve(found, sqns=_within(found.sqns, one, int))
            case "received":
                found = attrs.evolve(found, received_us=_within(found.received_us, one, _microseconds))
    return found


def _values_of(one: Filter) -> list[Any] | None:
    """Return the values of which a column must have one; None if the filter is of another kind."""
    if isinstance(one, (EqualTo, EqualNullSafe)):
        return None if one.value is None else [one.value]
    return [value for value in one.value if value is not None] if isinstance(one, In) else None


def _names(former: Names, one: Filter) -> Names:
    """Return the names that a filter leaves of former ones."""
    values = _values_of(one)
    return former if values is None else tuple(str(value) for value in values if former is None or value in former)


def _subjects(former: Names, one: Filter) -> Names:
    """Return the subjects that a filter leaves. A beginning counts only as long as no other filter names subjects."""
    if isinstance(one, StringStartsWith):
        return (one.value + ANY_ENDING,) if former is None else former
    if _values_of(one) is None:
        return former
    is_beginning = former is not None and any(name.endswith(ANY_ENDING) for name in former)
    return _names(None if is_beginning else former, one)


def _within(former: Bounds, one: Filter, number: Callable[[Any], int | None]) -> Bounds:
    """Return bounds that a filter narrows."""
    low: int | None = None
    high: int | None = None
    values = [number(value) for value in _values_of(one) or ()]
    known = [value for value in values if value is not None]
    if known and len(known) == len(values):
        low, high = min(known), max(known) + 1
    elif isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        at = number(one.value)
        low = None if at is None else at + isinstance(one, GreaterThan)
    elif isinstance(one, (LessThan, LessThanOrEqual)):
        at = number(one.value)
        high = None if at is None else at + isinstance(one, LessThanOrEqual)
    lows = [value for value in (former[0], low) if value is not None and value > 0]  # no sqn or time is below 0
    highs = [max(0, value) for value in (former[1], high) if value is not None]
    return max(lows, default=None), min(highs, default=None)


def _microseconds(value: Any) -> int | None:
    """Return a time as microseconds since 1970; None if the value is no time."""
    if not isinstance(value, datetime):
        return None
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _US + since.microseconds
