"""Copy of a topology file without secrets: values that the format knows, and neither comments nor key paths."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from deploy.bundle.redaction import REMOVED, Redactor
from pgm.topology.reading import ParsedTopology

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = "# Copy of a topology file. Comments, key_directory and reasons of revocations are left out.\n"


@attrs.frozen
class TopologyCopy:
    """Text of the copy; empty if the file cannot be read, and then the places of its problems."""

    text: str
    problems: tuple[str, ...] = ()


def topology_copy(octets: bytes, parsed: ParsedTopology, redactor: Redactor) -> TopologyCopy:
    """Return the copy of a file.

    A file with errors of form is not copied, because a secret may stand where the format has no place for one. Messages
    quote such values, so only lines and kinds of the problems are told.
    """
    if parsed.topology is None or parsed.problems:
        return TopologyCopy("", tuple(f"line {one.line}: {one.rule}" for one in parsed.problems))
    document = tomllib.loads(octets.decode("utf-8-sig"))
    document.pop("key_directory", None)
    keys = document.pop("keys", {})
    revoked = {key_id: _reason(text) for key_id, text in document.pop("revoked", {}).items()}
    kept = {name: _table(value, redactor) for name, value in document.items()}
    # The ids of public keys are hashes of their octets, so what has been read is public. Its form is that of a secret.
    kept |= {"keys": _public(keys, redactor)} if keys else {}
    kept |= {"revoked": revoked} if revoked else {}
    return TopologyCopy(_HEAD + "\n".join(_lines(kept)) + "\n")


def _table(value: Any, redactor: Redactor) -> Any:
    """Return a table of the file. Names of its sections, such as of a stream `private`, name no secret."""
    if not isinstance(value, dict):
        return redactor.value(value)
    sections = {redactor.text(name): redactor.value(own) for name, own in value.items() if isinstance(own, dict)}
    return redactor.value({name: own for name, own in value.items() if not isinstance(own, dict)}) | sections


def _public(keys: Mapping[str, list[str]], redactor: Redactor) -> dict[str, list[str]]:
    return {
        redactor.text(node): [line for line in lines if not any(secret in line for secret in redactor.known)]
        for node, lines in keys.items()
    }


def _reason(text: str) -> str:
    day = _DAY.match(text)
    return f"{day[0]} {REMOVED}" if day else REMOVED


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a document: single values first, then a section for each table."""
    tables = {key: value for key, value in document.items() if isinstance(value, dict)}
    for key, value in document.items():
        if key not in tables:
            yield f"{_key(key)} = {_inline(value)}"
    for key, table in tables.items():
        sections = {name: value for name, value in table.items() if isinstance(value, dict)}
        if len(sections) < len(table) or not table:
            yield f"\n[{_key(key)}]"
            yield from (f"{_key(name)} = {_inline(value)}" for name, value in table.items() if name not in sections)
        for name, section in sections.items():
            yield f"\n[{_key(key)}.{_key(name)}]"
            yield from (f"{_key(own)} = {_inline(value)}" for own, value in section.items())


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(member)}" for key, member in value.items()) + " }"
    return str(value)
