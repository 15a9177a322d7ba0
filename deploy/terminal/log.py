"""Log of a command: records of the logger `pgm`, printed on standard error as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from deploy.terminal.output import print_line
from pgm.telemetry.logger import FIELDS, LOGGER, log_line

TEXT, JSON = "text", "json"


class _Handler(logging.Handler):
    """Printer of records. It prints as JSON, or as a line of text with the remedy of the first event of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.form = TEXT
        self.node = ""  # of records that name none
        self.shows_remedy = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        if self.form == JSON:
            print_line(json.dumps(self._row(record), separators=(",", ":")))
            return
        print_line(record.getMessage())
        if self.shows_remedy and (remedy := getattr(record, "remedy", "")):
            print_line(f"  remedy: {remedy}")

    def _row(self, record: logging.LogRecord) -> dict[str, str]:
        """Return the documented fields of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        row = {"time": at, "level": record.levelname.lower()}
        row |= {key: getattr(record, key, "") for key in FIELDS}
        return row | {"node": row["node"] or self.node, "text": row["text"] or record.getMessage()}


_HANDLER = _Handler()


def set_log_format(form: str, node: str) -> None:
    """Print the log as `text` or `json` from now on. `node` stands in records that name none."""
    _HANDLER.form, _HANDLER.node = form, node


def log(code: str, text: str, event_id: str = "", *, is_first: bool = False) -> None:
    """Log a stable code and a sentence. Text of the first event of a kind has its remedy below."""
    if _HANDLER not in LOGGER.handlers:
        LOGGER.addHandler(_HANDLER)
        LOGGER.setLevel(logging.INFO)
    _HANDLER.shows_remedy = is_first
    log_line(code, text, event_id)
