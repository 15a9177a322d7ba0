"""Findings of a folder of tables: changes of regime of each link's loss and repair latency, with their evidence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pgm.figures.changes import Change, changes_of
from pgm.figures.minutes import FINDINGS_FILE, MINUTE_US
from pgm.figures.values import iso
from pgm.spark.fleet.tables import TableFolder

_MOST_MINUTES = 10_080  # of a series: a week
_MOST_LINKS = 10_000
_SAME_US = 30 * MINUTE_US  # a place that moves by less with more samples is the same change
_MOST_TOLD = 64  # of a series
_EVERY_S = 60.0  # between two looks, since each looks at whole series
_TEST = "rank test of the samples before and after, for dependent samples and all minutes of the series"

# figure -> table, what it is called, unit as a factor and a text
_FIGURES = {"loss": ("links", "loss", 100, " %"), "p50_ms": ("repairs", "median repair latency", 1, " ms")}

Finding = dict[str, Any]


@attrs.define
class Findings:
    """Series of a folder of tables, which grow with it, and the changes found in them.

    `on_finding` receives each change once, also over restarts: the file of findings has those of earlier jobs. Series have the minutes of a week at most, of 10,000 links.
    """

    tables: TableFolder
    on_finding: Callable[[Finding], None] = lambda _: None
    _series: dict[tuple[str, str], dict[int, float]] = attrs.field(init=False, factory=dict)
    _read: dict[Path, int] = attrs.field(init=False, factory=dict)  # files by their time of change
    _told: dict[tuple[str, str], list[int]] = attrs.field(init=False, factory=dict)
    _last: list[Finding] = attrs.field(init=False, factory=list)
    _looked_s: float = attrs.field(init=False, default=float("-inf"))

    def look(self, *, is_last: bool = True) -> list[Finding]:
        """Read new files, find the changes, and write them beside the tables. Return them, the newest first.

        Without `is_last` the tables are looked at once a minute at most. Raises `UsageError` without ruptures.
        """
        if not is_last and time.monotonic() - self._looked_s < _EVERY_S:
            return self._last
        if self._take_new_files():
            found = [
                _finding(link, figure, sorted(series.items()), change)
                for (link, figure), series in self._series.items()
                for change in changes_of([value for _, value in sorted(series.items())])
            ]
            self._last = sorted(found, key=lambda finding: (finding["at"], finding["link"]), reverse=True)
            value = {"looked": iso(time.time_ns() // 1000), "series": len(self._series), "findings": self._last}
            self._tell()
            self.tables.put(FINDINGS_FILE, json.dumps(value).encode())
        self._looked_s = time.monotonic()
        return self._last

    def _tell(self) -> None:
        if self._looked_s < 0:
            for finding in self._earlier():
                self._told.setdefault((finding["link"], finding["figure"]), []).append(finding["at_us"])
        for finding in reversed(self._last):
            at_us = finding["at_us"]
            told = self._told.setdefault((finding["link"], finding["figure"]), [])
            if all(abs(at_us - other_us) > _SAME_US for other_us in told):
                self.on_finding(finding)
                told.append(at_us)
                del told[:-_MOST_TOLD]

    def _earlier(self) -> list[Finding]:
        """Return the findings of an earlier job; none from a file that is damaged."""
        try:
            found: list[Finding] = json.loads((self.tables.folder / FINDINGS_FILE).read_bytes())["findings"]
            return [one for one in found if {"link", "figure", "at_us"} <= one.keys()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    def _take_new_files(self) -> bool:
        is_new = False
        for figure, (table, _, _, _) in _FIGURES.items():
            for file in self.tables.files(table):
                changed_ns = file.stat().st_mtime_ns
                if self._read.get(file) != changed_ns:
                    self._read[file] = changed_ns
                    self._take(pq.read_table(file, columns=["minute", "link", figure], partitioning=None), figure)
                    is_new = True
        return is_new

    def _take(self, rows: pa.Table, figure: str) -> None:
        minutes = rows.column("minute").cast(pa.int64()).to_pylist()
        for minute, link, value in zip(minutes, rows.column("link").to_pylist(), rows.column(figure).to_pylist(), strict=True):  # fmt: skip
            if (link, figure) in self._series or len(self._series) < _MOST_LINKS:
                series = self._series.setdefault((link, figure), {})
                series[minute] = value
                if len(series) > _MOST_MINUTES:
                    del series[next(iter(series))]  # minutes come in order


def _finding(link: str, figure: str, series: Sequence[tuple[int, float]], change: Change) -> Finding:
    """Return a change with its evidence, for people and for programs."""
    _, name, times, unit = _FIGURES[figure]
    at_us = series[change.at][0]
    before, after = (f"{value * times:.3g}{unit}" for value in (change.before, change.after))
    text = (
        f"{link}: {name} {'rose' if change.after > change.before else 'fell'} from {before} to {after} at "
        f"{iso(at_us)[:16].replace('T', ' ')}, by {change.samples_before} minutes before and {change.samples_after} after; "
        f"chance of a false finding {max(change.p, 1e-99):.0e}"
    )
    return {
        "link": link, "figure": figure, "at": iso(at_us), "at_us": at_us, "before": change.before, "after": change.after,
        "samples_before": change.samples_before, "samples_after": change.samples_after, "p": change.p, "test": _TEST,
        "text": text,
    }  # fmt: skip
