"""What a source core is told once: who it is, and where it sends."""

from __future__ import annotations

import attrs

from pgm.core.segment import Segment
from pgm.wire.formats import Tsi


@attrs.frozen
class SourceSetup:
    """What the topology and the start of the process say about one source."""

    tsi: Tsi
    segment: Segment
    data_port: int
    first_sqn: int = 0  # upper half 0 at the start; OpenPGM's receivers want the SPM_SQN at 0 too (INT-Q2)
    started_at_ns: int = 0  # wall clock, for the epoch option
    flow: str = "rate"  # or "acked" or "pgmcc"
    lines: tuple[Segment, ...] = ()  # further segments to send on
