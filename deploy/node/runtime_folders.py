"""Where the sockets of running trees lie: those of this user's nodes, and those of demos, which keep theirs apart."""

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
OWN_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of whoever looks: they say nothing of what is looked at


def tree_folders(name: str | None = None) -> list[Path]:
    """The folders of the trees of a name, or of all trees: first that of nodes started one by one, then demos, the newest first.

    PGM_RUNTIME_DIR names a folder for sockets, and then no demos are returned. A folder may be that of a tree that has
    ended, and may go at any moment. Raises `ProcessError` for a folder that other users can change; demos of other users
    are left out.
    """
    pattern = "*" if name is None else glob.escape(name.replace("/", "_"))
    found = _folders(runtime_dir("x").parent, pattern)
    for folder in found:
        with suppress(FileNotFoundError):  # its tree has just ended
            check_folder(folder)
    if "PGM_RUNTIME_DIR" not in os.environ:
        demos = [one for one in Path(tempfile.gettempdir()).glob(f"{DEMO_PREFIX}*") if one.is_dir()]
        for demo in sorted(demos, key=_age_ns):
            found += filter(_is_trusted, _folders(demo, pattern))
    return found


def is_file(where: str) -> bool:
    """Whether what the command line says of a tree is its file, and not the name under which it runs."""
    return where.endswith(".toml") or "/" in where or Path(where).is_file()


def folder_of(name: str, sockets: str) -> Path:
    """The folder of a tree that has sockets of a kind, a pattern such as `*.sock`; where they would be if none has."""
    return next((folder for folder in tree_folders(name) if sockets_in(folder, sockets)), runtime_dir(name))


def sockets_in(folder: Path, sockets: str) -> list[Path]:
    """The sockets of a kind in a folder, sorted; none if it has gone. Raises OSError where this process has no room to look."""
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
    except OSError:  # it has just ended
        return 0
