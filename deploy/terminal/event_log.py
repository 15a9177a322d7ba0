"""What befell the streams of one run: said on standard error as it happens, and added up for the account."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs

from deploy.terminal.output import log, remedy
from pgm.core.effects import Notice
from pgm.core.events import EVENTS, Happening, id_of, text_of
from pgm.telemetry.snapshot import event_row


@attrs.define
class _Count:
    times: int = 0
    text: str = ""


@attrs.define
class EventPrinter:
    """Events by id; as many as the table has, however long it goes on. `before` is called before each line."""

    before: Callable[[], None] = lambda: None
    _counts: dict[str, _Count] = attrs.field(factory=dict)
    _last: dict[str, Any] | None = None

    def say(self, item: Happening) -> None:
        """Log an event, with its remedy when it is the first of its kind."""
        found = id_of(item)
        self.log(found if isinstance(item, Notice) else found.partition("-")[0], text_of(item), found)

    def log(self, code: str, text: str, found: str = "") -> None:
        """Log a line; it counts if its code, or `found`, is an event's id."""
        self.before()
        log(code, text)
        kind = EVENTS.get(found or code)
        if kind is not None and self.note(kind.id, text) == 1 and kind.remedy:
            remedy(kind.remedy)

    def note(self, found: str, text: str) -> int:
        """Count an event; returns how often it has occurred."""
        count = self._counts.setdefault(found, _Count())
        count.times, count.text = count.times + 1, text
        self._last = event_row(found, text, time.time())
        return count.times

    def last(self) -> dict[str, Any] | None:
        """The last one, for the node's status."""
        return self._last

    def rows(self) -> list[dict[str, Any]]:
        """For --json: a row for each id."""
        return [
            {"id": found, "count": one.times, "text": one.text, "remedy": EVENTS[found].remedy}
            for found, one in self._counts.items()
        ]
