"""Log of a command on standard error: rows of the logger `pgm`, as text, as JSON, or for the journal of systemd."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from deploy.terminal.options import option
from deploy.terminal.output import print_line
from deploy.terminal.repeats import Repeats
from pgm.telemetry.logger import FIELDS, LOGGER, log_line

TEXT, JSON = "text", "json"
_PRIORITIES = {"error": 3, "warning": 4}  # of syslog; the journal takes them from the beginning of a line
_INFO = 6

Row = dict[str, Any]


@functools.cache
def _is_journal() -> bool:
    """Return whether standard error is the journal, which has a time of its own for each line."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or replaced by an object without descriptor
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


class _Printer:
    """Printer of rows. Text has the remedy below the first row of each code."""

    def __init__(self) -> None:
        self.form = TEXT
        self._explained: set[str] = set()  # codes, of which the event table and the commands have a bounded number

    def print_row(self, row: Row, *, names_node: bool = False) -> None:
        """Print a row. Text has the node's name before the code if `names_node`."""
        if self.form == JSON:
            print_line(json.dumps(row, separators=(",", ":")))
            return
        head = f"<{_PRIORITIES.get(row['level'], _INFO)}>"
        if not _is_journal():
            head = f"{row['time'][:23]}Z {row['level']:7} "
        print_line(f"{head}{row['node']} | {text_of(row)}" if names_node else head + text_of(row))
        if row["remedy"] and row["code"] not in self._explained:
            self._explained.add(row["code"])
            print_line(f"{head if head.startswith('<') else ''}  remedy: {row['remedy']}")


class _Handler(logging.Handler):
    """Handler that prints records, and equal records as one line with their number."""

    def __init__(self) -> None:
        super().__init__()
        self.printer = _Printer()
        self.node = ""  # of records that name none
        self._repeats = Repeats()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record, or count it. The caller holds the lock of the handler."""
        row = {"time": _time_text(record.created), "level": record.levelname.lower()}
        row |= {key: getattr(record, key, "") for key in FIELDS}
        row |= {"node": row["node"] or self.node, "text": row["text"] or record.getMessage()}
        for ready in self._repeats.admit(row, time.monotonic()):
            self.printer.print_row(ready)
        self._wake_later()

    def flush(self) -> None:
        """Print what was counted."""
        with self.lock or threading.RLock():
            for row in self._repeats.end():
                self.printer.print_row(row)

    def _wake_later(self) -> None:
        due_s = self._repeats.due_s
        if due_s is not None and self._timer is None:
            self._timer = threading.Timer(max(0.0, due_s - time.monotonic()), self._on_time)
            self._timer.daemon = True
            self._timer.start()

    def _on_time(self) -> None:
        with self.lock or threading.RLock():
            self._timer = None
            for row in self._repeats.take_due(time.monotonic()):
                self.printer.print_row(row)
            self._wake_later()


_HANDLER = _Handler()
_PLAIN_ROW: Row = {"level": "info"} | dict.fromkeys(FIELDS, "") | {"count": 1}


def text_of(row: Row) -> str:
    """Return a row as text, without time and level."""
    times = f" (repeated {row['count']} times)" if row["count"] > 1 else ""
    return f"{row['code']}: {row['text']}{times}"


def plain_row(node: str, code: str, text: str, level: str = "info") -> Row:
    """Return a row of this moment without stream and session."""
    row = {"time": _time_text(time.time())} | _PLAIN_ROW
    return row | {"level": level, "code": code, "node": node, "text": text}


def print_row_of(row: Row) -> None:
    """Print a row of another process, with the name of its node."""
    _HANDLER.printer.print_row(row, names_node=True)


def _time_text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def _attach() -> None:
    if _HANDLER not in LOGGER.handlers:
        LOGGER.addHandler(_HANDLER)
        LOGGER.setLevel(logging.INFO)
        atexit.register(_HANDLER.flush)


def _set_format(_: click.Context, __: click.Parameter, form: str) -> None:
    _HANDLER.printer.form = form
    _attach()


# Option of all commands that run until they are stopped.
log_format: Callable[..., Any] = option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    expose_value=False,
    callback=_set_format,
    help="Lines of the log on standard error: text, or an object on each line.",
)


def name_log(node: str) -> None:
    """Name the node that stands in rows which name none."""
    _HANDLER.node = node


def log(code: str, text: str) -> None:
    """Log a stable code and a sentence."""
    _attach()
    log_line(code, text)


def end_log() -> None:
    """Print what was counted, before the last output of a command."""
    _HANDLER.flush()
