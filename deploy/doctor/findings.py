"""Findings of checks, merged for several subjects into one line."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

import attrs

_MOST_SUBJECTS = 4  # named in a line


class Level(enum.Enum):
    """Severity of a finding."""

    OK = "ok"
    ADVICE = "advice"  # the node works, and could work better
    FAULT = "fault"  # a node will not start, or will lose packets


@attrs.frozen
class HostFinding:
    """Result of one check of a node, a segment, an interface or this machine. All values are text for people."""

    check: str
    subject: str
    level: Level
    found: str
    wanted: str = ""
    remedy: str = ""


@attrs.frozen
class FindingLine:
    """One finding for one or several subjects."""

    finding: HostFinding
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """Return the names of some subjects, and the number of the others."""
        more = len(self.subjects) - _MOST_SUBJECTS
        named = ", ".join(self.subjects[:_MOST_SUBJECTS])
        return f"{named} and {more} more" if more > 0 else named


def lines_of(findings: Iterable[HostFinding]) -> list[FindingLine]:
    """Merge findings that differ in their subject alone. A merged line stands in the place of its first finding."""
    subjects_of: dict[HostFinding, dict[str, None]] = {}
    for finding in findings:
        subjects_of.setdefault(attrs.evolve(finding, subject=""), {})[finding.subject] = None
    return [FindingLine(finding, tuple(subjects)) for finding, subjects in subjects_of.items()]


Finder = Callable[[str, str, str, str, str], HostFinding]


def ok(check: str, subject: str, found: str, wanted: str = "") -> HostFinding:
    """Return a finding without fault."""
    return HostFinding(check, subject, Level.OK, found, wanted)


def advice(check: str, subject: str, found: str, wanted: str, remedy: str) -> HostFinding:
    """Return a finding for which the node works, and could work better."""
    return HostFinding(check, subject, Level.ADVICE, found, wanted, remedy)


def fault(check: str, subject: str, found: str, wanted: str, remedy: str) -> HostFinding:
    """Return a finding for which a node will not start, or will lose packets."""
    return HostFinding(check, subject, Level.FAULT, found, wanted, remedy)


def judged(
    check: str, subject: str, is_good: bool, found: str, wanted: str, remedy: str, *, otherwise: Finder = advice
) -> HostFinding:
    """Return a finding without fault if `is_good`, else that of `otherwise`."""
    return ok(check, subject, found, wanted) if is_good else otherwise(check, subject, found, wanted, remedy)
