"""Folders with short paths, which status sockets need, that no run of the tests leaves behind.

One that is killed cannot clean up after itself: the next one does, by the process id in the name.
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
_AGE_S = 3600.0  # where processes of several hosts share the folder, an id says nothing of theirs


def sweep(age_s: float = _AGE_S) -> list[Path]:
    """Remove, and return, what runs have left that are gone and were so old."""
    swept = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        named = _ABANDONED.fullmatch(folder.name)
        with contextlib.suppress(OSError):  # somebody else's, or swept by another run
            if named and not Path(f"/proc/{named[1]}").exists() and time.time() - folder.stat().st_mtime >= age_s:
                shutil.rmtree(folder)
                swept.append(folder)
    return swept


@functools.cache
def _sweep_once() -> None:
    sweep()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for the length of a block."""
    _sweep_once()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
