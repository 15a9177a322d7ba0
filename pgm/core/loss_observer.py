"""Interface through which a core reports single losses to telemetry.

Counters say how many packets were lost; an observer learns which, when and after how long. `NO_OBSERVER` is the
default. Every call is made after a loss, so sessions without losses pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgm.wire.formats import Nla, PacketType, Tsi


class MissingView(Protocol):
    """A range of missing sqns, `first` to `end - 1`. Times are in ns.

    The class behind this view is `pgm.core.recovery.missing_range.MissingRange`.
    """

    first: int
    end: int
    found_at_ns: int
    since_ns: int
    ncf_retries: int
    data_retries: int

    @property
    def state_name(self) -> str:
        """The name of the range's `RepairState`."""


class LossObserver(Protocol):
    """Observer of losses and of their outcome.

    The attribute `Counters.watch`, which every part of a core can reach, holds the observer.
    """

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Note that the sqns `first` to `end - 1` were detected missing."""

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Note that these ranges arrived. The next call of `filled` says by which packet."""

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Note the packet type and the sender of the data that arrived last."""

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Note missing sqns that were never sent. A parity group ended before these sqns."""

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note that this range will not be requested any more."""

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note that an NCF answers the own NAK for this range."""

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note that another node requested this range before the back-off was over."""

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Note that the wait for an NCF or for RDATA, as the state says, timed out."""

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Note that RDATA brought packets an aggregator had missed.

        An aggregator keeps no record of when these packets were missed.
        """

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Note that one of several lines has reached sqn `end - 1`.

        `lost` counts the packets that the line has lost so far. `behind_ns` is the line's delay.
        """

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Note that requests go to another parent from now on."""


class _NoObserver:
    """Observer that notes nothing, for nodes without telemetry."""

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    missing = arrived = filled = skipped = gave_up = confirmed = suppressed = timed_out = mended = _ignore
    line_came = parent_changed = _ignore


NO_OBSERVER: LossObserver = _NoObserver()
