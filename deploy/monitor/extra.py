"""Check for the packages of the extras `[monitor]` and `[otlp]`."""

from __future__ import annotations

import importlib

from pgm.errors import UsageError

REMEDY = "pip install 'pgm-repair-network[{extra}]'"


def need(command: str, *modules: str, extra: str = "monitor") -> None:
    """Raise `UsageError` if a module that a command needs is missing."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            raise UsageError(
                f"{command} needs {name}, which is not installed", remedy=REMEDY.format(extra=extra)
            ) from None
