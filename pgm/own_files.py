"""Private files of this user, shared memory in files, and protection of the memory of a process that reads keys.

A file that is new or renamed outlives a crash of the machine once its folder is on the disk, too.

The memory is protected from core dumps and from debuggers of the user.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from pgm.errors import KeyRefused, ProcessError

PR_SET_DUMPABLE = 4  # of prctl(2)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def forbid_core_dumps() -> None:
    """Make this process undumpable: the kernel writes no core, and only root may read the memory. Raises `OSError`.

    Files of the process in `/proc` belong to root from then on. The setting ends with the process, or with an exec.
    """
    if _prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")


def read_own_file(path: Path, most: int) -> bytes:
    """Return at most one octet more than `most` of a file that this user alone may read. Raises `KeyRefused`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}", remedy="run as the user that made the keys") from None
    try:
        status = os.fstat(descriptor)
        flaw = flaw_of(status)
        if flaw is not None:
            raise KeyRefused(f"{path} {flaw[0]}", remedy=flaw[1].format(path=path))
        return os.read(descriptor, most + 1)
    finally:
        with suppress(OSError):
            os.close(descriptor)


def replace_synced(path: Path, octets: bytes) -> None:
    """Write a file at once for all readers, and wait until it and its name are on the disk. Raises `OSError`."""
    hidden = path.with_name(f".{path.name}.tmp")
    with hidden.open("wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on its disk. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flaw_of(status: os.stat_result) -> tuple[str, str] | None:
    """Return the flaw of a private file with its remedy, or None. The remedy has a place for the path."""
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file", "make keys with: pgm keys new"
    if status.st_uid != os.geteuid():
        return f"belongs to another user: uid {status.st_uid}", "run as that user, or: chown {path}"
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        remedy = "chmod 600 {path}; other users may know the keys: replace them with pgm keys rotate"
        return f"is open to other users: mode {mode:04o}", remedy
    return None


def boot_id() -> str:
    """Return the id of this boot: all processes of one boot have the same monotonic clock. Empty where it is hidden."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def open_own(path: Path, called: str, elsewhere: str) -> int:
    """Open or create a file that only this user may use, lock it, and return its descriptor.

    Errors name the file as it is `called`, and `elsewhere` as the way to another file. Raises `ProcessError`.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, stat.S_IRUSR | stat.S_IWUSR)
    except OSError as error:
        raise ProcessError(f"{called} {path} cannot be opened: {error.strerror}", remedy=elsewhere) from error
    status = os.fstat(fd)
    problem, remedy = "", f"remove the file, or {elsewhere}"
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        problem = "is not a regular file with one name"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}"
    elif status.st_mode & _OTHERS:
        problem = f"may be used by others: mode {stat.S_IMODE(status.st_mode):04o}"
    else:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            problem, remedy = "is in use by another process", "stop that process: each node runs once"
    if problem:
        os.close(fd)
        raise ProcessError(f"{called} {path} {problem}", remedy=remedy)
    return fd
