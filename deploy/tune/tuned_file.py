"""The topology file that `pgm tune` writes: the one it was given, with other values where they were chosen, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from deploy.tune.trial import Candidate
from pgm.errors import UsageError
from pgm.parameters import ROWS
from pgm.topology.load import loads
from pgm.topology.model import Topology

_HEADER = re.compile(r"^\s*\[")


def require_tables(file: Path, topology: Topology) -> None:
    """Raise `UsageError`, before an hour of simulations, where a segment has no table in a file to write its timers into."""
    lines = file.read_text().splitlines()
    for name in topology.segments:
        if _table(lines, f"segments.{name}") is None:
            header = f"[segments.{_spell(name)}]"
            raise UsageError(
                f"{file}: there is no table {header} to write timers into",
                remedy=f"write {header}, and what is known of that segment in lines below it",
            )


def tuned_text(
    text: str, topology: Topology, candidate: Candidate, head: Sequence[str], why: dict[tuple[str, str], str]
) -> str:
    """The text of a file with the candidate's values in it. `head` is told at the top, `why` beside each value.

    Raises `TopologyError` if the result were no valid file.
    """
    lines = text.splitlines()
    for segment, values in candidate.overrides:
        written = {
            key: ROWS[key].spell(value)
            for key, value in {**topology.segments[segment].parameters, **dict(values)}.items()
        }
        _put(lines, segment, written, {key: why.get((segment, key), "") for key in written})
    told = "\n".join(f"# {line}".rstrip() for line in head)
    result = f"{told}\n" + "\n".join(lines) + "\n"
    loads(result, "<tuned>")
    return result


def _put(lines: list[str], segment: str, values: dict[str, str], why: dict[str, str]) -> None:
    """Replace the parameters of a segment in the lines of a file."""
    own = _table(lines, f"segments.{segment}")
    apart = _table(lines, f"segments.{segment}.parameters")
    if apart is not None:
        first, end = apart
        del lines[first:end]
        own = _table(lines, f"segments.{segment}")
    assert own is not None, segment
    first, end = own
    for at in range(end - 1, first, -1):
        if re.match(r"\s*parameters\s*[=.]", lines[at]):
            del lines[at]
            end -= 1
    while end > first + 1 and not lines[end - 1].strip():
        end -= 1
    written = [f"[segments.{_spell(segment)}.parameters]"]
    for key, value in values.items():
        quoted = value if re.fullmatch(r"-?\d+|true|false", value) else f'"{value}"'
        comment = f"  # {why[key]}" if why[key] else ""
        written.append(f"{key} = {quoted}{comment}")
    lines[end:end] = written


def _spell(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def _table(lines: Sequence[str], name: str) -> tuple[int, int] | None:
    """Where a table stands: the line of its header, and the line behind its last."""
    wanted = name.replace('"', "")
    for first, line in enumerate(lines):
        header = re.match(r"\s*\[([^\[\]]+)\]", line)
        if header is None or re.sub(r"[\"'\s]", "", header[1]) != wanted:
            continue
        end = first + 1
        while end < len(lines) and not _HEADER.match(lines[end]):
            end += 1
        while end > first + 1 and lines[end - 1].lstrip().startswith("#"):
            end -= 1  # comments that belong to the next table
        return first, end
    return None
