"""Delivery as it arrives: for streams whose packets do not wait for each other (`order = "unordered"` or `"unreliable"`)."""

from __future__ import annotations

from pgm.core.effects import Deliver, Effect, LossCause
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.train import Data, DataWithGaps


class UnorderedWindow(ReceiveWindow):
    """A receive window that holds packets only while the application has no room for them.

    `next_sqn` is the first sqn of which nothing was said yet: everything below it was delivered or reported. Every sqn is
    delivered or reported lost exactly once, as in order.
    """

    def hold_on(self, data: Data, first: int, now_ns: int) -> list[Effect] | None:
        """Nothing waits for what is missing."""
        return None

    def take_behind(self, some: DataWithGaps, first: int, now_ns: int) -> list[Effect] | None:
        """Each piece is delivered by itself."""
        return None

    def repair(self, data: Data, first: int, now_ns: int) -> tuple[list[Effect], int] | None:
        """What was missing waits for nothing that is missing before it."""
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
                continue  # behind the end of a short group: no packets, so no loss
            effects += self._lost(gap, gap.cause)
        waiting = (self._held.oldest, self._recovery.missing.oldest)
        self.next_sqn = min((one.first for one in waiting if one is not None), default=self.gap_detector.end)
        return effects

    def _give_up_oldest(self) -> None:
        """What is held waits for the application alone."""
        held = self._held.oldest
        assert held is not None
        run = self._held.cut_oldest(held.count)
        self.give_up([(run.first, run.end)], LossCause.OVERRUN)
