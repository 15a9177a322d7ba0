"""Findings as lines for people, and as rows for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from deploy.doctor.findings import HostFinding, Level, lines_of

_ORDER = (Level.OK, Level.ADVICE, Level.FAULT)


def rows_of(findings: Iterable[HostFinding]) -> list[dict[str, Any]]:
    """Return findings as plain values for JSON."""
    return [{**attrs.asdict(finding), "level": finding.level.value} for finding in findings]


def print_findings(findings: Iterable[HostFinding], *, shows_all: bool) -> None:
    """Print the findings, faults last, and their numbers. Those without a fault are printed only with `shows_all`."""
    lines = sorted(lines_of(findings), key=lambda line: _ORDER.index(line.finding.level))
    for line in lines:
        finding = line.finding
        if finding.level is Level.OK and not shows_all:
            continue
        wanted = f"; wanted: {finding.wanted}" if finding.wanted else ""
        print(f"{finding.level.value}: {finding.check} ({line.about}): {finding.found}{wanted}")
        if finding.remedy:
            print(f"  remedy: {finding.remedy}")
    counts = {level: sum(line.finding.level is level for line in lines) for level in _ORDER}
    print(f"{counts[Level.OK]} ok, advice: {counts[Level.ADVICE]}, faults: {counts[Level.FAULT]}")
