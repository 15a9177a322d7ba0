"""Archive with a bound: members are added until the archive is full, and the file appears under its name at the end."""

from __future__ import annotations

import io
import os
import tarfile
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import attrs

from pgm.errors import UsageError
from pgm.units import KIB

CLOSING_OCTETS = 256 * KIB  # kept for the list of contents and the page, which are added last
_BLOCK = 1024  # octets of a member beside its content, at most: its head, and the rest of its last block


@attrs.frozen
class Member:
    """Member of an archive: its path, and its octets before compression."""

    name: str
    octets: int


class BoundedArchive:
    """New tar.gz file of at most `most` octets, open during a block. All members lie in the folder `root`.

    Raises `UsageError` if the file exists, and `OSError` if it cannot be written. An exception leaves no file behind.
    """

    def __init__(self, path: Path, root: str, most: int) -> None:
        if os.path.lexists(path):
            raise _taken(path)
        self.path = path
        self.members: list[Member] = []
        self._root, self._most, self._at_s = root, most, time.time()
        self._hidden = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file: IO[bytes] = open(self._hidden, "xb", opener=_private)  # noqa: SIM115  # __exit__ closes it
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz", compresslevel=6)  # noqa: SIM115

    def add(self, name: str, content: bytes, *, is_last: bool = False) -> bool:
        """Add a member, unless the archive has no room for it. Return whether it has."""
        self._file.flush()
        # The stream may hold back less than a block of what came before.
        used = self._file.tell() + len(zlib.compress(content, 1)) + _BLOCK + zlib.DEF_BUF_SIZE
        if used > self._most - (0 if is_last else CLOSING_OCTETS):
            return False
        info = tarfile.TarInfo(f"{self._root}/{name}")
        info.size, info.mtime, info.mode = len(content), int(self._at_s), 0o600
        self._tar.addfile(info, io.BytesIO(content))
        self.members.append(Member(name, len(content)))
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        try:
            self._tar.close()
            self._file.close()
            if kind is None:
                os.link(self._hidden, self.path)  # never replaces a file
        except FileExistsError:
            raise _taken(self.path) from None
        finally:
            self._file.close()
            self._hidden.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} exists", remedy="give another --out, or remove the file")
