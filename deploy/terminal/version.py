"""Version of the installed distribution."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("pgm-repair-network")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"


VERSION = _version()
