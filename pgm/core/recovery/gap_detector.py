"""Record of a session's received packets: all from the first to the newest but those missing in the recovery."""

from __future__ import annotations

from pgm.core.recovery.recovery import Recovery
from pgm.core.structures.ranges import Span
from pgm.wire.train import Run


class GapDetector:
    """Detector of gaps and duplicates. `first` is RXW_TRAIL_INIT; `end` is one more than the newest known sqn."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.first = 0
        self.end = 0
        self.has_begun = False

    def begin(self, sqn: int) -> None:
        """Start reception at `sqn`: no older packet is requested (RCV-01, RCV-02)."""
        self.first = self.end = sqn
        self.has_begun = True

    def accept(self, run: Run, now_ns: int) -> tuple[list[Run], int]:
        """Return the new parts of a run in order, and how many had been missing. A gap before it goes to recovery."""
        if run.first >= self.end:
            if run.first > self.end:
                self.recovery.detect(self.end, run.first, now_ns)
            self.end = run.end
            return [run], 0
        known_end = min(run.end, self.end)
        filled_spans = self.recovery.arrived(run.first, known_end, now_ns)
        parts = [run.part(first, end) for first, end in filled_spans]
        filled = sum(end - first for first, end in filled_spans)
        if run.end > self.end:
            parts.append(run.part(self.end, run.end))
            self.end = run.end
        return parts, filled

    def regain(self, span: Span, now_ns: int) -> None:
        """Note a skipped span as missing again, because its sqns were sent after all."""
        self.recovery.detect(max(span[0], self.first), span[1], now_ns)

    def reveal(self, end: int, now_ns: int) -> None:
        """Note that all sqns below `end` were sent (RCV-30, RCV-31). The evidence is SPM_LEAD, a trail or an NCF."""
        if self.has_begun and end > self.end:
            self.recovery.detect(self.end, end, now_ns)
            self.end = end
