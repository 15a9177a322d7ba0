"""Conversion of TOML to a `Topology`, with all problems of form and their lines at once."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from cattrs import BaseValidationError

from pgm.topology.addresses import short
from pgm.topology.locate import KeyLines, KeyPath, locate
from pgm.topology.model import NodePlace, NodeTable, SegmentTable, StreamTable, Topology, keys_of
from pgm.topology.problems import Problem
from pgm.topology.structure import CONVERTER, ReadError, read_errors_of

_DEEPEST = 16  # maximum nesting of tables and lists; the format needs 5
_LARGEST = 1 << 63  # bound of whole numbers in TOML
_AT_LINE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_TABLES: Mapping[str, type[attrs.AttrsInstance]] = {
    "streams": StreamTable,
    "segments": SegmentTable,
    "nodes": NodeTable,
}


@attrs.frozen
class ParsedTopology:
    """The readable part of a file, and the problems of the rest."""

    topology: Topology | None  # None if the file is not TOML
    problems: tuple[Problem, ...] = ()
    unread_tables: frozenset[KeyPath] = (
        frozenset()
    )  # tables that lack unreadable values; rules about them would mislead


DIGEST_DIGITS = 16  # of the digest of a file: chance agreement of two files needs 2**32 files


def read(path: str | os.PathLike[str]) -> ParsedTopology:
    """Read as much of a file as possible. A bad or missing file never raises an exception."""
    name = os.fspath(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _unreadable(name, 1, f"octet {error.start} is not UTF-8", "save the file as UTF-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return _unreadable(name, 0, f"cannot read it: {reason}", "give the path of a topology file")
    return read_text(text, name)


def _unreadable(path: str, line: int, message: str, remedy: str) -> ParsedTopology:
    return ParsedTopology(None, (Problem(path, line, "syntax", message, remedy),))


def read_text(text: str, path: str) -> ParsedTopology:
    """Read as much of a text as possible. The text never raises an exception."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        return _unreadable(path, 1, "brackets are nested too deeply", "the format needs no more than three")
    except ValueError as error:
        return _unreadable(
            path, _line_of(error, text), _AT_LINE.sub("", str(error)), "TOML is described at https://toml.io"
        )
    lines = locate(text)
    flaws = list(_unprintable(document))
    if flaws:
        return ParsedTopology(None, _problems(flaws, path, lines))
    parsed = _read_document(document, path, lines)
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
    return attrs.evolve(parsed, topology=parsed.topology and attrs.evolve(parsed.topology, digest=digest))


def _line_of(error: ValueError, text: str) -> int:
    match = _AT_LINE.search(str(error))
    return int(match[1]) if match and match[1] else max(1, len(text.splitlines()))


def _unprintable(document: Mapping[str, Any]) -> Iterator[ReadError]:
    """Yield values that later steps could not even print: deep nesting, and numbers of thousands of digits."""
    waiting: list[tuple[KeyPath, Any]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict | list):
            if len(path) >= _DEEPEST:
                yield ReadError(path, "nested too deeply", "the format needs no more than five levels")
                continue
            items = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [((*path, key), item) for key, item in items]
        elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            yield ReadError(path, "a number beyond 64 bits", "write a smaller one")


def _read_document(document: dict[str, Any], path: str, lines: KeyLines) -> ParsedTopology:
    flaws = list(_missing(document))
    while True:
        try:
            topology: Topology = CONVERTER.structure(document, Topology)
            break
        except BaseValidationError as error:
            unreadable = list(read_errors_of(error))
            flaws += unreadable
            for flaw in unreadable:
                _prune(document, flaw.path)
    unread_tables = frozenset(flaw.path[:2] for flaw in flaws if not (flaw.is_unknown_key or "parameters" in flaw.path))
    return ParsedTopology(attrs.evolve(topology, path=path, lines=lines), _problems(flaws, path, lines), unread_tables)


def _prune(document: Any, path: KeyPath) -> None:
    """Remove an unreadable value, so that the rest can be read; a list as a whole, because its order matters."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    for step in path[:-1]:
        if isinstance(document, dict) and step not in document:
            return  # removed together with another flaw
        document = document[step]
    if path:
        document.pop(path[-1], None)


def _missing(document: Mapping[str, Any]) -> Iterator[ReadError]:
    yield from _missing_in(document, Topology, ())
    for section, kind in _TABLES.items():
        for name, table in _items(document.get(section)):
            yield from _missing_in(table, kind, (section, name))
    for name, node in _items(document.get("nodes")):
        if isinstance(node, dict):
            yield from _missing_in(node.get("upstream"), NodePlace, ("nodes", name, "upstream"))
            downstream = node.get("downstream")
            for index, place in enumerate(downstream if isinstance(downstream, list) else ()):
                yield from _missing_in(place, NodePlace, ("nodes", name, "downstream", index))


def _items(table: object) -> list[tuple[str, Any]]:
    return list(table.items()) if isinstance(table, dict) else []


def _missing_in(table: object, kind: type[attrs.AttrsInstance], path: KeyPath) -> Iterator[ReadError]:
    """Yield the required keys that a table lacks. A misspelt key is not one of them: its own error suffices."""
    if not isinstance(table, dict):
        return
    known = keys_of(kind)
    unknown = [key for key in table if key not in known]
    for key, spec in known.items():
        if (
            spec.is_required
            and key not in table
            and table.get(spec.unless) is not True
            and not difflib.get_close_matches(key, unknown)
        ):
            yield ReadError(path, f"{_spell(path) or 'the file'} has no {key}", f"add {key} = {spec.example}")


def _problems(flaws: list[ReadError], path: str, lines: KeyLines) -> tuple[Problem, ...]:
    problems = []
    for flaw in flaws:
        where = _spell(flaw.path)
        message = flaw.message if not where or flaw.message.startswith(where) else f"{where}: {flaw.message}"
        problems.append(Problem(path, lines.of(flaw.path), "format", message, flaw.remedy))
    return tuple(sorted(problems, key=lambda problem: problem.line))


def _spell(path: KeyPath) -> str:
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts[-1] += f"[{step}]"
        else:
            parts.append(step if re.fullmatch(r"[A-Za-z0-9_-]+", step) else short(step).replace("'", '"'))
    return ".".join(parts)
