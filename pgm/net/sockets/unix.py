"""Unix sockets by which a node answers to its own user: made in the runtime folder, for their owner only, removed at the end."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from pgm.errors import ProcessError

_BACKLOG = 16  # askers that wait


@asynccontextmanager
async def listening(path: Path, what: str) -> AsyncIterator[trio.socket.SocketType]:
    """A socket that listens at `path` for the length of a block, `what` it is for in words. A stale one of a dead process is replaced.

    Raises `ProcessError` where somebody answers already, or where there can be no socket.
    """
    try:
        _prepare(path)
        sock = await _bound(path)
    except OSError as error:
        raise ProcessError(
            f"cannot make the {what} socket {path}: {error.strerror or error}",
            remedy="set PGM_RUNTIME_DIR (for `pgm demo` TMPDIR) to a folder with a short path in which this user may write",
        ) from error
    try:
        yield sock
    finally:
        sock.close()
        _remove(path)


async def _bound(path: Path) -> trio.socket.SocketType:
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await sock.bind(str(path))
        _restrict(path)
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _restrict(path: Path) -> None:
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _prepare(path: Path) -> None:
    """Make the folder; refuse a socket on which somebody answers, remove one on which nobody does."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.parent.stat().st_uid not in (os.geteuid(), 0):
        raise ProcessError(
            f"{path.parent} belongs to another user",
            remedy="set PGM_RUNTIME_DIR, or XDG_RUNTIME_DIR, to a folder of your own",
        )
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ProcessError(
        f"a process for this node is already running: {path} answers",
        remedy="stop it first, or set PGM_RUNTIME_DIR to run two trees of one name",
    )
