"""Ratios between contenders. Ratios vary less between machines than absolute figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deploy.bench.contenders.files import FILE_CONTENDERS
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
    return {group: group_ratios for group, members in groups.items() if (group_ratios := _group_ratios(members, key))}


def part_of(figure: float, reference: float) -> float | None:
    """Return `one` as a share of `other`, or None if `other` is 0."""
    return round(figure / reference, 3) if reference else None


def _group_ratios(rows: Sequence[Row], key: str) -> dict[str, float]:
    ratios = {}
    for ours in rows:
        for other in rows:
            if ours["contender"] in _OURS and other["contender"] not in _OURS:
                ratios[f"{ours['contender']}/{other['contender']}"] = round(ours[key] / other[key], 3)
    return ratios
