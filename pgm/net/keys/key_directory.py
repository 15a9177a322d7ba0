"""Directory of private files, and the names of the files in it.

The directory of a tree holds one file for each pair of keys: `NODE.ID.key`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

from pgm.topology.node_plan import NodePlan

DIRECTORY_VARIABLE = "PGM_KEY_DIR"
REMEDY = f"set {DIRECTORY_VARIABLE}, --key-dir or key_directory of the topology file to a folder of your own"


@attrs.frozen
class KeyPlace:
    """Private files of one node: the directory of its tree, and the names of tree and node."""

    directory: Path
    tree: str
    node: str

    def path_of(self, key_id: str) -> Path:
        """Return the path of the private file of keys."""
        return self.directory / f"{self.node}.{key_id}.key"

    def held(self) -> dict[str, Path]:
        """Return the private files by the id of their keys. A missing directory has none. Raises `OSError`."""
        pattern = re.compile(rf"{re.escape(self.node)}\.([a-z2-7]{{16}})\.key")
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return {}
        return {match[1]: self.directory / name for name in names if (match := pattern.fullmatch(name))}


def place_of(tree: str, node: str, configured: str = "", chosen: Path | None = None) -> KeyPlace:
    """Return the private files of a node.

    The folder is `chosen` by an option, or that of PGM_KEY_DIR, or `configured` by the topology file, or `pgm/keys` in the
    user's folder of configurations. In it each tree has a directory.
    """
    base = chosen or os.environ.get(DIRECTORY_VARIABLE) or configured
    if not base:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pgm" / "keys"
    return KeyPlace(Path(base) / tree.replace("/", "_"), tree, node.replace("/", "_"))


def place_of_plan(plan: NodePlan) -> KeyPlace:
    """Return the private files of a planned node."""
    return place_of(plan.topology, plan.name, plan.identity.directory)
