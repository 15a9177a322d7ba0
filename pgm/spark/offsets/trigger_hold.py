"""Wait of a stream for enough new rows: `minOffsetsPerTrigger` and `maxTriggerDelay`, as in the connector of Kafka."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from pgm.spark.sessions import ArchivedSession


@attrs.define(eq=False)
class TriggerHold:
    """Decision whether a micro-batch waits for more rows, at most `most_s` after the micro-batch before it."""

    least: int | None
    most_s: float
    _latest_s: float | None = None  # when a micro-batch last began; the first one never waits

    def holds(self, ahead: int, now_s: float) -> bool:
        """Return whether `ahead` new sqns are too few to begin a micro-batch at a time in seconds."""
        is_early = self._latest_s is not None and now_s - self._latest_s < self.most_s
        if self.least is not None and is_early and ahead < self.least:
            return True
        self._latest_s = now_s
        return False


def sqns_ahead(start: Mapping[str, int], sessions: Mapping[str, ArchivedSession]) -> int:
    """Return the number of sqns that are there and not read."""
    return sum(max(0, one.next_sqn - start.get(key, one.oldest)) for key, one in sessions.items())
