"""Receive window for `order = "unordered"` or `"unreliable"`: delivers packets as they arrive, without waits."""

from __future__ import annotations

from pgm.core.effects import LossCause
from pgm.core.window.receive_window import ReceiveWindow


class UnorderedWindow(ReceiveWindow):
    """Receive window that holds packets only while the application has no room.

    `next_sqn` is the first sqn that was neither delivered nor reported lost, with all sqns below it settled. Every sqn
    is delivered or reported lost exactly once, as in ordered streams.
    """

    _HAS_HOLES = False  # packets after a missing packet do not wait for it

    def _deliver(self, *, is_last: bool) -> None:
        if self._conflicts.has_disputes:
            self._report_conflicts(self.gap_detector.end)
        while self._room.octets > 0 or is_last:
            oldest = self._held.oldest
            if oldest is None:
                break
            most = oldest.count if is_last else max(1, self._room.octets // oldest.stride)
            self._hand_over(self._held.cut_oldest(most))
        while (gap := self._given_up.oldest) is not None:
            self._given_up.remove(gap)
            self._report(gap)
        waiting = (self._held.oldest, self._recovery.missing.oldest)
        self.next_sqn = min((span.first for span in waiting if span is not None), default=self.gap_detector.end)

    def _give_up_oldest(self) -> None:
        """Give up the oldest held run: only the application's missing room holds it up."""
        held = self._held.oldest
        assert held is not None
        run = self._held.cut_oldest(held.count)
        self.give_up([(run.first, run.end)], LossCause.OVERRUN)
