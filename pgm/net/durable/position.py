"""Position of an application in one session, which outlives its process."""

from __future__ import annotations

import re

import attrs

from pgm.core.session.state import NO_EPOCH, SessionState
from pgm.errors import UsageError
from pgm.units import MICROSECOND
from pgm.wire.formats import Tsi, tsi_text
from pgm.wire.sequence_numbers import unwrap, wrap

_TEXT = re.compile(r"(\d+(?:\.\d+){6})@(\d+):(\d+)\.(\d+)(\.end)?")
_REMEDY = "store str(receiver.position), and pass it unchanged"


@attrs.frozen
class Position:
    """Position behind the last message that an application has taken from one session.

    `sqn` is the source's own 64-bit number of the next packet, and `index` the number of messages taken from that packet.
    `epoch_ns` is the start of the session by its source's clock, 0 if the source does not say. `is_end` says that the application
    has seen the end of the session. The text, `str(position)`,
    goes into databases, and `start=` takes it.
    """

    tsi: Tsi
    epoch_ns: int
    sqn: int
    index: int = 0
    is_end: bool = False

    def __str__(self) -> str:
        return f"{tsi_text(self.tsi)}@{self.epoch_ns}:{self.sqn}.{self.index}{'.end' if self.is_end else ''}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the text of a position. Raises `UsageError`."""
        found = _TEXT.fullmatch(text)
        *gsi, port = map(int, found[1].split(".")) if found else (1 << 16,)
        if found is None or max(gsi) > 0xFF or port > 0xFFFF:
            raise UsageError(f"{text!r} is no position", remedy=_REMEDY)
        return cls(
            bytes(gsi) + port.to_bytes(2, "big"), int(found[2]), int(found[3]), int(found[4]), found[5] is not None
        )

    def is_of(self, state: SessionState) -> bool:
        """Return whether the position belongs to a session, and not to an earlier one with the same TSI."""
        if self.tsi != state.tsi:
            return False
        if state.epoch is not NO_EPOCH and self.epoch_ns:
            return self.epoch_ns // MICROSECOND == state.epoch.started_ns // MICROSECOND  # archives keep no more
        return self.local_sqn(state) <= state.lead + 1 + state.reach

    def local_sqn(self, state: SessionState) -> int:
        """Return the sqn by which this receiver knows the next packet."""
        if state.epoch is not NO_EPOCH and self.epoch_ns:
            return self.sqn - state.epoch.shift
        return unwrap(wrap(self.sqn), state.lead)
