"""Receive window that delivers packets in arrival order.

Streams with `order = "unordered"` or `"unreliable"` use this window. Packets of these streams do not wait for each
other.
"""

from __future__ import annotations

from pgm.core.effects import Deliver, Effect, LossCause
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.train import Data, DataWithGaps


class UnorderedWindow(ReceiveWindow):
    """Receive window that holds packets only while the application has no room.

    `next_sqn` is the first sqn that was neither delivered nor reported lost, with all sqns below it settled. Every sqn
    is delivered or reported lost exactly once, as in ordered streams.
    """

    def hold_on(self, data: Data, first: int, now_ns: int) -> list[Effect] | None:
        """Return None: no packet waits for a missing packet."""
        return None

    def take_behind(self, pieces: DataWithGaps, first: int, now_ns: int) -> list[Effect] | None:
        """Return None: each piece is delivered by itself."""
        return None

    def repair(self, data: Data, first: int, now_ns: int) -> tuple[list[Effect], int] | None:
        """Return None: a repair does not wait for earlier missing packets."""
        return None

    def _deliver(self, *, is_last: bool) -> list[Effect]:
        effects: list[Effect] = []
        while self._room.octets > 0 or is_last:
            oldest = self._held.oldest
            if oldest is None:
                break
            run = self._held.cut_oldest(oldest.count if is_last else max(1, self._room.octets // oldest.stride))
            self._room.octets -= run.octets
            self._counters.delivered_packets += run.count
            self._counters.delivered_octets += run.count * (run.stride - run.payload_at)
            effects.append(Deliver(self._tsi, run))
        while (gap := self._given_up.oldest) is not None:
            self._given_up.remove(gap)
            if gap.cause is None:
                continue  # beyond the end of a short parity group: these sqns carry no packets, so nothing was lost
            effects += self._lost(gap, gap.cause)
        waiting = (self._held.oldest, self._recovery.missing.oldest)
        self.next_sqn = min((span.first for span in waiting if span is not None), default=self.gap_detector.end)
        return effects

    def _give_up_oldest(self) -> None:
        """Give up the oldest held run: only the application's missing room holds it up."""
        held = self._held.oldest
        assert held is not None
        run = self._held.cut_oldest(held.count)
        self.give_up([(run.first, run.end)], LossCause.OVERRUN)
