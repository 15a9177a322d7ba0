"""Telling a receiver that it does not keep up: packets are lost to it for good, and the kernel drops packets of its own socket."""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.wire.formats import Tsi, tsi_text

_TOLD_AGAIN = 2  # times as many drops: who stays too slow hears of it now and then, not at each loss


class Slowness:
    """What one session's losses have to do with its receiver's own socket."""

    def __init__(self, tsi: Tsi, counters: Counters) -> None:
        self._tsi = tsi
        self._counters = counters
        self._before = counters.socket_drops  # the session began: no matter of its losses
        self._tells_at = 1

    def lost(self) -> Effects:
        """Note that something is lost for good."""
        drops = self._counters.socket_drops - self._before
        if drops < self._tells_at:
            return NOTHING
        self._tells_at = _TOLD_AGAIN * drops
        text = (
            f"packets are lost, and the kernel has dropped {drops:,} of this receiver's own socket: it does not keep up"
        )
        return (Notice("too-slow", f"session {tsi_text(self._tsi)}: {text}"),)
