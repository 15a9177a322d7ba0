"""Interface of archives, as a durable receiver reads them."""

from __future__ import annotations

from typing import Protocol

import attrs

from pgm.core.effects import LossCause, Lost
from pgm.net.framing.items import Batch
from pgm.net.framing.packed_batch import PackedBatch
from pgm.wire.formats import Tsi


@attrs.frozen(eq=False)
class PastMessages:
    """Messages from an archive, which stand for the packets `first` to `first + count - 1`."""

    tsi: Tsi
    first: int
    count: int
    items: tuple[Batch | PackedBatch, ...]


@attrs.frozen
class PastRange:
    """Range of a session to read. Without `end` it is the rest of the session.

    Sqns are those of the receiver. The source's own are higher by `shift`.
    """

    tsi: Tsi
    epoch_ns: int
    data_port: int
    shift: int
    first: int
    end: int | None = None
    cause: LossCause = LossCause.SOURCE_GONE  # of what no archive has
    needs_end: bool = False  # read nothing unless an archive has the end of the session


class PastRead(Protocol):
    """Range that is being read in the background."""

    @property
    def is_begun(self) -> bool:
        """Return whether `take` has, or had, something to return."""

    @property
    def is_over(self) -> bool:
        """Return whether nothing more will come."""

    @property
    def is_closed(self) -> bool:
        """Return whether an archive has the end of the session, and all before it was read."""

    @property
    def next_sqn(self) -> int:
        """Return the sqn behind everything that `take` has returned."""

    def take(self) -> PastMessages | Lost | None:
        """Return what comes next in the range, without gaps; None if it has not come yet, or if the read is over."""

    def close(self) -> None:
        """Give the read up."""


class Past(Protocol):
    """Archives of the streams of a receiver."""

    def read(self, wanted: PastRange) -> PastRead:
        """Begin to read a range."""
