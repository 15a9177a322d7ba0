"""Folders with short paths, for status sockets, that no test run leaves behind.

A killed run cannot clean up; the next run removes its folders by the process id in the name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pgm-test-"
_ABANDONED = re.compile(PREFIX + r"([0-9]+)-.+")
_AGE_S = 3600.0  # a process id of another host that shares the folder means nothing here


def sweep(age_s: float = _AGE_S) -> list[Path]:
    """Remove and return the folders of ended runs above the age limit."""
    swept = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        named = _ABANDONED.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # the folder belongs to another user, or another run has removed it
            if named and not Path(f"/proc/{named[1]}").exists() and time.time() - folder.stat().st_mtime >= age_s:
                shutil.rmtree(folder)
                swept.append(folder)
    return swept


@functools.cache
def _sweep_once() -> None:
    sweep()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a folder for the length of a block."""
    _sweep_once()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
