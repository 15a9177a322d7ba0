"""Identity of a node by its topology file: its name, listed keys, revoked keys, and the directory of private files."""

from __future__ import annotations

import re
from datetime import date

import attrs

from pgm.trust.public_keys import KeyState, PublicKeys

NODE_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def number_of(pattern: str, name: str) -> int | None:
    """Return the number by which a name matches a pattern, from 1, or None."""
    head, _, tail = pattern.partition("*")
    middle = name[len(head) : len(name) - len(tail)]
    fits = name == head + middle + tail and NODE_NUMBER.fullmatch(middle)
    return int(middle) if fits else None


def names_node(entry: str, name: str) -> bool:
    """Return whether an entry, which is a name or a pattern, stands for a node."""
    return entry == name or ("*" in entry and number_of(entry, name) is not None)


@attrs.frozen
class NodeIdentity:
    """Keys of one node. Nodes accept any valid key of the list, and the node itself signs with the first valid one."""

    listed: tuple[PublicKeys, ...] = ()  # at most two: the current keys, and the next ones during a rotation
    revoked: frozenset[str] = frozenset()  # ids of revoked keys, of all nodes of the tree
    directory: str = ""  # of the private files, as the file says; empty: the default of the host

    @property
    def is_empty(self) -> bool:
        """Return whether neither this node has keys nor any keys of the tree are revoked."""
        return not self.listed and not self.revoked

    def states_on(self, day: date) -> tuple[KeyState, ...]:
        """Return the state of each listed pair of keys on a day."""
        return tuple(keys.state_on(day, self.revoked) for keys in self.listed)

    def valid_on(self, day: date) -> tuple[PublicKeys, ...]:
        """Return the keys that are valid on a day, the current ones first."""
        return tuple(keys for keys in self.listed if keys.state_on(day, self.revoked) is KeyState.VALID)
