"""What a check found, and how findings of many nodes become few lines."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import attrs

_MOST_SUBJECTS = 4  # that are named


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    ADVICE = "advice"  # it works, and could be better
    FAULT = "fault"  # a node will not start, or will lose packets


@attrs.frozen
class HostFinding:
    """One check of one subject: a node, a segment, an interface, or this machine. All values are for people to read."""

    check: str
    subject: str
    level: Level
    found: str
    wanted: str = ""
    remedy: str = ""


@attrs.frozen
class FindingLine:
    """The same finding for one or several subjects."""

    finding: HostFinding
    subjects: tuple[str, ...]

    @property
    def about(self) -> str:
        """The subjects in a few words."""
        more = len(self.subjects) - _MOST_SUBJECTS
        named = ", ".join(self.subjects[:_MOST_SUBJECTS])
        return f"{named} and {more} more" if more > 0 else named


def lines_of(findings: Iterable[HostFinding]) -> list[FindingLine]:
    """Findings that differ in their subject alone are one line, where the first of them stood."""
    found: dict[HostFinding, dict[str, None]] = {}
    for one in findings:
        found.setdefault(attrs.evolve(one, subject=""), {})[one.subject] = None
    return [FindingLine(one, tuple(subjects)) for one, subjects in found.items()]


def ok(check: str, subject: str, found: str, wanted: str = "") -> HostFinding:
    """All is well."""
    return HostFinding(check, subject, Level.OK, found, wanted)


def advice(check: str, subject: str, found: str, wanted: str, remedy: str) -> HostFinding:
    """It works, and could be better."""
    return HostFinding(check, subject, Level.ADVICE, found, wanted, remedy)


def fault(check: str, subject: str, found: str, wanted: str, remedy: str) -> HostFinding:
    """A node will not start, or will lose packets."""
    return HostFinding(check, subject, Level.FAULT, found, wanted, remedy)
