"""Interface through which a core reports single losses to telemetry.

Counters say how many packets were lost; an observer learns which, when and after how long. `NO_OBSERVER` is the
default. Every call is made after a loss, so sessions without losses pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgm.wire.formats import Nla, PacketType, Tsi


class MissingView(Protocol):
    """Range of missing sqns, `first` to `end - 1`: a view of `recovery.missing_range.MissingRange`. Times are in ns."""

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
    """Observer of losses and of their outcome: the attribute `Counters.watch`, which every part of a core can reach."""

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
        """Note that RDATA brought packets an aggregator had missed, at a time that the aggregator does not record."""

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Note that a line has reached sqn `end - 1`, has lost `lost` packets so far, and has the delay `behind_ns`."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Note that requests go to another parent from now on."""


class NoObserver:
    """Observer that notes nothing, for nodes without telemetry."""

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    missing = arrived = filled = skipped = gave_up = confirmed = suppressed = timed_out = mended = _ignore
    line_came = parent_changed = _ignore


NO_OBSERVER: LossObserver = NoObserver()
