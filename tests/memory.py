"""Memory of a part under test: the objects that the part keeps alive."""

from __future__ import annotations

import gc
from types import BuiltinFunctionType, FunctionType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)  # code, which leads to the whole program


def kept_by(*roots: object) -> list[object]:
    """Return the objects that `roots` keep alive, code left out."""
    seen: dict[int, object] = {}
    waiting: list[object] = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, _SHARED):
            seen[id(one)] = one
            waiting += gc.get_referents(one)
    return list(seen.values())
