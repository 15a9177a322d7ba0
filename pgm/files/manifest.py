"""Manifest of a transfer: names, sizes, modes and times of files, and the place of each octet.

The contents of all files in a row are one range of octets. This range is cut into blocks of equal size, and each block into
units, one for each packet. Holes of sparse files are omitted. Small files therefore share packets, and a place in the
transfer is one number.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import attrs
import cbor2
import numpy as np
import numpy.typing as npt

from pgm.files.names import BadManifest, check
from pgm.messages.references import has_reference

VERSION = 1
MODE_BITS = 0o777
_MOST_OCTETS = 1 << 60  # maximum of a transfer, so that no sum overflows
_KEYS = {"v", "digest", "block", "unit", "files", "folders"}
_FILE_FIELDS = 5
_MOST_UNIT, _MOST_BLOCK = 65_507, 1 << 28
_MOST_BLOCKS = (
    1 << 24
)  # maximum of a transfer: 16 TiB of 1 MiB each; a receiver keeps two digests and more of each in memory
_MOST_TIME = 1 << 62  # ns: 146 years before or after 1970

Octets: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int64]
Extent: TypeAlias = tuple[int, int]  # first octet, and the octet after the last


@attrs.frozen
class Digest:
    """Digest of a block: `of` returns `octets` octets for a row of octets."""

    octets: int
    of: Callable[[Octets], bytes]


# Neither digest protects against a sender on the segment, because digests arrive the same way as the blocks.
DIGESTS: Mapping[str, Digest] = {
    "sha256": Digest(32, lambda octets: hashlib.sha256(octets.data).digest()),
    "crc32": Digest(4, lambda octets: zlib.crc32(octets.data).to_bytes(4, "little")),
}
MOST_DIGEST_OCTETS = max(digest.octets for digest in DIGESTS.values())


@attrs.frozen
class FileEntry:
    """One file. `extents` are its parts without holes, in order. `mode` has permission bits only."""

    name: bytes
    size: int
    mode: int
    mtime_ns: int
    extents: tuple[Extent, ...]

    @property
    def data_octets(self) -> int:
        """Return the octets outside holes."""
        return sum(end - first for first, end in self.extents)


@attrs.frozen
class FilePiece:
    """Part of one file that lies in one row in the transfer. `at` is its place from the begin of the request."""

    file: int
    offset: int
    octets: int
    at: int


@attrs.frozen(slots=False)
class Manifest:
    """All files of a transfer. `block` and `unit` are octets. A block is a whole number of units."""

    files: tuple[FileEntry, ...]
    folders: tuple[bytes, ...]
    block: int
    unit: int
    digest_name: str = "sha256"

    @property
    def digest(self) -> Digest:
        """Return the digest that checks the blocks."""
        return DIGESTS[self.digest_name]

    @cached_property
    def _extents(self) -> tuple[Offsets, Offsets, Offsets]:
        rows = [(index, *extent) for index, entry in enumerate(self.files) for extent in entry.extents]
        table = np.array(rows, np.int64).reshape(-1, 3)
        begins = np.zeros(len(table) + 1, np.int64)
        np.cumsum(table[:, 2] - table[:, 1], out=begins[1:])
        return begins, table[:, 0], table[:, 1]

    @cached_property
    def begins(self) -> Offsets:
        """Return the place at which each file begins in the transfer, and the end of the last file."""
        begins = np.zeros(len(self.files) + 1, np.int64)
        np.cumsum([entry.data_octets for entry in self.files], out=begins[1:])
        return begins

    @property
    def octets(self) -> int:
        """Return the octets of the transfer."""
        return int(self.begins[-1])

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return -(-self.octets // self.block)

    def span(self, block: int) -> Extent:
        """Return the first octet of a block, and the octet after its last."""
        return block * self.block, min(self.octets, (block + 1) * self.block)

    def pieces(self, first: int, end: int) -> Iterator[FilePiece]:
        """Yield the parts of files from octet `first` to `end - 1` of the transfer."""
        begins, files, offsets = self._extents
        at = int(np.searchsorted(begins, first, "right")) - 1
        place = first
        while place < end:
            until = min(end, int(begins[at + 1]))
            offset = int(offsets[at]) + place - int(begins[at])
            yield FilePiece(int(files[at]), offset, until - place, place - first)
            place, at = until, at + 1

    def files_in(self, first_block: int, end_block: int) -> range:
        """Return the files with octets in blocks `first_block` to `end_block - 1`, and empty files between them."""
        first = int(np.searchsorted(self.begins, first_block * self.block, "right")) - 1
        return range(first, int(np.searchsorted(self.begins[:-1], min(end_block * self.block, self.octets), "left")))

    def blocks_of(self, file: int) -> range:
        """Return the blocks in which a file has octets."""
        first, end = int(self.begins[file]), int(self.begins[file + 1])
        return range(first // self.block, -(-end // self.block)) if end > first else range(0)

    def encode(self) -> bytes:
        """Return the manifest in CBOR."""
        files = [[entry.name, entry.size, entry.mode, entry.mtime_ns, _packed(entry)] for entry in self.files]
        value = {"v": VERSION, "digest": self.digest_name, "block": self.block, "unit": self.unit, "files": files}
        return cbor2.dumps({**value, "folders": list(self.folders)})

    @classmethod
    def decode(cls, octets: bytes, most_entries: int) -> Manifest:
        """Read an untrusted manifest. Raises `BadManifest` for octets that `encode` would not write."""
        if has_reference(octets):
            raise BadManifest("the list of files refers to parts of itself")
        try:
            value = cbor2.loads(octets)
        except Exception as error:  # tags build values of many classes, which raise many kinds of errors
            raise BadManifest(f"the list of files is not CBOR: {type(error).__name__}") from error
        if not isinstance(value, dict) or set(value) != _KEYS:
            raise BadManifest("the list of files has wrong keys")
        if value["v"] != VERSION or type(value["digest"]) is not str or value["digest"] not in DIGESTS:
            raise BadManifest(f"the list of files is of version {_shown(value['v'])} with {_shown(value['digest'])}")
        files, folders = value["files"], value["folders"]
        if type(files) is not list or type(folders) is not list:
            raise BadManifest("files or folders are not a list")
        if len(files) + len(folders) > most_entries:  # before an object of each is made
            raise BadManifest(
                f"a list of {len(files) + len(folders)} files and folders, more than file_entries = {most_entries}"
            )
        unit, block = _number(value["unit"], 1, _MOST_UNIT), _number(value["block"], 1, _MOST_BLOCK)
        if block % unit:
            raise BadManifest(f"a block of {block} octets is not a multiple of a unit of {unit}")
        manifest = cls(tuple(map(_entry, files)), tuple(folders), block, unit, value["digest"])
        check((entry.name for entry in manifest.files), folders, most_entries)
        if sum(entry.data_octets for entry in manifest.files) > _MOST_OCTETS:
            raise BadManifest(f"the files have more than {_MOST_OCTETS} octets")
        if manifest.blocks > _MOST_BLOCKS:
            raise BadManifest(
                f"{manifest.blocks} blocks, more than {_MOST_BLOCKS}: the source's file_block_bytes is too small"
            )
        return manifest


def digest_of(octets: bytes) -> bytes:
    """Return the digest of an encoded manifest, which identifies the transfer."""
    return hashlib.sha256(octets).digest()


def _packed(entry: FileEntry) -> list[int] | None:
    whole = ((0, entry.size),) if entry.size else ()
    return None if entry.extents == whole else [place for extent in entry.extents for place in extent]


def _shown(value: Any) -> str:
    """Return the beginning of a text or a number, or the type of a value whose text may take long to build."""
    if type(value) in (str, bytes) or (type(value) is int and abs(value) < 1 << 64):
        return f"{value!r:.100}"
    return f"a {type(value).__name__}"


def _number(value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise BadManifest(f"{_shown(value)} is not a number from {low} to {high}")
    return value


def _entry(fields: Any) -> FileEntry:
    if type(fields) is not list or len(fields) != _FILE_FIELDS:
        raise BadManifest(f"{_shown(fields)} is not the entry of a file")
    name, size, mode, mtime_ns, extents = fields
    size = _number(size, 0, _MOST_OCTETS)
    return FileEntry(
        name,
        size,
        _number(mode, 0, MODE_BITS),
        _number(mtime_ns, -_MOST_TIME, _MOST_TIME),
        (((0, size),) if size else ()) if extents is None else _extents(extents, size),
    )


def _extents(places: Any, size: int) -> tuple[Extent, ...]:
    if type(places) is not list or len(places) % 2:
        raise BadManifest("the parts of a file are not a list of pairs")
    extents, before = [], -1
    for first, end in zip(_numbers(places[::2], size), _numbers(places[1::2], size), strict=True):
        if not before < first < end:
            raise BadManifest("the parts of a file are not in order")
        extents.append((first, end))
        before = end
    return tuple(extents)


def _numbers(values: Sequence[Any], high: int) -> list[int]:
    return [_number(value, 0, high) for value in values]
