"""Ends of the Python processes that Spark runs for a data source.

Spark formats an error of such a process with its traceback, unless `SPARK_HIDE_TRACEBACK` is set there. It has no setting for
streams (looked at in version 4.3). The process ends after an error, so the variable concerns this error alone.

Spark stops a query, or has enough rows for a LIMIT, by closing its connection. The loops of Spark
(`python_streaming_source_runner`, `daemon`) still write to it then, and print the error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from pgm.errors import PgmError

_HIDE = "SPARK_HIDE_TRACEBACK"
_WORKER_MARK = "PYTHON_WORKER_FACTORY_"  # beginning of variables that Spark sets for its processes alone
_GONE = (BrokenPipeError, ConnectionResetError)


def _is_worker() -> bool:
    return any(name.startswith(_WORKER_MARK) for name in os.environ)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let Spark tell an error of ours by its own text, without the traceback."""
    try:
        yield
    except PgmError:
        if _is_worker():
            os.environ[_HIDE] = "1"
        raise


@contextmanager
def early_end() -> Iterator[None]:
    """Watch the rows of a partition: if Spark takes no more of them, the process ends quietly."""
    try:
        yield
    except GeneratorExit:
        end_quietly()
        raise


def end_quietly() -> None:
    """Print no traceback of a connection that the JVM has closed, from here to the end of a process of Spark."""
    if not _is_worker():
        return
    hook, print_exc = sys.excepthook, traceback.print_exc

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, _GONE):
            hook(kind, error, trace)

    def printed(*words: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], _GONE):
            print_exc(*words, **options)

    sys.excepthook, traceback.print_exc = told, printed
