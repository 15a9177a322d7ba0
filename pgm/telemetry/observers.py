"""Observers of a core and its driver: the interface, and one observer that stands for two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from pgm.core.effects import Effect
from pgm.core.loss_observer import LossObserver, MissingView
from pgm.core.segment import Channel
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.train import Train

Span: TypeAlias = tuple[int, int]


class CoreObserver(LossObserver, Protocol):
    """Observer of losses, and of the trains and effects that a driver passes."""

    @property
    def sees_singles(self) -> bool:
        """Whether it needs each single packet. The fast paths of single packets are then off."""

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """Note a train that the core is about to receive."""

    def taken(self) -> None:
        """Note that the core has taken the train that was received last."""

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Note the effects that the driver performs for the core."""


class ObserverPair:
    """Observer that passes everything to two observers."""

    def __init__(self, one: CoreObserver, other: CoreObserver) -> None:
        self._one = one
        self._other = other
        self.sees_singles = one.sees_singles or other.sees_singles

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """Note a train that the core is about to receive."""
        self._one.received(train, channel, peer, now_ns)
        self._other.received(train, channel, peer, now_ns)

    def taken(self) -> None:
        """Note that the core has taken the train that was received last."""
        self._one.taken()
        self._other.taken()

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Note the effects that the driver performs for the core."""
        self._one.performed(effects, now_ns)
        self._other.performed(effects, now_ns)

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Note a gap. `pgm.core.loss_observer` documents this call and those below."""
        self._one.missing(tsi, first, end, now_ns)
        self._other.missing(tsi, first, end, now_ns)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Note ranges that arrived."""
        self._one.arrived(tsi, found, now_ns)
        self._other.arrived(tsi, found, now_ns)

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Note the packet that brought them."""
        self._one.filled(kind, peer)
        self._other.filled(kind, peer)

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Note sqns that were never sent."""
        self._one.skipped(tsi, first, end)
        self._other.skipped(tsi, first, end)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a range that is not requested any more."""
        self._one.gave_up(tsi, found, now_ns)
        self._other.gave_up(tsi, found, now_ns)

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a confirmed request."""
        self._one.confirmed(tsi, found, now_ns)
        self._other.confirmed(tsi, found, now_ns)

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a range that another node requested."""
        self._one.suppressed(tsi, found, now_ns)
        self._other.suppressed(tsi, found, now_ns)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note a wait that timed out."""
        self._one.timed_out(tsi, found, now_ns)
        self._other.timed_out(tsi, found, now_ns)

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Note sqns that an aggregator missed and received."""
        self._one.mended(tsi, first, end)
        self._other.mended(tsi, first, end)

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Note the progress of a line."""
        self._one.line_came(tsi, segment, end, lost, behind_ns, now_ns)
        self._other.line_came(tsi, segment, end, lost, behind_ns, now_ns)

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Note another parent."""
        self._one.parent_changed(old, new)
        self._other.parent_changed(old, new)
