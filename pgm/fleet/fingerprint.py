"""Fingerprint of a topology file, by which hosts with different files are found.

Two files with other text may mean the same, so each entry of `[nodes]` has a digest of its plan. Digests of plans are
comparable between equal versions of pgm only.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.topology.load import load_checked
from pgm.topology.plan import checked_tree, plan_entry

_DIGITS = 16  # of a digest: chance agreement of two files needs 2**64 files
_DERIVED = frozenset({"known_keys", "reasons"})  # fields of a plan that follow from the rest of the file


@attrs.frozen
class Fingerprint:
    """Digest of a file, and of the plan of each entry of `[nodes]` by its name."""

    file: str
    entries: Mapping[str, str]

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"hash": self.file, "entries": dict(self.entries)}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Fingerprint:
        """Return the fingerprint in a row."""
        return cls(str(row["hash"]), {str(name): str(digest) for name, digest in row["entries"].items()})

    def differing(self, other: Fingerprint) -> list[str]:
        """Return the entries whose plans differ, or that only one of both files has."""
        names = dict.fromkeys([*self.entries, *other.entries])
        return [name for name in names if self.entries.get(name) != other.entries.get(name)]


def fingerprint_of(path: Path) -> Fingerprint:
    """Return the fingerprint of a file. A thousand entries take seconds. Raises `TopologyError`, `UsageError`."""
    tree = checked_tree(load_checked(path))
    entries = {node.name: _digest(json.dumps(_plain(plan_entry(tree, node))).encode()) for node in tree.nodes}
    return Fingerprint(file_digest(path), entries)


def file_digest(path: Path) -> str:
    """Return the digest of a file. Raises `UsageError` for a file that vanishes."""
    try:
        return _digest(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="give the path of a topology file") from error


def _digest(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()[:_DIGITS]


def _plain(value: Any) -> Any:
    """Return a value as JSON that does not depend on the process."""
    if attrs.has(type(value)):
        fields = (one.name for one in attrs.fields(type(value)) if one.eq and one.name not in _DERIVED)
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return sorted([str(key), _plain(item)] for key, item in value.items())
    if isinstance(value, frozenset):
        return sorted(json.dumps(_plain(item)) for item in value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
