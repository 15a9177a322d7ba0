"""Folders with the sockets of running trees: this user's runtime folder, and one temporary folder for each demo."""

from __future__ import annotations

import errno
import glob
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pgm.errors import ProcessError
from pgm.net.control.status_socket import runtime_dir
from pgm.net.sockets.trusted_folders import check_folder

DEMO_PREFIX = "pgm-demo-"  # of the temporary folder of a demo
OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # limits of the calling process, no evidence about the folder


def tree_folders(name: str | None = None) -> list[Path]:
    """Return the socket folders of the trees called `name`, or of all trees.

    The runtime folder comes first, then the folders of demos, the newest first. Demos are left out if PGM_RUNTIME_DIR is
    set, and demos of other users always. The tree of a folder may have ended, and the folder may vanish at any moment.
    Raises `ProcessError` for a folder that other users can change.
    """
    pattern = "*" if name is None else glob.escape(name.replace("/", "_"))
    folders = _folders(runtime_dir("x").parent, pattern)
    for folder in folders:
        with suppress(FileNotFoundError):  # the tree has just ended
            check_folder(folder)
    if "PGM_RUNTIME_DIR" not in os.environ:
        demos = [path for path in Path(tempfile.gettempdir()).glob(f"{DEMO_PREFIX}*") if path.is_dir()]
        for demo in sorted(demos, key=_age_ns):
            folders += filter(_is_trusted, _folders(demo, pattern))
    return folders


def is_file(where: str) -> bool:
    """Return whether a command-line argument is the file of a tree, and not the name of a running tree."""
    return where.endswith(".toml") or "/" in where or Path(where).is_file()


def folder_of(name: str, sockets: str) -> Path:
    """Return the folder of a tree that has sockets matching a pattern such as `*.sock`.

    If no folder has any, return the folder in the runtime folder. Raises `OSError` like `sockets_in`.
    """
    return next((folder for folder in tree_folders(name) if sockets_in(folder, sockets)), runtime_dir(name))


def sockets_in(folder: Path, sockets: str) -> list[Path]:
    """Return the sockets in a folder that match a pattern, sorted; none if the folder is gone or unreadable.

    Raises `OSError` if this process has too few file descriptors or too little memory to list the folder.
    """
    try:
        return sorted(folder.glob(sockets))
    except OSError as error:
        if error.errno in OWN_LIMITS:
            raise
        return []


def _folders(base: Path, pattern: str) -> list[Path]:
    return [path for path in sockets_in(base, pattern) if path.is_dir()]


def _is_trusted(folder: Path) -> bool:
    try:
        check_folder(folder)
    except (ProcessError, OSError):
        return False
    return True


def _age_ns(folder: Path) -> int:
    try:
        return -folder.stat().st_mtime_ns
    except OSError:  # the demo has just ended
        return 0
