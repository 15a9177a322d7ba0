"""Fingerprint of a topology file, by which hosts with different files are found.

Two files with other text may mean the same, so each entry of `[nodes]` has a digest of its plan. Digests of plans are
comparable between equal versions of pgm only.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.net.plan_digest import plan_digest
from pgm.topology.load import load_checked
from pgm.topology.plan import checked_tree, plan_entry
from pgm.topology.reading import DIGEST_DIGITS


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
    """Return the fingerprint of a file. A thousand entries take seconds. Raises `TopologyError`."""
    topology = load_checked(path)
    tree = checked_tree(topology)
    entries = {node.name: plan_digest(plan_entry(tree, node)) for node in tree.nodes}
    return Fingerprint(topology.digest, entries)


def file_digest(path: Path) -> str:
    """Return the digest of a file, as of its `Topology`: without a byte order mark. Raises `UsageError` without a file."""
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", remedy="give the path of a topology file") from error
    return hashlib.sha256(octets.removeprefix(codecs.BOM_UTF8)).hexdigest()[:DIGEST_DIGITS]
