"""Storage of a transfer on a receiver's disk: incomplete files, a journal, and the rename of complete files.

An incomplete file lies in a folder `.pgm-ID` beside the complete files. That folder also holds the list of files, and a
journal with one octet for each block and each file. A killed receiver resumes from this folder. The receiver reads the
stored blocks again, because only digests prove that the blocks reached the disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from pgm.errors import ProcessError
from pgm.files.manifest import Manifest, digest_of
from pgm.files.names import RESERVED, shown, split
from pgm.wire.train import Octets

_OPEN_FILES = 32  # maximum open descriptors of incomplete files
_SYNCED_ONE_BY_ONE = 64  # files; with more files one sync of the disk at the end replaces single syncs
_MANIFEST, _BLOCKS, _FILES = "manifest", "blocks", "files"
_PRIVATE = 0o700
_NAMED = 3  # maximum names in an error
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HIDDEN_ID = 12  # hexadecimal digits of the transfer


def partial_name(digest: bytes) -> str:
    """Return the name of the folder for an incomplete transfer."""
    return f"{RESERVED.decode()}{digest.hex()[:_HIDDEN_ID]}"


def kept_manifest(into: Path, digest: bytes, most_octets: int) -> bytes | None:
    """Return the encoded manifest that an earlier receiver of the transfer has left, or None."""
    path = into / partial_name(digest) / _MANIFEST
    with contextlib.suppress(OSError):
        if path.stat().st_size <= most_octets:
            octets = path.read_bytes()
            return octets if digest_of(octets) == digest else None
    return None


@contextlib.contextmanager
def _file_errors(path: str, remedy: str = "check the path, its permissions and the space left") -> Iterator[None]:
    """Turn system errors in a block into a `ProcessError` that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free disk space and receive again: the stored part is kept"
        elif error.errno in (errno.ELOOP, errno.ENOTDIR):
            path, remedy = (
                f"{path} goes through a link or a file",
                "move that away: the receiver never writes through links",
            )
        raise ProcessError(f"{path}: {error.strerror or error}", remedy=remedy) from error


class FileStore:
    """Storage of one transfer. Every call may raise `ProcessError`, which names the file and the remedy."""

    def __init__(self, into: Path, manifest: Manifest, encoded: bytes, *, replace: bool) -> None:
        self._manifest = manifest
        self._replace = replace
        self._into = into
        self._open: OrderedDict[int, int] = OrderedDict()
        self._above: tuple[tuple[bytes, ...], int] | None = None
        self._umask = os.umask(0)
        os.umask(self._umask)
        with _file_errors(str(into)):
            into.mkdir(parents=True, exist_ok=True)
            self._root = os.open(into, _FOLDER_FLAGS)
        self._hidden = partial_name(digest_of(encoded))
        with _file_errors(f"{into}/{self._hidden}"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._hidden, _PRIVATE, dir_fd=self._root)
            self._partial = os.open(self._hidden, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=self._root)
            self._lock()
            self._keep_manifest(encoded)
            self._blocks = self._journal(_BLOCKS, manifest.blocks)
            self._files = self._journal(_FILES, len(manifest.files))
        self.finished = bytearray(os.pread(self._files, len(manifest.files), 0))
        self._check_room()
        self._check_collisions()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProcessError(
                f"another process receives the same files into {self._into}", remedy="give each a folder of its own"
            ) from None

    def _keep_manifest(self, encoded: bytes) -> None:
        descriptor = self._create(_MANIFEST, os.O_TRUNC)
        os.write(descriptor, encoded)
        os.close(descriptor)

    def _create(self, name: str, flags: int = 0) -> int:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600, dir_fd=self._partial)

    def _journal(self, name: str, octets: int) -> int:
        descriptor = self._create(name)
        os.ftruncate(descriptor, octets)
        return descriptor

    def _check_room(self) -> None:
        info = os.fstatvfs(self._root)
        free = info.f_bavail * info.f_frsize
        octets = self._manifest.octets - self.kept_blocks().count(1) * self._manifest.block
        if octets > free:
            raise ProcessError(
                f"{octets:,} octets are to come, and {self._into} has room for {free:,}",
                remedy="free disk space, or receive into another folder with --into",
            )

    def _check_collisions(self) -> None:
        collisions = []
        for index, entry in enumerate(self._manifest.files):
            try:
                info = os.stat(entry.name, dir_fd=self._root, follow_symlinks=False)
            except OSError:
                self.finished[index] = 0
                continue
            if self.finished[index] and (info.st_size, info.st_mtime_ns) == (entry.size, entry.mtime_ns):
                continue
            self.finished[index] = 0
            if not self._replace or stat.S_ISDIR(info.st_mode):
                collisions.append(shown(entry.name))
        if collisions:
            if not any(self.finished) and not any(self.kept_blocks()):
                self.forget()
            more = f" and {len(collisions) - _NAMED} more" if len(collisions) > _NAMED else ""
            raise ProcessError(
                f"in {self._into} there is already {', '.join(collisions[:_NAMED])}{more}",
                remedy="move them away, receive into another folder, or use --replace",
            )

    # Blocks

    def kept_blocks(self) -> bytes:
        """Return one octet for each block: 1 if it was written."""
        return os.pread(self._blocks, self._manifest.blocks, 0)

    def read(self, first: int, into: Octets) -> bool:
        """Fill a row of octets from place `first` on. Return whether all octets exist."""
        view = into.data
        for piece in self._manifest.pieces(first, first + len(into)):
            try:
                descriptor = self._descriptor(piece.file)
                count = os.preadv(descriptor, [view[piece.at : piece.at + piece.octets]], piece.offset)
            except (OSError, ProcessError):
                return False
            if count != piece.octets:
                return False
        return True

    def write(self, block: int, first: int, octets: Octets) -> None:
        """Write the octets of a block from place `first` on, and note the block as written."""
        view = octets.data
        for piece in self._manifest.pieces(first, first + len(octets)):
            if self.finished[piece.file]:
                continue  # the block was sent for its other files
            with _file_errors(f"{self._into}/{shown(self._manifest.files[piece.file].name)}"):
                descriptor, done = self._descriptor(piece.file), 0
                while done < piece.octets:
                    part = view[piece.at + done : piece.at + piece.octets]
                    done += os.pwrite(descriptor, part, piece.offset + done)
        self._note(self._blocks, block, 1)

    def take_back(self, block: int) -> None:
        """Note that the written octets of a block are wrong."""
        self._note(self._blocks, block, 0)

    def _note(self, journal: int, at: int, value: int) -> None:
        with _file_errors(f"{self._into}/{self._hidden}"):
            os.pwrite(journal, bytes((value,)), at)

    def _descriptor(self, file: int) -> int:
        """Return the descriptor of an incomplete file, or of a finished file in its place."""
        descriptor = self._open.get(file)
        if descriptor is not None:
            self._open.move_to_end(file)
            return descriptor
        if self.finished[file]:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            name = split(self._manifest.files[file].name)
            descriptor = os.open(name.last, flags, dir_fd=self._folder(name.folders))
        else:
            descriptor = self._create(str(file) + ".part")
        self._open[file] = descriptor
        if len(self._open) > _OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        return descriptor

    # Final names

    def _folder(self, folders: tuple[bytes, ...]) -> int:
        """Return the descriptor of a folder below the root. Create it if it is missing; never follow a link."""
        if self._above is not None and self._above[0] == folders:
            return self._above[1]
        at = os.dup(self._root)
        for part in folders:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
                below = os.open(part, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=at)
            finally:
                os.close(at)
            at = below
        if self._above is not None:
            os.close(self._above[1])
        self._above = folders, at
        return at

    def make_folders(self) -> None:
        """Create the folders of the transfer, empty folders too."""
        for name in self._manifest.folders:
            with _file_errors(f"{self._into}/{shown(name)}"):
                self._folder(tuple(name.split(b"/")))

    def finish(self, file: int) -> None:
        """Give a complete file its size, mode, time and name."""
        entry = self._manifest.files[file]
        name = split(entry.name)
        with _file_errors(f"{self._into}/{shown(entry.name)}"):
            descriptor = self._descriptor(file)
            if os.fstat(descriptor).st_size != entry.size:
                os.ftruncate(descriptor, entry.size)
            os.fchmod(descriptor, entry.mode & ~self._umask)
            os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
            if len(self._manifest.files) <= _SYNCED_ONE_BY_ONE:
                os.fsync(descriptor)
            folder = self._folder(name.folders)
            if not self._replace and _is_there(name.last, folder):
                raise FileExistsError(errno.EEXIST, "another process has created it meanwhile")
            os.rename(f"{file}.part", name.last, src_dir_fd=self._partial, dst_dir_fd=folder)
            os.close(self._open.pop(file))
        self.finished[file] = 1
        self._note(self._files, file, 1)

    def end(self) -> None:
        """Sync the files that are not synced yet, and remove the folder of the incomplete transfer."""
        with _file_errors(str(self._into)):
            if len(self._manifest.files) > _SYNCED_ONE_BY_ONE:
                os.sync()
            else:
                os.fsync(self._root if self._above is None else self._above[1])
        self.forget()

    def forget(self) -> None:
        """Remove the folder of the incomplete transfer."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._partial):
                os.unlink(name, dir_fd=self._partial)
            os.rmdir(self._hidden, dir_fd=self._root)

    def close(self) -> None:
        """Close all descriptors. An incomplete transfer stays on the disk."""
        above = () if self._above is None else (self._above[1],)
        for descriptor in (*self._open.values(), *above, self._blocks, self._files, self._partial, self._root):
            os.close(descriptor)
        self._open.clear()
        self._above = None


def _is_there(name: bytes, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
