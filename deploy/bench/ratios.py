"""Ratios between contenders.

Ratios vary less between machines than absolute figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.bench.benchmarks.file_contenders import FILE_CONTENDERS
from deploy.bench.contenders.registry import CONTENDERS
from deploy.bench.settings import Row

Ratios = dict[str, dict[str, float]]

_OURS = {one.name for one in CONTENDERS if one.is_ours} | {one.name for one in FILE_CONTENDERS if one.is_ours}


def ratios_of(rows: Iterable[Row], key: str, by: str = "size") -> Ratios:
    """Return the ratio of each of pgm's rows to each other row, by group.

    Rows are grouped by the value of `by`. Example: `{"1400": {"ours-trio/openpgm": 6.1}}`.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.get(key):
            groups.setdefault(str(row[by]), []).append(row)
    return {group: found for group, members in groups.items() if (found := _of_group(members, key))}


def part_of(one: float, other: float) -> float | None:
    """Return `one` as a share of `other`, or None if `other` is 0."""
    return round(one / other, 3) if other else None


def _of_group(rows: Sequence[Row], key: str) -> dict[str, float]:
    found = {}
    for ours in rows:
        for other in rows:
            if ours["contender"] in _OURS and other["contender"] not in _OURS:
                found[f"{ours['contender']}/{other['contender']}"] = round(ours[key] / other[key], 3)
    return found
