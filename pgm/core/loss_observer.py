"""What a core tells of single losses to whoever watches: telemetry, when it is on.

Counters say how many; this says which, when and after how long. Nobody watches by default, and every call stands where
something was lost already, so a session without losses and a node without telemetry pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgm.wire.formats import Nla, PacketType, Tsi


class MissingView(Protocol):
    """A range of missing sqns as `pgm.core.recovery.missing_range.MissingRange` has it: the sqns `first` to `end - 1`. Times in ns."""

    first: int
    end: int
    found_at_ns: int
    since_ns: int
    ncf_retries: int
    data_retries: int

    @property
    def state_name(self) -> str:
        """The name of its `RepairState`."""


class LossObserver(Protocol):
    """Told of losses and of what becomes of them. Hangs at `Counters.watch`, which reaches every part of a core."""

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """The sqns `first` to `end - 1` are found missing."""

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """These have come; `filled` says next by what."""

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """What arrived last came as this type from this sender."""

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Of what was found missing, these were never sent: a group of parity ended before them."""

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """These will not be asked for any more."""

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """An NCF answers the own NAK for these."""

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Somebody else asked for these before the back-off was over."""

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """The wait for an NCF or for RDATA, as the state says, was in vain."""

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """RDATA brought what an aggregator had missed, which keeps no record of since when."""

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """One of several lines has come up to sqn `end - 1`, and has lost so many packets so far."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Another parent is asked from now on."""
