"""Filter of a log: the first of equal rows passes, the others pass as one row with their number."""

from __future__ import annotations

from typing import Any

import attrs

_FIRST_S = 10.0  # interval in which equal rows are counted; it doubles while they go on
_LONGEST_S = 640.0
_MOST = 64  # different rows; the oldest leaves first

Row = dict[str, Any]
_Key = tuple[str, str, str]


@attrs.define
class _Entry:
    row: Row
    ends_s: float
    interval_s: float = _FIRST_S
    count: int = 0  # of rows since the last that passed

    def taken(self) -> list[Row]:
        """Return the counted rows as one row, and count from 0."""
        count, self.count = self.count, 0
        return [self.row | {"count": count}] if count else []


@attrs.define
class Repeats:
    """Filter of equal rows, by node, code and text. Each row that passes has `count`, the number that it stands for."""

    _entries: dict[_Key, _Entry] = attrs.field(factory=dict)

    @property
    def due_s(self) -> float | None:
        """Return when counted rows are to pass; None if none wait."""
        return min((entry.ends_s for entry in self._entries.values() if entry.count), default=None)

    def admit(self, row: Row, now_s: float) -> list[Row]:
        """Return the rows to print now: those that are due, and `row` unless it is a repetition."""
        ready = self.take_due(now_s)
        key = row["node"], row["code"], row["text"]
        entry = self._entries.get(key)
        if entry is not None:
            entry.row, entry.count = row, entry.count + 1
            return ready
        if len(self._entries) >= _MOST:
            ready += self._entries.pop(next(iter(self._entries))).taken()
        self._entries[key] = _Entry(row, now_s + _FIRST_S)
        return [*ready, row | {"count": 1}]

    def take_due(self, now_s: float) -> list[Row]:
        """Return the rows whose interval is over."""
        ready: list[Row] = []
        for key, entry in list(self._entries.items()):
            if entry.ends_s > now_s:
                continue
            rows = entry.taken()
            ready += rows
            if rows:
                entry.interval_s = min(2 * entry.interval_s, _LONGEST_S)
                entry.ends_s = now_s + entry.interval_s
            else:
                del self._entries[key]
        return ready

    def end(self) -> list[Row]:
        """Return all counted rows."""
        ready = [row for entry in self._entries.values() for row in entry.taken()]
        self._entries.clear()
        return ready
