"""Problems of a topology file, with their places."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import attrs

from pgm.errors import TopologyError


@attrs.frozen
class Problem:
    """An error or a warning, with its place in the file and its remedy."""

    file: str
    line: int  # 0: the file as a whole
    rule: str  # name of the rule that found it
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{where}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


def error_of(problems: Iterable[Problem]) -> TopologyError:
    """Return all problems as one exception."""
    problems = list(problems)
    return TopologyError([str(problem) for problem in problems], rows=[attrs.asdict(problem) for problem in problems])


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest known name, or the list of known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "there are none in this file"
    return f"known are {joined(names, most=12)}"


def joined(names: Iterable[str], *, most: int = 8) -> str:
    """Return names for a message, and the number of those left out."""
    names = list(names)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
