"""Bound of a receiver's acks: the packets that its application has taken."""

from __future__ import annotations

from typing import Protocol

from pgm.wire.formats import Tsi


class AckBound(Protocol):
    """Application of a receiver, as its acks see it."""

    def acked(self, tsi: Tsi, begin: int, delivered: int) -> int:
        """Return the newest sqn that the receiver may acknowledge, from `begin` to `delivered`."""

    def leave(self, tsi: Tsi) -> bool:
        """End the membership of this receiver. Return whether a goodbye is due, because its node has no other member."""


class _AtOnce:
    """Application that processes each delivery at once, before any other call of the core."""

    def acked(self, tsi: Tsi, begin: int, delivered: int) -> int:
        return delivered

    def leave(self, tsi: Tsi) -> bool:
        return True


AT_ONCE: AckBound = _AtOnce()
