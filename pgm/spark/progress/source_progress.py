"""Progress of the sources of this format in a streaming query, read from Spark's own progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs

from pgm.spark.progress.observed import OBSERVATION
from pgm.spark.progress.source_state import STATE, SourceState

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@attrs.frozen
class SourceProgress:
    """Progress of one source in one micro-batch. Losses are None unless the query has `observed` rows."""

    state: SourceState
    rows: int
    rows_per_second: float
    dropped_rows: int  # by the watermarks of the query; Spark counts after a first aggregation
    losses: int | None = None
    lost_sqns: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all figures on one level."""
        return self.state.as_json() | attrs.asdict(self, filter=lambda field, _: field.name != "state")

    def __str__(self) -> str:
        """Return one line."""
        state = self.state
        lost = "" if self.lost_sqns is None else f", {self.lost_sqns:,} sqns lost"
        dropped = f", {self.dropped_rows:,} rows DROPPED by the watermark" if self.dropped_rows else ""
        return (
            f"{state.source}: {state.sessions} sessions, {self.rows:,} rows ({state.octets:,} octets), "
            f"{state.lag_sqns:,} sqns and {state.lag_s:.1f} s behind{lost}{dropped}"
        )


def progress_of(progress: StreamingQueryProgress | None) -> list[SourceProgress]:
    """Return the progress of each source of this format.

    `progress` is `query.lastProgress`, or `event.progress` of a listener; None, before the first micro-batch, gives none.
    """
    if progress is None:
        return []
    counts = progress.observedMetrics.get(OBSERVATION)
    dropped = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
    found = []
    for source in progress.sources:
        latest = json.loads(source.latestOffset) if source.latestOffset else None
        if isinstance(latest, dict) and STATE in latest:
            found.append(
                SourceProgress(
                    SourceState.from_json(latest[STATE]),
                    source.numInputRows,
                    source.processedRowsPerSecond,
                    dropped,
                    None if counts is None else counts.losses,
                    None if counts is None else counts.lost_sqns,
                )
            )
    return found
