"""Offsets of the source "pgm_fleet": positions in event logs, and the time up to which all logs are read.

A micro-batch is cut by time, so all nodes advance together. A query that catches up over hours then never has rows of one
node far ahead of those of another, which its watermark would drop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from pgm.figures.minutes import MINUTE_US
from pgm.spark.fleet.places import FleetSurvey
from pgm.telemetry.log_files import run_of

_AHEAD_US = 1_000_000  # clocks of nodes agree to a second
_LEAST_SLICE_US = MINUTE_US  # of a catch-up: a window of the tables


@attrs.frozen
class FleetOffset:
    """End of a micro-batch.

    `logs` has the next row of each log. `until_us` is the time up to which rows were read. `away` has each place that does
    not answer, with the time since then and the reason. `gone` has the ends of logs that vanished before their end was
    read, and `back` the places that answer again: they belong to the micro-batch that ends here.
    """

    logs: dict[str, int]
    until_us: int = 0
    away: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    gone: dict[str, int] = attrs.field(factory=dict)
    back: dict[str, int] = attrs.field(factory=dict)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> FleetOffset:
        """Return the offset of a checkpoint."""
        away = {place: (int(since), str(reason)) for place, (since, reason) in value["away"].items()}
        return cls(dict(value["logs"]), value["until_us"], away, dict(value["gone"]), dict(value["back"]))

    def as_json(self) -> dict[str, Any]:
        """Return the value for a checkpoint."""
        return {
            "logs": dict(sorted(self.logs.items())),
            "until_us": self.until_us,
            "away": {place: list(told) for place, told in sorted(self.away.items())},
            "gone": self.gone,
            "back": self.back,
        }


def start_of(found: FleetSurvey, *, is_latest: bool) -> FleetOffset:
    """Return the offset of a new query. Rows that were deleted before are no loss to it."""
    states = [state for _, state in found.logs.values()]
    logs = {state.name: state.next if is_latest else state.first for state in states}
    times = [state.newest_us if is_latest else state.begins_us for state in states]
    until_us = 0 if not times else max(times) if is_latest else min(times) - 1
    return FleetOffset(logs, until_us)


def time_until(start: FleetOffset, found: FleetSurvey, most_rows: int, now_us: int) -> int:
    """Return the time up to which the next micro-batch reads: the newest row, or less in a catch-up.

    Rows from the future wait for the clock of this host.
    """
    states = [state for _, state in found.logs.values() if state.next > start.logs.get(state.name, 0)]
    newest_us = min(max((state.newest_us for state in states), default=0), now_us + _AHEAD_US)
    pending = sum(state.next - start.logs.get(state.name, 0) for state in states)
    if pending <= most_rows or newest_us <= start.until_us:
        return max(newest_us, start.until_us)
    begins_us = max(start.until_us, min(state.begins_us for state in states))
    slice_us = max(_LEAST_SLICE_US, (newest_us - begins_us) * most_rows // pending)
    return min(newest_us, begins_us + slice_us)


def needs_cut(until_us: int, start: FleetOffset, found: FleetSurvey) -> bool:
    """Return whether a log has rows later than the end of the micro-batch."""
    return any(state.newest_us > until_us and state.next > start.logs.get(state.name, 0) for _, state in found.logs.values())  # fmt: skip


def bounded(found: FleetSurvey, ends: Mapping[str, int] | None) -> FleetSurvey:
    """Return the states up to the ends of a query that will end. None: the query has no end."""
    if ends is None:
        return found
    logs = {}
    for name, (place, state) in found.logs.items():
        end = min(state.next, ends.get(name, 0))
        logs[name] = place, attrs.evolve(state, next=end, cut=min(state.cut, end))
    return attrs.evolve(found, logs=logs)


def advanced(start: FleetOffset, found: FleetSurvey, until_us: int, now_us: int) -> FleetOffset:
    """Return the end of the next micro-batch; `start` without news."""
    logs = {name: at for name, at in start.logs.items() if name in found.logs}
    gone: dict[str, int] = {}
    if found.away:  # logs that were not found may be there
        logs = dict(start.logs)
    else:
        gone = _gone(start, found)
    for name, (_, state) in found.logs.items():
        at = max(min(state.cut, state.next), start.logs.get(name, 0))
        if at or name in start.logs:
            logs[name] = at
    away = {place: start.away.get(place, (now_us, reason)) for place, reason in found.away.items()}
    back = {place: now_us for place in start.away if place not in found.away}
    until_us = max(until_us, start.until_us)
    has_news = bool(gone) or logs != start.logs or away != start.away or until_us > start.until_us
    return FleetOffset(logs, until_us, away, gone, back) if has_news else start


def _gone(start: FleetOffset, found: FleetSurvey) -> dict[str, int]:
    """Return the end of each log that vanished before its end was read, or before any row was."""
    gone: dict[str, int] = {}
    for name, at in start.logs.items():
        if name not in found.logs:
            end = _known_end(name, found)
            if end is None or end > at:
                gone[name] = at if end is None else end
    for name, (_, state) in found.logs.items():
        writer, _ = run_of(name)
        known = [run for other, run in map(run_of, start.logs) if other == writer]
        for run, rows in state.earlier.items() if known and name not in start.logs else ():
            log = f"{writer}-{run}"
            if run > max(known) and log not in found.logs:
                gone[log] = rows
    return gone


def _known_end(name: str, found: FleetSurvey) -> int | None:
    """Return the rows of a log that is gone: those that a later run tells, 0 if nothing tells of any, None if all is gone."""
    writer, run = run_of(name)
    later = [state for _, state in found.logs.values() if run_of(state.name)[0] == writer]
    if not later:
        return None
    return max((state.earlier.get(run, 0) for state in later), default=0)
