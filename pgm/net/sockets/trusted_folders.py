"""Folders of sockets that no other user can change: the check of owner and mode, from `/` down to the folder itself.

The owner of a folder, and anybody who may write in it, can rename what lies in it and put another thing in its place.
A folder is therefore trusted only if every folder above it is trusted too. Symbolic links on the path are followed, and
both the link and its target are checked. A path that passes cannot be changed by others between the check and the use.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
import struct
from collections import deque
from pathlib import Path

import trio

from pgm.errors import ProcessError, UsageError

USER_VARIABLE = "PGM_RUNTIME_USER"

_OWN_FOLDER = "set PGM_RUNTIME_DIR, XDG_RUNTIME_DIR, or for `pgm demo` TMPDIR, to a folder of your own"
_ASK_OTHERS = f"{_OWN_FOLDER}; to ask the nodes of another user whom you trust, set {USER_VARIABLE} to that user"
_MOST_LINKS = 40  # on one path, as the kernel allows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CREDENTIALS = struct.Struct("=iII")  # pid, uid and gid, as SO_PEERCRED gives them


def peer_of(sock: socket.socket | trio.socket.SocketType) -> tuple[int, int]:
    """Return process id and user id of the other end of a connected Unix socket, as the kernel knows them."""
    octets = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(octets)
    return pid, uid


def make_folder(folder: Path) -> None:
    """Make a folder in which this user's sockets may lie, with the folders above it that are missing.

    Raises `ProcessError` if another user can change the folder or one above it, and `OSError` if it cannot be made.
    """
    _walk(folder, _own_users(), _OWN_FOLDER, make=True)


def check_folder(folder: Path) -> None:
    """Check that only root, this user, and the user of PGM_RUNTIME_USER can change what lies in a folder.

    Raises `ProcessError` if somebody else can, and `OSError` if there is no such folder.
    """
    _walk(folder, _asked_users(), _ASK_OTHERS, make=False)


def check_peer(sock: socket.socket, path: Path) -> None:
    """Check that a process of such a user answers on a connected socket. Raises `ProcessError`."""
    _, uid = peer_of(sock)
    if uid not in _asked_users():
        raise ProcessError(f"a process of another user answers on {path}: {_name(uid)}", remedy=_ASK_OTHERS)


def _own_users() -> frozenset[int]:
    return frozenset((0, os.geteuid()))


def _asked_users() -> frozenset[int]:
    """The users whose nodes may be asked. Raises `UsageError` for a PGM_RUNTIME_USER that does not exist."""
    named = os.environ.get(USER_VARIABLE)
    if not named:
        return _own_users()
    try:
        uid = int(named) if named.isdecimal() else pwd.getpwnam(named).pw_uid
    except KeyError:
        raise UsageError(
            f"{USER_VARIABLE} names no user: {named}", remedy="give the name or number of the user that runs the nodes"
        ) from None
    return _own_users() | {uid}


def _walk(folder: Path, users: frozenset[int], remedy: str, *, make: bool) -> None:
    """Check each folder and each link on the way from `/` to `folder`; `make` the folders that are missing."""
    at, found = Path("/"), os.lstat("/")
    # In a user namespace the kernel shows root's files as those of the owner of `/`, and strangers' files too.
    # Strangers can make folders of that owner only where everybody may write.
    root_uid = found.st_uid
    left, links = deque(folder.absolute().parts[1:]), 0
    _judge(at, found, users | {root_uid}, remedy)
    while left:
        name = left.popleft()
        if name == "..":
            at = at.parent
            found = os.lstat(at)
            continue
        owners = users if found.st_mode & _OTHERS_WRITE else users | {root_uid}
        below = at / name
        if make and not os.path.lexists(below):
            below.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        entry = os.lstat(below)
        _judge(below, entry, owners, remedy)
        if not stat.S_ISLNK(entry.st_mode):
            at, found = below, entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
        target = Path(os.readlink(below))
        left.extendleft(reversed(target.parts[target.is_absolute() :]))
        if target.is_absolute():
            at = Path("/")
            found = os.lstat(at)
    # Where everybody may write, anybody may put a socket, with the sticky bit too.
    if found.st_mode & _OTHERS_WRITE:
        raise _writable(at, found)


def _judge(path: Path, found: os.stat_result, owners: frozenset[int], remedy: str) -> None:
    """Check a link or folder. In one with the sticky bit others can only add entries, and the owner of an entry is checked."""
    if found.st_uid not in owners:
        raise ProcessError(f"{path} belongs to another user: {_owner_and_mode(found)}", remedy=remedy)
    is_open = found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX
    if is_open and not stat.S_ISLNK(found.st_mode):
        raise _writable(path, found)


def _writable(path: Path, found: os.stat_result) -> ProcessError:
    return ProcessError(
        f"other users may write in {path}: {_owner_and_mode(found)}", remedy=f"chmod go-w {path}; or {_OWN_FOLDER}"
    )


def _owner_and_mode(found: os.stat_result) -> str:
    return f"owner {_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}"


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)
