"""Events of a node as records of the logger `pgm` of the standard library.

The logger has no handler of its own that prints, so a program without configuration sees nothing. Each record has the
fields of `FIELDS` as attributes, for structured handlers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import attrs

from pgm.core.effects import Notice
from pgm.core.events import EVENTS, Happening, id_of, text_of
from pgm.wire.formats import tsi_text

LOGGER = logging.getLogger("pgm")
LOGGER.addHandler(logging.NullHandler())

# Attributes of each record: empty if the event has no such thing.
FIELDS = ("code", "node", "stream", "tsi", "segment", "text", "remedy")
_ERRORS = ("archive-corrupt", "recorder-failed", "closed-reset", "publish-again", "apply-back-failed")
_SESSION = re.compile(r"\bsession ([0-9]+(?:\.[0-9]+)+)")
_SEGMENT = re.compile(r"\bsegment ([^\s:]+)")


def level_of(event_id: str) -> int:
    """Return the level of an event: ERROR for losses and failures, WARNING for what has a remedy, otherwise INFO."""
    if event_id.startswith("lost-") or event_id in _ERRORS:
        return logging.ERROR
    event = EVENTS.get(event_id)
    return logging.WARNING if event is not None and event.remedy else logging.INFO


def log_line(code: str, text: str, *, node: str = "", stream: str = "", tsi: str = "") -> None:
    """Log a code, mostly the id of an event, and a sentence."""
    level = level_of(code)
    if not LOGGER.isEnabledFor(level):
        return
    event = EVENTS.get(code)
    session, segment = _SESSION.search(text), _SEGMENT.search(text)
    fields = {
        "code": code,
        "node": node,
        "stream": stream,
        "tsi": tsi or (session[1] if session else ""),
        "segment": segment[1] if segment else "",
        "text": text,
        "remedy": event.remedy if event is not None else "",
    }
    LOGGER.log(level, "%s: %s", code, text, extra=fields)


@attrs.frozen
class EventLog:
    """Log of the events of one endpoint."""

    node: str
    stream: str = ""

    def __call__(self, event: Happening) -> None:
        """Log an event."""
        tsi = "" if isinstance(event, Notice) else tsi_text(event.tsi)
        log_line(id_of(event), text_of(event), node=self.node, stream=self.stream, tsi=tsi)


def handler_of(on_notice: Callable[[Notice], None] | None, node: str, stream: str | None) -> Callable[[Notice], None]:
    """Return the function of an application that takes notices, or a log of them if the application has none."""
    return on_notice or EventLog(node, stream or "")
