"""Digests of plans, which are comparable between equal versions of pgm only."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import attrs

from pgm.topology.node_plan import NodePlan
from pgm.topology.reading import DIGEST_DIGITS

# Fields of a plan that follow from the rest of the file. Fields that no comparison takes tell where the file lies.
_DERIVED = frozenset({"known_keys", "reasons"})


_MOST_KEPT = 16  # plans of the nodes of one process


@attrs.frozen(eq=False)
class _SamePlan:
    """Plan as a key: plans have no hash, and a running node keeps the same object."""

    plan: NodePlan

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SamePlan) and other.plan is self.plan

    def __hash__(self) -> int:
        return id(self.plan)


def plan_digest(plan: NodePlan) -> str:
    """Return the digest of a plan in hexadecimal digits. Equal plans of two hosts have equal digests."""
    return _digest_of(_SamePlan(plan))  # each query of a status needs it, and the computation takes half a millisecond


@functools.lru_cache(_MOST_KEPT)
def _digest_of(same: _SamePlan) -> str:
    plan = same.plan
    return hashlib.sha256(json.dumps(_plain(plan)).encode()).hexdigest()[:DIGEST_DIGITS]


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
