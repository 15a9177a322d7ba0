"""Topology file that `pgm tune` writes: the given file with the chosen values and the reason for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from deploy.tune.trial import Candidate, extra_name, free_address, receivers_on, with_repairer
from pgm.errors import UsageError
from pgm.parameters import ROWS
from pgm.topology.load import loads
from pgm.topology.model import Topology

# Comments that this module wrote beside values: reasons of an earlier search
_OWN = re.compile(r"was .*measured with all values together|unchanged$|at most a quarter of |\d+ times the sufficient ")
_HEADER = re.compile(r"^\s*\[")


def require_tables(file: Path, topology: Topology) -> None:
    """Check, before an hour of simulations, that each segment has a table in the file for its timers. Raises `UsageError`."""
    lines = file.read_text().splitlines()
    for name in topology.segments:
        if _table(lines, f"segments.{name}") is None:
            header = f"[segments.{_spell(name)}]"
            raise UsageError(
                f"{file}: there is no table {header} to write timers into",
                remedy=f"write {header}, with the keys of that segment in the lines below",
            )


def require_places(file: Path, topology: Topology, segments: Sequence[str]) -> None:
    """Check that segments have an address for a repairer, and their receivers tables for a new parent. Raises `UsageError`."""
    lines = file.read_text().splitlines()
    for segment in segments:
        free_address(topology, segment)
        for node in receivers_on(topology, segment):
            if _table(lines, f"nodes.{node.name}") is None:
                header = f"[nodes.{_spell(node.name)}]"
                raise UsageError(
                    f"{file}: there is no table {header}, so its parents cannot be changed",
                    remedy=f"write {header}, with the keys of that node in the lines below",
                )


def placed_text(text: str, topology: Topology, segments: Sequence[str], why: dict[str, str]) -> str:
    """Return a file's text with one more repairer on each of some segments, and `why` beside it. Raises `TopologyError`."""
    for segment in segments:
        lines = text.splitlines()
        receivers, name = receivers_on(topology, segment), extra_name(segment)
        for node in receivers:
            _put_parents(lines, node.name, (name, *node.parents))
        text = "\n".join([*lines, "", *_repairer_lines(topology, segment, receivers[0].parents, why[segment])]) + "\n"
        topology = with_repairer(topology, segment)
    loads(text, "<placed>")
    return text


def _repairer_lines(topology: Topology, segment: str, parents: Sequence[str], why: str) -> list[str]:
    return [
        f"[nodes.{_spell(extra_name(segment))}]  # {why}",
        'role = "repairer"',
        f"segment = {_quoted(segment)}",
        f"address = {_quoted(free_address(topology, segment))}  # the highest address that no node has: choose a host",
        f"parents = [{', '.join(map(_quoted, parents))}]",
    ]


def _put_parents(lines: list[str], node: str, parents: Sequence[str]) -> None:
    """Replace the parents of a node, in place, in the lines of a file."""
    table = _table(lines, f"nodes.{node}")
    assert table is not None, node
    first, end = table
    written = f"parents = [{', '.join(map(_quoted, parents))}]"
    for at in range(first + 1, end):
        if re.match(r"\s*parents\s*=", lines[at]):
            last = at
            while "]" not in lines[last].partition("#")[0]:
                last += 1
            comments = [f"  #{found}" for line in lines[at : last + 1] for found in line.partition("#")[2:] if found]
            lines[at : last + 1] = [written + "".join(comments)]
            return
    lines.insert(first + 1, written)


def _quoted(name: str) -> str:
    return f'"{name}"'


def tuned_text(
    text: str, topology: Topology, candidate: Candidate, head: Sequence[str], why: dict[tuple[str, str], str]
) -> str:
    """Return a file's text with `head` first, the candidate's values, and `why` beside each. Raises `TopologyError`."""
    lines = text.splitlines()
    for segment, values in candidate.overrides:
        given = {key: _valued(ROWS[key].spell(value)) for key, value in topology.segments[segment].parameters.items()}
        reasons = {key: f"  # {why[segment, key]}" if (segment, key) in why else "" for key, _ in values}
        _put(lines, segment, given, {key: _valued(ROWS[key].spell(value)) + reasons[key] for key, value in values})
    comments = "\n".join(f"# {line}".rstrip() for line in head)
    result = f"{comments}\n" + "\n".join(lines) + "\n"
    loads(result, "<tuned>")
    return result


def _put(lines: list[str], segment: str, given: dict[str, str], chosen: dict[str, str]) -> None:
    """Put the `chosen` parameters of a segment beside those `given`, in place, in the lines of a file.

    Keys are parameters, and values the text behind the equals sign. Comments of the file stay.
    """
    table = _table(lines, f"segments.{segment}.parameters")
    if table is None:
        _move_to_table(lines, segment, given)
        table = _table(lines, f"segments.{segment}.parameters")
    assert table is not None, segment
    first, end = table
    while end > first + 1 and not lines[end - 1].strip():
        end -= 1
    for key, value in chosen.items():
        at = next((at for at in range(first + 1, end) if re.match(rf"\s*\"?{key}\"?\s*=", lines[at])), None)
        if at is None:
            lines.insert(end, f"{key} = {value}")
            end += 1
        else:
            lines[at] = f"{key} = {value}{_notes(lines[at])}"


def _move_to_table(lines: list[str], segment: str, given: dict[str, str]) -> None:
    """Replace the key `parameters` of a segment, in place, by a table with the same parameters."""
    segment_table = _table(lines, f"segments.{segment}")
    assert segment_table is not None, segment
    first, end = segment_table
    notes: dict[str, str] = {}
    for at in range(end - 1, first, -1):
        if found := re.match(r"\s*parameters\s*(?:\.\s*\"?(\w+)\"?\s*)?=", lines[at]):
            notes[found[1] or ""] = _notes(lines[at])
            del lines[at]
            end -= 1
    while end > first + 1 and not lines[end - 1].strip():
        end -= 1
    header = f"[segments.{_spell(segment)}.parameters]{notes.get('', '')}"
    lines[end:end] = [header, *(f"{key} = {value}{notes.get(key, '')}" for key, value in given.items())]


def _notes(line: str) -> str:
    """Return the comments at the end of a line, without those of an earlier search."""
    notes = [note.strip() for note in line.split("#")[1:]]
    return "".join(f"  # {note}" for note in notes if note and not _OWN.match(note))


def _valued(value: str) -> str:
    return value if re.fullmatch(r"-?\d+|true|false", value) else _quoted(value)


def _spell(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def _table(lines: Sequence[str], name: str) -> tuple[int, int] | None:
    """Return the index of a table's header line and the index after its last line; None if there is no such table."""
    unquoted = name.replace('"', "")
    for first, line in enumerate(lines):
        header = re.match(r"\s*\[([^\[\]]+)\]", line)
        if header is None or re.sub(r"[\"'\s]", "", header[1]) != unquoted:
            continue
        end = first + 1
        while end < len(lines) and not _HEADER.match(lines[end]):
            end += 1
        while end > first + 1 and lines[end - 1].lstrip().startswith("#"):
            end -= 1  # comments that belong to the next table
        return first, end
    return None
