"""One word has one meaning: no two public classes share a name, and no class is named by a bare participle."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pgm", "aggregator", "repairer", "deploy")

# Items of a stream, part of the public interface since its first version: each names an event that has happened.
EVENTS = frozenset({"Forged", "Lost", "Opened", "Closed"})
# Words that end like a participle and are nouns of the field.
NOUNS = frozenset({"Wiring"})
# The same interface in threads: `pgm.blocking.Source` stands for `pgm.Source`.
TWINS = frozenset({"pgm/blocking.py"})

_ONE_WORD = re.compile(r"^_?[A-Z][a-z]+$")
_IRREGULAR = frozenset({"Begun", "Found", "Gone", "Held", "Known", "Kept", "Made", "Said", "Seen", "Sent", "Told"})


def public_classes() -> dict[str, set[str]]:
    """Return the files that define each public class at their top level."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_names_of_public_classes_differ_between_folders() -> None:
    shared = {
        name: files
        for name, files in public_classes().items()
        if len({str(Path(file).parent) for file in files - TWINS}) > 1
    }
    assert shared == {}


def test_names_of_classes_are_no_bare_participles() -> None:
    participles = {
        name: files
        for name, files in public_classes().items()
        if _ONE_WORD.match(name) and (name.endswith(("ed", "ing")) or name in _IRREGULAR) and name not in EVENTS | NOUNS
    }
    assert participles == {}
