"""RAND_NODE_ID: the number by which a node matches polls (RFC 14.5)."""

from __future__ import annotations

import random

_ID_BITS = 32


class NodeId:
    """RAND_NODE_ID, drawn once for all sessions of a node on first use (POLL-07)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._value: int | None = None

    def draw(self) -> int:
        """Draw the number in the first call, and return it; it stays the same for the life of the node."""
        if self._value is None:
            self._value = self._rng.getrandbits(_ID_BITS)
        return self._value
