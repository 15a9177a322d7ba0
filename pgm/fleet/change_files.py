"""Files of a change of the topology file: the old text and the new one beside the file, and a lock.

All texts are on the disk before anything changes. Later steps only rename and remove files, so a full disk stops no return
to the old file. Nodes read `old` and `new` to compare them; `forth` and `back` take the place of the file.
"""

from __future__ import annotations

import fcntl
import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from pgm.errors import UsageError
from pgm.fleet.fingerprint import file_digest
from pgm.own_files import sync_folder

_KINDS = ("forth", "new", "old", "back")  # `forth` comes first and goes last: where it is, the file was not replaced
_WAIT = "wait until it ends; a host whose command has gone returns to the old file after a minute"


@attrs.define
class ChangeFiles:
    """Files of one change, which holds the lock of the topology file until `end`."""

    file: Path
    id: str
    lock: int  # descriptor
    old_digest: str = ""
    new_digest: str = ""
    is_put: bool = False
    by_hand: Path | None = None  # an edit of the new file, which the return has replaced

    def path(self, kind: str) -> Path:
        """Return the path of one kind of file."""
        return self.file.with_name(f".{self.file.name}.{kind}-{self.id}")

    @classmethod
    def written(cls, file: Path, id_: str, octets: bytes) -> ChangeFiles:
        """Write the old text and the new one beside the file, both with its mode.

        Raises `UsageError` for another change of the file, and `OSError` if the disk is full. Nothing is left then.
        """
        files = cls(file, id_, _locked(file))
        try:
            files._require_no_other()
            old = file.read_bytes()
            status = file.stat()
            for kind, text in zip(_KINDS, (octets, octets, old, old), strict=True):
                _write(files.path(kind), text, status)
            sync_folder(file.parent)
            files.old_digest, files.new_digest = file_digest(files.path("old")), file_digest(files.path("new"))
        except BaseException:
            files.end()
            raise
        return files

    @classmethod
    def found(cls, file: Path, id_: str) -> ChangeFiles | None:
        """Return the files that a killed process left of a change; None if it left none. Raises `UsageError`."""
        files = cls(file, id_, -1)
        if not any(files.path(kind).exists() for kind in _KINDS):
            return None
        files.lock = _locked(file)
        try:
            if not files.path("forth").exists():
                files.old_digest, files.new_digest = file_digest(files.path("old")), file_digest(files.path("new"))
                files.is_put = file_digest(file) != files.old_digest
        except BaseException:
            os.close(files.lock)
            raise
        return files

    def put(self) -> None:
        """Put the new text in place of the old one, in one step. Raises `UsageError` if the file was edited."""
        if self.is_put:
            return  # the answer was lost
        if file_digest(self.file) != self.old_digest:
            raise UsageError(f"{self.file} was edited during the change", remedy="apply again, from the edited file")
        os.replace(self.path("forth"), self.file)
        self.is_put = True
        sync_folder(self.file.parent)

    def go_back(self) -> None:
        """Put the old text in place again. An edit of the new text stays as `by_hand`. Raises `OSError`."""
        if not self.is_put:
            return
        if self.file.exists() and file_digest(self.file) not in (self.old_digest, self.new_digest):
            self.by_hand = self.path("by-hand")
            self.by_hand.unlink(missing_ok=True)
            try:
                os.link(self.file, self.by_hand)
            except OSError:  # a file system without links, or the file of another user
                os.replace(self.file, self.by_hand)
        os.replace(self.path("back"), self.file)
        self.is_put = False
        sync_folder(self.file.parent)

    def end(self) -> None:
        """Remove the files of the change, and let others change the file."""
        for kind in reversed(_KINDS):
            self.path(kind).unlink(missing_ok=True)
        _lock_path(self.file).unlink(missing_ok=True)
        os.close(self.lock)

    def _require_no_other(self) -> None:
        """Raise `UsageError` for files of a killed change that replaced the file. Remove those of one that did not."""
        for path in sorted(_left(self.file)):
            id_ = path.name.rpartition("-")[2]
            forth, old = (path.with_name(f".{self.file.name}.{kind}-{id_}") for kind in ("forth", "old"))
            if not forth.exists() and not (old.exists() and file_digest(old) == file_digest(self.file)):
                raise UsageError(
                    f"a change of {self.file} was killed: it left {path.name}",
                    remedy="compare the files, keep the right one as the topology file, and remove "
                    f".{self.file.name}.*-{id_}",
                )
        for path in _left(self.file):
            path.unlink(missing_ok=True)


def _left(file: Path) -> Iterator[Path]:
    for kind in _KINDS:
        yield from file.parent.glob(f".{glob.escape(file.name)}.{kind}-*")


def _lock_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.lock")


def _locked(file: Path) -> int:
    """Return the descriptor of the lock of a file. Raises `UsageError` if another process changes the file."""
    path = _lock_path(file)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        raise FileNotFoundError  # the former holder has removed it meanwhile
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            raise UsageError(f"another change of {file} is in progress", remedy=_WAIT) from None
        raise


def _write(path: Path, octets: bytes, like: os.stat_result) -> None:
    """Write a file with the mode and, as far as this user may, the owner of another. Wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(octets)
        file.flush()
        for user, group in ((-1, like.st_gid), (like.st_uid, -1)):
            with suppress(PermissionError):
                os.fchown(descriptor, user, group)
        os.fchmod(descriptor, like.st_mode & 0o777)
        os.fsync(descriptor)
