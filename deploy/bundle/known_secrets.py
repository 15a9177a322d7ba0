"""Secrets of this host that a bundle must not contain: tokens, private keys, and the paths of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import place_of
from pgm.own_files import read_own_file
from pgm.topology.model import Topology

_MOST_FILES = 4096  # private files of a tree
_MOST_OCTETS = 4096  # of a token or a private file
_SECRET_FILES = ("PGM_TOKEN_FILE",)  # variables that name a file whose whole content is a secret
_SECRET_PATHS = ("PGM_TOKEN_FILE", "PGM_CA_FILE", "PGM_KEY_DIR")
_PRIVATE = re.compile(rb"^private = (\S+)", re.MULTILINE)


def known_secrets(topology: Topology | None, token: str | None) -> list[str]:
    """Return all secrets that this user can read, the longest first. The paths of key files are among them."""
    found = {token} if token else set()
    for variable in _SECRET_FILES:
        path = os.environ.get(variable)
        if path:
            found.add(_start_of(Path(path)).decode("utf-8", "replace").strip())
    found |= {os.environ[variable] for variable in _SECRET_PATHS if os.environ.get(variable)}
    if topology is not None:
        folder = place_of(topology.name, "", topology.key_directory).directory
        found |= {str(folder), str(folder.parent), *([topology.key_directory] if topology.key_directory else [])}
        found |= set(_private_keys(folder))
    return sorted(found - {""}, key=len, reverse=True)


def _private_keys(folder: Path) -> Iterator[str]:
    try:
        files = sorted(folder.glob("*.key"))[:_MOST_FILES]
    except OSError:
        return
    for file in files:
        try:
            octets = read_own_file(file, _MOST_OCTETS)
        except (KeyRefused, OSError):
            octets = _start_of(file)  # unsafe permissions make the key no less secret
        for match in _PRIVATE.finditer(octets):
            yield match[1].decode("ascii", "replace")


def _start_of(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_OCTETS)
    except OSError:
        return b""
