"""Change of a running core: other neighbours and other parameters, between two calls of the core.

All parts of a core share its setup and its parameters, and none may change them. A change of the topology file is the one
exception: it replaces values in the shared objects, so that every part reads the new ones at its next use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.source_names import NO_NAMES, SourceNames
from pgm.parameters import ROWS, Parameters
from pgm.wire.formats import Nla


@attrs.frozen
class Neighbours:
    """Other nodes of the topology, as a core knows them. Each role reads its own fields."""

    parents: tuple[Nla, ...] = ()
    repairers: tuple[tuple[Nla, ...], ...] = ()
    siblings: tuple[Nla, ...] = ()
    keepers: tuple[Nla, ...] = ()
    local_repairers: frozenset[Nla] = frozenset()
    local_relays: frozenset[Nla] = frozenset()
    assist_rank: int = 0
    asks_below_trail: bool = False
    children: NamedChildren = NO_CHILDREN
    allowed: Mapping[int, frozenset[Nla]] = attrs.field(factory=dict)  # senders by data port
    names: SourceNames = NO_NAMES


def replace_values(target: object, wanted: object, names: Iterable[str]) -> None:
    """Replace values of a frozen object that the parts of one core share."""
    for name in names:
        object.__setattr__(target, name, getattr(wanted, name))


def replace_parameters(target: Parameters, wanted: Parameters, *, without: frozenset[str] = frozenset()) -> None:
    """Replace the parameters of a core, except `without`."""
    replace_values(target, wanted, ROWS.keys() - without)


def replace_children(target: NamedChildren, wanted: NamedChildren) -> None:
    """Replace the children that the topology names for a core."""
    replace_values(target, wanted, ("addresses", "elements", "are_all"))
