"""Unix sockets for the node's own user: in the runtime folder, owner-only, and removed at the end."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgm.errors import ProcessError
from pgm.net.sockets.trusted_folders import check_folder, check_peer, make_folder

_BACKLOG = 16  # connections that wait


@contextmanager
def listening(path: Path, purpose: str) -> Iterator[socket.socket]:
    """Listen at `path` with a non-blocking socket for the length of a block; `purpose` names it in messages.

    A stale socket of a dead process is replaced. Raises `ProcessError` if a process answers already, if the socket
    cannot be made, or if another user can change the folder or one above it.
    """
    try:
        _prepare(path)
        sock = _bind(path)
    except OSError as error:
        raise ProcessError(
            f"cannot make the {purpose} socket {path}: {error.strerror or error}",
            remedy="set PGM_RUNTIME_DIR (for `pgm demo` TMPDIR) to a folder with a short path in which this user may write",
        ) from error
    try:
        yield sock
    finally:
        sock.close()
        _remove(path)


def connect(sock: socket.socket, path: Path) -> None:
    """Connect to the socket of a node that this user trusts.

    Raises `ProcessError` if another user can change the folder or answers, and `OSError` if no process answers.
    """
    check_folder(path.parent)
    sock.connect(str(path))
    check_peer(sock, path)


def _bind(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(str(path))
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
    """Make the folder, and remove a stale socket. Raises `ProcessError` if a process answers on it."""
    make_folder(path.parent)
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
