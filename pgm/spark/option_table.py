"""Options of a data source as one table: reading, checks and documentation, and readers of values that sources share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from pgm.spark.errors import BadOption

READ, WRITE = "read", "write"
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})


@attrs.frozen
class SourceOption:
    """One option. `field` is the field of the source's options for the result of `read`."""

    name: str
    field: str
    used: tuple[str, ...]
    read: Callable[[str], Any]
    default: str
    doc: str


@attrs.frozen
class OptionTable:
    """Options of a format, and the page of the docs about them."""

    format: str
    page: str
    options: Sequence[SourceOption]

    def read(self, given: Mapping[str, str], used: str) -> dict[str, Any]:
        """Return the values of the given options of a `READ` or a `WRITE`, by field; keys in any case. Raises `BadOption`."""
        known = {option.name.lower(): option for option in self.options if used in option.used}
        values: dict[str, Any] = {}
        for key, text in given.items():
            if key.lower() in _OF_SPARK:
                continue
            option = known.get(key.lower())
            if option is None:
                raise self._unknown(key.lower(), used, known)
            try:
                values[option.field] = option.read(str(text))
            except ValueError as error:
                raise BadOption(
                    f'option {option.name} = "{text}": {error}', remedy=f"{self.page} has all options"
                ) from None
        return values

    def _unknown(self, key: str, used: str, known: Mapping[str, SourceOption]) -> BadOption:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"{known[near[0]].name} is meant? " if near else ""
        return BadOption(
            f'a {used} with format "{self.format}" has no option {key!r}',
            remedy=f"{hint}there are {', '.join(option.name for option in known.values())}",
        )

    def as_markdown(self) -> str:
        """Return the table for the docs. It has a column of the uses if any option is for a write."""
        columns: dict[str, Callable[[SourceOption], str]] = {"option": lambda option: f"`{option.name}`"}
        if any(WRITE in option.used for option in self.options):
            columns["for"] = lambda option: ", ".join(option.used)
        columns |= {"default": lambda option: option.default, "meaning": lambda option: option.doc.replace("|", "\\|")}
        rows = [columns.keys(), *([cell(option) for cell in columns.values()] for option in self.options)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], f"|{'---|' * len(columns)}", *lines[1:]]) + "\n"


def names_of(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas. Raises ValueError."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("names are separated by commas, and none is empty")
    return names


def flag_of(text: str) -> bool:
    """Return true or false. Raises ValueError."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("the value is neither true nor false")
    return text.strip().lower() == "true"


def count_of(text: str) -> int:
    """Return a whole number above 0. Raises ValueError."""
    if not text.strip().isdigit() or int(text) == 0:
        raise ValueError("the value is no whole number above 0")
    return int(text)


def seconds_of(text: str) -> float:
    """Return a number of seconds, which may be 0. Raises ValueError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise ValueError("the value is no number of seconds, such as 10")
    return seconds
