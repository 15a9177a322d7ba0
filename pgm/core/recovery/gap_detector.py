"""Which packets of a session have come: what lies between the first sqn and the newest, and is not missing."""

from __future__ import annotations

from pgm.core.recovery.recovery import Recovery
from pgm.core.structures.ranges import Span
from pgm.wire.train import Run


class GapDetector:
    """Finds gaps and duplicates. `first` is RXW_TRAIL_INIT; `end` lies behind the newest sqn known."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self.first = 0
        self.end = 0
        self.has_begun = False

    def begin(self, sqn: int) -> None:
        """Reception starts here: nothing older is asked for (RCV-01, RCV-02)."""
        self.first = self.end = sqn
        self.has_begun = True

    def accept(self, run: Run, now_ns: int) -> tuple[list[Run], int]:
        """The parts of a run that are new, in order, and how many of their packets had been missing.

        A gap before the run goes to recovery.
        """
        if run.first >= self.end:
            if run.first > self.end:
                self._recovery.detect(self.end, run.first, now_ns)
            self.end = run.end
            return [run], 0
        known_end = min(run.end, self.end)
        found = self._recovery.arrived(run.first, known_end, now_ns)
        parts = [run.part(first, end) for first, end in found]
        filled = sum(end - first for first, end in found)
        if run.end > self.end:
            parts.append(run.part(self.end, run.end))
            self.end = run.end
        return parts, filled

    def regain(self, span: Span, now_ns: int) -> None:
        """Miss again what was skipped: it was sent after all."""
        self._recovery.detect(max(span[0], self.first), span[1], now_ns)

    def reveal(self, end: int, now_ns: int) -> None:
        """Learn that everything below `end` was sent: SPM_LEAD, a trail, an NCF (RCV-30, RCV-31)."""
        if self.has_begun and end > self.end:
            self._recovery.detect(self.end, end, now_ns)
            self.end = end
