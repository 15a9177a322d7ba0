"""What a rule of `check` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from pgm.topology.locate import KeyPath
from pgm.topology.tree import Tree


@attrs.frozen
class RuleFinding:
    """One violation: the key it is about, what is wrong with which values, and what to write instead.

    `rests_on` begins the paths of other tables that it follows from: where one of them could not be read, it says nothing.
    """

    path: KeyPath
    message: str
    remedy: str
    rests_on: tuple[KeyPath, ...] = ()


@attrs.frozen
class Rule:
    """One thing that `check` looks at. `sentence` states what must hold, for the reference."""

    name: str
    sentence: str
    find: Callable[[Tree], Iterator[RuleFinding]]
    is_warning: bool = False
