"""Offsets of the next micro-batch: all sessions advance together by receive time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from pgm.spark.offsets.received_times import Spans
from pgm.spark.offsets.time_order import ReadLimits, TimeCut
from pgm.spark.ranges import SessionSpan
from pgm.spark.sessions import ArchivedSession

Cutter = Callable[[Spans, ReadLimits, int | None], TimeCut]


@attrs.frozen
class NextBatch:
    """Offsets of a micro-batch, and the receive time of its newest row; None if it takes all rows that are held."""

    offsets: dict[str, int]
    reached_us: int | None = None


def advanced(
    start: Mapping[str, int],
    sessions: Mapping[str, ArchivedSession],
    limits: ReadLimits,
    targets: Mapping[str, int] | None,
    cut: Cutter,
) -> NextBatch:
    """Return the next micro-batch: its offsets are not below `start`, within the limits, and not beyond `targets`.

    No row that is left was received before a row that is taken, so no watermark runs ahead of the rest. `cut` finds the
    ends by time; it is asked only if not all rows are taken.

    A session that `start` lacks enters with its first sqn, and its rows come with the next micro-batch. The log of a query
    thus has the beginning of every range, and a repeated batch reads the same rows. The other sessions advance to the first
    receive time of that session.
    """
    offsets = dict(start)
    spans: dict[str, SessionSpan] = {}
    entries_us: list[int] = []
    for key, session in sessions.items():
        if targets is not None and key not in targets:
            continue
        if key not in start:
            offsets[key] = session.oldest
            entries_us.append(session.first_received_us)
            continue
        end = session.next_sqn if targets is None else min(session.next_sqn, targets[key])
        if end > start[key]:
            spans[key] = SessionSpan(session, start[key], end)
    until_us = min(entries_us, default=None)
    if _take_all(spans, limits, until_us):
        offsets.update({key: span.end for key, span in spans.items()})
        return NextBatch(offsets, until_us)
    found = cut(spans, limits, until_us)
    return NextBatch(offsets | found.ends, found.reached_us)


def _take_all(spans: Spans, limits: ReadLimits, until_us: int | None) -> bool:
    """Return whether all rows are taken, as far as it is known without the times of batches."""
    if not spans:
        return True
    ahead = sum(span.end - span.first for span in spans.values())
    return (
        limits.rows is None
        and (limits.sqns is None or ahead <= limits.sqns)
        and (until_us is None or all(span.session.received_us <= until_us for span in spans.values()))
    )
