"""Check for the packages of the extra `[monitor]`."""

from __future__ import annotations

import importlib

from pgm.errors import UsageError

REMEDY = "pip install 'pgm-repair-network[monitor]'"


def need(command: str, *modules: str) -> None:
    """Raise `UsageError` if a module that a command needs is missing."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            raise UsageError(f"{command} needs {name}, which is not installed", remedy=REMEDY) from None
