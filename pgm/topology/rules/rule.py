"""Rules of `check`, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from pgm.topology.locate import KeyPath
from pgm.topology.tree import Tree


@attrs.frozen
class RuleFinding:
    """One violation of a rule: the key, the message with its values, and the remedy.

    `rests_on` holds path prefixes of the tables from which the finding follows. If one of these tables could not be read,
    `check` drops the finding.
    """

    path: KeyPath
    message: str
    remedy: str
    rests_on: tuple[KeyPath, ...] = ()


@attrs.frozen
class Rule:
    """One rule of `check`. `sentence` states its condition for the reference."""

    name: str
    sentence: str
    find: Callable[[Tree], Iterator[RuleFinding]]
    is_warning: bool = False
