"""Check of owner and mode: no other user can change a folder of sockets.

The check covers every folder from `/` down. The owner of a folder, and any user with write permission, can rename its
entries and put other entries in their place. A folder is therefore trusted only if every folder above it is trusted
too. Symbolic links on the path are followed, and both the link and its target are checked. Other users cannot change a
trusted path between the check and the use.
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

from pgm.errors import ProcessError, UsageError

USER_VARIABLE = "PGM_RUNTIME_USER"

_OWN_FOLDER = "set PGM_RUNTIME_DIR, XDG_RUNTIME_DIR, or for `pgm demo` TMPDIR, to a folder of your own"
_TRUST_REMEDY = f"{_OWN_FOLDER}; to ask the nodes of another user whom you trust, set {USER_VARIABLE} to that user"
_MOST_LINKS = 40  # on one path, as the kernel allows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CREDENTIALS = struct.Struct("=iII")  # pid, uid and gid, as SO_PEERCRED gives them


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return the kernel's process id and user id of a Unix socket's peer."""
    octets = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(octets)
    return pid, uid


def make_folder(folder: Path, remedy: str = _OWN_FOLDER) -> None:
    """Make a folder of this user, with the missing folders above it. The `remedy` names the setting of the folder.

    Raises `ProcessError` if another user can change the folder or one above it, and `OSError` if it cannot be made.
    """
    _walk(folder, _own_users(), remedy, remedy, make=True)


def check_own_folder(folder: Path, remedy: str) -> None:
    """Check that only this user and root can change a folder's entries. Raises as `check_folder`."""
    _walk(folder, _own_users(), remedy, remedy, make=False)


def check_folder(folder: Path) -> None:
    """Check that only trusted users can change the entries of a folder.

    Trusted are root, this user, and the user of PGM_RUNTIME_USER. Raises `ProcessError` if another user can, and
    `OSError` if there is no such folder.
    """
    _walk(folder, _trusted_users(), _TRUST_REMEDY, _OWN_FOLDER, make=False)


def check_peer(sock: socket.socket, path: Path) -> None:
    """Check that a process of a trusted user answers on a connected socket. Raises `ProcessError`."""
    _, uid = peer_of(sock)
    if uid not in _trusted_users():
        raise ProcessError(f"a process of another user answers on {path}: {_name(uid)}", remedy=_TRUST_REMEDY)


def _own_users() -> frozenset[int]:
    return frozenset((0, os.geteuid()))


def _trusted_users() -> frozenset[int]:
    """Return the users whose nodes may be asked. Raises `UsageError` if PGM_RUNTIME_USER names no user."""
    user = os.environ.get(USER_VARIABLE)
    if not user:
        return _own_users()
    try:
        uid = int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UsageError(
            f"{USER_VARIABLE} names no user: {user}", remedy="give the name or number of the user that runs the nodes"
        ) from None
    return _own_users() | {uid}


def _walk(folder: Path, users: frozenset[int], remedy: str, choice: str, *, make: bool) -> None:
    """Check each folder and each link from `/` to `folder`; `make` the missing folders."""
    at, status = Path("/"), os.lstat("/")
    # In a user namespace the kernel shows root's files as files of the owner of `/`, and so it shows files of unmapped
    # users. Those users can make folders of that owner only in world-writable folders.
    root_uid = status.st_uid
    left, links = deque(folder.absolute().parts[1:]), 0
    _check_entry(at, status, users | {root_uid}, remedy, choice)
    while left:
        name = left.popleft()
        if name == "..":
            at = at.parent
            status = os.lstat(at)
            continue
        owners = users if status.st_mode & _OTHERS_WRITE else users | {root_uid}
        below = at / name
        if make and not os.path.lexists(below):
            below.mkdir(mode=stat.S_IRWXU, exist_ok=True)
        entry = os.lstat(below)
        _check_entry(below, entry, owners, remedy, choice)
        if not stat.S_ISLNK(entry.st_mode):
            at, status = below, entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
        target = Path(os.readlink(below))
        left.extendleft(reversed(target.parts[target.is_absolute() :]))
        if target.is_absolute():
            at = Path("/")
            status = os.lstat(at)
    # In a world-writable folder any user can place a socket, even with the sticky bit.
    if status.st_mode & _OTHERS_WRITE:
        raise _writable(at, status, choice)


def _check_entry(path: Path, status: os.stat_result, owners: frozenset[int], remedy: str, choice: str) -> None:
    """Check a link or folder. With the sticky bit other users can only add entries, whose owner is checked next."""
    if status.st_uid not in owners:
        raise ProcessError(f"{path} belongs to another user: {_owner_and_mode(status)}", remedy=remedy)
    is_open = status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
    if is_open and not stat.S_ISLNK(status.st_mode):
        raise _writable(path, status, choice)


def _writable(path: Path, status: os.stat_result, choice: str) -> ProcessError:
    return ProcessError(
        f"other users may write in {path}: {_owner_and_mode(status)}", remedy=f"chmod go-w {path}; or {choice}"
    )


def _owner_and_mode(status: os.stat_result) -> str:
    return f"owner {_name(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o}"


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)
