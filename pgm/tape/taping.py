"""Tapes of running nodes: their folders, and the block in which a tape is kept.

Each run of a node has a folder of its own inside the folder that the operator names. Its name has node, time and process,
so tapes of runs that ended stay. The oldest of them are deleted, and never one that is still written.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pgm.core
from pgm.core.interface import Core
from pgm.core.segment import Segment
from pgm.errors import TapeError
from pgm.tape.recorder import TapeLimits, TapeRecorder
from pgm.tape.segments import SegmentRing, folder_name, segments_of
from pgm.topology.node_plan import NodePlan

_CODE = ("pgm/core", "pgm/wire", "pgm/fec", "pgm/parameters.py", "pgm/units.py", "aggregator", "repairer")
_NUMBERS = itertools.count()  # of the tapes of this process


@functools.cache
def code_fingerprint() -> str:
    """Return a hash of the source text of the cores. A tape of other code may replay otherwise."""
    root = Path(pgm.core.__file__).parents[2]
    digest = hashlib.blake2b(digest_size=8)
    for entry in _CODE:
        path = root / entry
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def describe(plan: NodePlan, stream: str = "") -> dict[str, Any]:
    """Return what the head of a tape tells of its node and of the machine."""
    return {
        "topology": plan.topology,
        "node": plan.name,
        "role": plan.role.value,
        "stream": stream,
        "code": code_fingerprint(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "process": os.getpid(),
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@contextlib.contextmanager
def taping(
    plan: NodePlan, core: Core, segments: Sequence[Segment], now_ns: int, log: Callable[[str, str], None]
) -> Iterator[TapeRecorder | None]:
    """Keep a tape of a core during a block. Yields None if the plan names no folder. Raises `TapeError`.

    An exception that ends the block is written at the end of the tape.
    """
    if not plan.tape:
        yield None
        return
    _require_no_keys(plan)
    limits = TapeLimits.of(plan.parameters)
    base = Path(plan.tape)
    name = f"{folder_name(plan.name)}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.{os.getpid()}.{next(_NUMBERS)}"
    delete_old(base, folder_name(plan.name), plan.parameters.tapes_kept)
    ring = SegmentRing(base / name, limits.octets)
    with _held(ring.folder):
        recorder = TapeRecorder(core, segments, ring, limits, describe(plan), log)
        recorder.begin(now_ns)
        log("tape", f"the inputs of {plan.name} are kept in {ring.folder}")
        try:
            yield recorder
        except Exception as error:
            recorder.end(error)
            raise
        finally:
            recorder.end()


def _require_no_keys(plan: NodePlan) -> None:
    """Raise `TapeError` for a node of protected streams: its core asks objects that hold keys."""
    protected = [stream.name for stream in plan.streams if stream.protection.text != "clear"]
    if protected:
        raise TapeError(
            f"{plan.name} uses keys for the stream {protected[0]}, and no key may be on a tape",
            remedy="run it without --tape, or keep the tape of a node whose streams are clear",
        )


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder of a tape that is written."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_held(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def tapes_of(base: Path, node: str = "") -> list[Path]:
    """Return the tapes in a folder, or of one node, the oldest first."""
    found = [path for path in base.glob(f"{node}.*" if node else "*") if path.is_dir() and segments_of(path)]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def delete_old(base: Path, node: str, kept: int) -> None:
    """Delete the oldest tapes of a node that no process writes, but the newest `kept`."""
    ended = [path for path in tapes_of(base, node) if not _is_held(path)]
    for path in ended[: max(0, len(ended) - kept)]:
        shutil.rmtree(path, ignore_errors=True)
