"""Ends of the Python processes that Spark runs for a data source.

Spark formats an error of such a process with its traceback, unless `SPARK_HIDE_TRACEBACK` is set there. It has no setting for
streams (looked at in version 4.3). The process ends after an error, so the variable concerns this error alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from pgm.errors import PgmError

_HIDE = "SPARK_HIDE_TRACEBACK"
_WORKER_MARK = "PYTHON_WORKER_FACTORY_"  # beginning of variables that Spark sets for its processes alone
_GONE = (BrokenPipeError, ConnectionResetError)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let Spark tell an error of ours by its own text, without the traceback."""
    try:
        yield
    except PgmError:
        if any(name.startswith(_WORKER_MARK) for name in os.environ):
            os.environ[_HIDE] = "1"
        raise


def end_quietly() -> None:
    """Print no traceback if the JVM has closed the connection, as it does to stop a query.

    Spark's own loop (`python_streaming_source_runner`, 4.3) still writes to the connection then, and fails.
    """
    former = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, _GONE):
            former(kind, error, trace)

    sys.excepthook = hook
