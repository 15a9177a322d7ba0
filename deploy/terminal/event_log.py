"""Events of the streams of one run: printed on standard error as they happen, and counted for the account."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs

from deploy.terminal.log import log
from pgm.core.events import EVENTS, Happening, id_of, text_of
from pgm.telemetry.snapshot import MOST_EVENTS, event_row


@attrs.define
class _Count:
    times: int = 0
    text: str = ""


@attrs.define
class EventPrinter:
    """Printer and counter of events. It keeps one count per id of the event table. `before` is called before each line."""

    before: Callable[[], None] = lambda: None
    _counts: dict[str, _Count] = attrs.field(factory=dict)
    _recent: deque[dict[str, Any]] = attrs.field(factory=lambda: deque(maxlen=MOST_EVENTS))

    def say(self, item: Happening) -> None:
        """Log an event."""
        self.log(id_of(item), text_of(item))

    def log(self, code: str, text: str) -> None:
        """Log a line. The line counts as an event if `code` is the id of an event."""
        self.before()
        if code in EVENTS:
            self.note(code, text)
        log(code, text)

    def note(self, event_id: str, text: str) -> None:
        """Count an event."""
        count = self._counts.setdefault(event_id, _Count())
        count.times, count.text = count.times + 1, text
        self._recent.append(event_row(event_id, text, time.time()))

    def recent(self) -> list[dict[str, Any]]:
        """Return the rows of the last events, the oldest first, for the node's status."""
        return list(self._recent)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each id that occurred, for --json."""
        return [
            {"id": event_id, "count": count.times, "text": count.text, "remedy": EVENTS[event_id].remedy}
            for event_id, count in self._counts.items()
        ]
