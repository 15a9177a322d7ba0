"""Tests observe a unit by its public surface; the places that still reach into private attributes only become fewer."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Places by folder of tests. A change that mends some lowers its number; no change raises one.
MOST = {"unit": 19, "net": 4, "rfc": 1}
_ELSEWHERE = {"_exit"}  # private names of the standard library that are public


def private_uses(tree: ast.Module) -> list[ast.Attribute]:
    """Return the uses of private attributes that the module itself does not define."""
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own | _ELSEWHERE
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_privates_of_other_classes_are_used_no_more_than_before() -> None:
    found: Counter[str] = Counter()
    for path in TESTS.rglob("*.py"):
        found[path.relative_to(TESTS).parts[0]] += len(private_uses(ast.parse(path.read_text())))
    assert {folder: count for folder, count in found.items() if count > MOST.get(folder, 0)} == {}


def test_privates_of_a_module_itself_are_not_counted() -> None:
    tree = ast.parse("class A:\n    _x: int\n    def _f(self):\n        self._y = a._x + a._f() + b._z + os._exit(0)\n")
    assert [node.attr for node in private_uses(tree)] == ["_z"]
