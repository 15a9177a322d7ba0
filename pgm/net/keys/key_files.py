"""Private files on disk: written once with mode 0600, and read only if no other user can read them."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pgm.errors import KeyRefused, ProcessError, UsageError
from pgm.net.keys.key_directory import REMEDY, KeyPlace
from pgm.net.sockets.trusted_folders import check_own_folder, make_folder
from pgm.own_files import forbid_core_dumps, read_own_file, sync_folder

if TYPE_CHECKING:
    from pgm.trust.private_keys import PrivateFile, PrivateKeys

_MODE = stat.S_IRUSR | stat.S_IWUSR
_INSTALL = "pip install 'pgm-repair-network[trust]'"


def need_cryptography() -> None:
    """Raise `UsageError` if the packages of the extra `[trust]` are missing."""
    try:
        importlib.import_module("cryptography")
    except ImportError:
        raise UsageError("keys need cryptography, which is not installed", remedy=_INSTALL) from None


def write_private_file(place: KeyPlace, file: PrivateFile) -> Path:
    """Write a new private file, on disk when the call returns. Return its path.

    The file appears complete or not at all. Raises `KeyRefused` for a file that exists, `ProcessError` for a directory
    that another user can change, and `OSError`.
    """
    make_folder(place.directory, REMEDY)
    path = place.path_of(file.keys.public.id)
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
    try:
        with open(descriptor, "wb", buffering=0) as stream:
            os.fchmod(descriptor, _MODE)
            stream.write(file.text().encode())
            os.fsync(descriptor)
        os.link(new, path)  # in contrast to a rename this never replaces a file
    except FileExistsError:
        raise KeyRefused(f"{path} exists", remedy="remove the file, or make other keys") from None
    finally:
        os.unlink(new)
    sync_folder(place.directory)
    return path


def read_private_file(place: KeyPlace, path: Path) -> PrivateKeys:
    """Read the keys of a node. No error has an octet of the file.

    Raises `KeyRefused` for a file that is missing, damaged or of another node, or that another user owns or may read or
    replace. Raises `UsageError` without the packages of the extra.
    """
    need_cryptography()
    from pgm.trust.private_keys import MOST_OCTETS, parse_private_file

    forbid_core_dumps()  # before the octets are in memory
    try:
        check_own_folder(path.parent, REMEDY)
    except ProcessError as error:
        raise KeyRefused(error.message, remedy=error.remedy) from None
    except OSError as error:
        raise KeyRefused(f"{path}: {error.strerror}", remedy="run as the user that made the keys") from None
    octets = read_own_file(path, MOST_OCTETS)
    file = parse_private_file(octets, str(path))
    if (file.tree, file.node) != (place.tree, place.node):
        raise KeyRefused(
            f"{path} has the keys of node {file.node} of tree {file.tree}, not of {place.node} of {place.tree}",
            remedy="make keys for each node with: pgm keys new",
        )
    if place.path_of(file.keys.public.id) != path:
        raise KeyRefused(f"{path} has the keys {file.keys.public.id}", remedy="give the file its former name back")
    return file.keys
