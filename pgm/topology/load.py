"""Loading of a topology file, with or without a check of its meaning."""

from __future__ import annotations

import os

from pgm.topology.check import load_checked
from pgm.topology.model import Topology
from pgm.topology.problems import error_of
from pgm.topology.reading import ParsedTopology, read, read_text

__all__ = ["load", "load_checked", "loads"]


def load(path: str | os.PathLike[str]) -> Topology:
    """Read a topology file. Raises `TopologyError` with all problems of form. `check` finds the problems of meaning."""
    return _or_raise(read(path))


def loads(text: str, path: str = "<text>") -> Topology:
    """Read the text of a topology file. Errors name it `path`. Raises `TopologyError`."""
    return _or_raise(read_text(text, path))


def _or_raise(reading: ParsedTopology) -> Topology:
    if reading.problems or reading.topology is None:
        raise error_of(reading.problems)
    return reading.topology
