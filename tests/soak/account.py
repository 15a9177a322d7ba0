"""Judgement of a soak: a line for each promise, which holds, fails or cannot be judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.errors import ArchiveError
from pgm.archive.requests import RangeRequest
from pgm.archive.store.reader import ArchiveReader
from tests.soak.memory import HOUR_S, MB, Series, slope
from tests.soak.run import Result
from tests.soak.tree import RECORDERS, STEADY_RECEIVERS

MOST_GROWTH = 1.0  # MB an hour
WARM_S = 1800.0  # what grows before is caches and allocators that fill
_LEAST_SPAN_S = 900.0  # a shorter fit says nothing about an hour
_LEAST_PEAKS = 6
_MOST_LOG_OCTETS = 32 << 20
_LEAST_ARRIVED = 0.97  # share of the NAKs that arrive where one percent is lost
_WRONG = ("duplicates", "out_of_order", "damaged")


@attrs.frozen
class Line:
    """One promise. `is_kept` is None if the soak was too short to tell."""

    name: str
    is_kept: bool | None
    text: str

    def __str__(self) -> str:
        """Return the line as it is printed."""
        return f"{'----' if self.is_kept is None else 'pass' if self.is_kept else 'FAIL'}  {self.name}: {self.text}"


def lines(result: Result, folder: Path) -> list[Line]:
    """Return the account of a soak."""
    return [
        *_deliveries(result),
        *_archives(result, folder / "archives"),
        *_queries(result),
        _naks(result),
        _restarts(result),
        Line("processes", not result.faults, "; ".join(result.faults[:5]) or "none ended by itself"),
        Line("logs", result.log_octets <= _MOST_LOG_OCTETS, f"{result.log_octets / MB:.1f} MB"),
        *_memory(result),
    ]


def _deliveries(result: Result) -> Iterator[Line]:
    yield Line("source", result.sent > 0, f"{result.sent:,} messages sent")
    for name in STEADY_RECEIVERS:
        runs = result.accounts.get(name, [])
        if len(runs) != 1:
            yield Line(name, False, f"{len(runs)} accounts instead of one")
            continue
        row = runs[0]
        wrong = sum(row[key] for key in _WRONG)
        text = f"{row['delivered']:,} delivered + {row['lost']:,} lost of {result.sent:,} sent, {wrong} wrong"
        yield Line(name, row["delivered"] == result.sent and row["lost"] == 0 and not wrong, text)
    rows = result.accounts.get("wild-1", [])
    wrong = sum(row[key] for row in rows for key in (*_WRONG, "lost"))
    yield Line("wild-1", bool(rows) and not wrong, f"{len(rows)} accounts with {wrong} lost or wrong")


@attrs.frozen
class Holding:
    """What one archive holds of the stream."""

    first: int
    end: int
    gaps: int  # sqns without a row
    lost: Mapping[str, int]  # sqns of rows about losses, by cause


def held(directory: Path) -> Holding:
    """Read one archive whole."""
    reader = ArchiveReader(directory)
    (session,) = reader.holdings()
    found = reader.read(RangeRequest(session.tsi, columns=("sqn", "count", "lost")))
    at, gaps = session.oldest, 0
    lost: dict[str, int] = {}
    for batch in found.batches():
        table = pa.Table.from_batches([batch])
        sqns, counts = (table[name].to_numpy() for name in ("sqn", "count"))
        starts = np.concatenate(([at], (sqns + counts)[:-1]))
        gaps += int(np.abs(sqns - starts).sum())
        at = int(sqns[-1] + counts[-1])
        for count, cause in zip(counts, table["lost"].to_pylist(), strict=True):
            if cause:
                lost[cause] = lost.get(cause, 0) + int(count)
    return Holding(session.oldest, at, gaps, lost)


def _archives(result: Result, folder: Path) -> Iterator[Line]:
    for name in ("repairer-1", "repairer-2", *RECORDERS):
        try:
            found = held(folder / name)
        except (ArchiveError, ValueError) as error:  # not there, or not of one session
            yield Line(f"archive of {name}", False, str(error))
            continue
        is_whole = found.end == result.sent and not found.gaps
        may_lose = name.endswith("-2")  # a recorder that is down records nothing, and says so
        text = (
            f"sqns {found.first:,} to {found.end:,}, {found.gaps} without a row, lost rows {dict(found.lost) or 'none'}"
        )
        yield Line(f"archive of {name}", is_whole and (may_lose or not found.lost), text)


def _queries(result: Result) -> Iterator[Line]:
    if result.query is None:
        return
    for tsi, (first, end, rows, lost, gaps) in result.query.get("sessions", {}).items():
        text = f"session {tsi}: {rows:,} rows of sqns {first:,} to {end:,}, {lost:,} lost, {gaps:,} without a row"
        yield Line("query", (first, end, rows, lost, gaps) == (0, result.sent, result.sent, 0, 0), text)
    if not result.query.get("sessions"):
        yield Line("query", False, "no session was read")


def _counters(result: Result, name: str) -> dict[str, Any]:
    rows = result.accounts.get(name) or [{}]
    found: dict[str, Any] = rows[-1].get("snapshot", {}).get("counters", {})
    return found


def _naks(result: Result) -> Line:
    """Compare NAKs sent with NAKs received in the hall without restarts."""
    names = ("calm-1", "calm-2", "recorder-1", "repairer-1")
    sent = sum(_counters(result, name).get("nak_packets", 0) for name in names)
    relayed = _counters(result, "aggregator-1").get("nak_packets", 0)  # to the repairer, or to the source
    got = sum(_counters(result, name).get("nak_packets_in", 0) for name in ("aggregator-1", "repairer-1"))
    text = f"{sent:,} sent in the calm hall and {relayed:,} by its relay, {got:,} received there"
    return Line("NAKs", sent * _LEAST_ARRIVED <= got <= sent + relayed, text)


def _restarts(result: Result) -> Line:
    said = ", ".join(f"{name} {count}" for name, count in result.restarts.items())
    slowest = max(result.slowest_s.values(), default=0.0)
    return Line("restarts", bool(result.restarts), f"{said}; the slowest start took {slowest:.1f} s")


def _fit(label: str, series: Series, *, is_enough: bool) -> Line:
    if not is_enough:
        return Line(
            f"memory of {label}", None, f"{series.span_s / 60:.0f} min after the first {WARM_S / 60:.0f}: too short"
        )
    growth = slope(series) / MB
    text = f"{growth:+.2f} MB an hour over {series.span_s / HOUR_S:.1f} h, {series.values[-1] / MB:.1f} MB at the end"
    return Line(f"memory of {label}", growth < MOST_GROWTH, text)


def _memory(result: Result) -> Iterator[Line]:
    for label, series in result.steady.items():
        warm = series.since(WARM_S)
        yield _fit(label, warm, is_enough=warm.span_s >= _LEAST_SPAN_S)
    for label, series in result.peaks.items():
        warm = series.since(WARM_S)
        is_enough = warm.span_s >= _LEAST_SPAN_S and len(warm.times) >= _LEAST_PEAKS
        yield _fit(f"{label}, most of each run", warm, is_enough=is_enough)
