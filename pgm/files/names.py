"""Check of file names from a network: only relative names below the receiver's folder are accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from pgm.errors import PgmError

RESERVED = b".pgm-"  # prefix of the folders in which receivers keep incomplete transfers
_MOST_PART = 255  # octets of one part, the limit of file systems
_MOST_NAME = 4000  # octets of a whole name: below the limit of 4096 for paths
_MOST_PARTS = 100
_SORTED_SLASH = b"\0"


class BadManifest(PgmError):
    """A list of files that must not be written."""

    code = "PGM-FILES"


@attrs.frozen
class NameParts:
    """Parts of a name: its folders, and its last part."""

    folders: tuple[bytes, ...]
    last: bytes


def shown(name: bytes) -> str:
    """Return a name that is safe to print: no character of it moves a terminal's cursor."""
    text = name.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def problem_of(name: object) -> str | None:
    """Return the reason why a name is refused, or None if it is valid."""
    if not isinstance(name, bytes):
        return "is not octets"
    if not name or len(name) > _MOST_NAME:
        return f"is empty or longer than {_MOST_NAME} octets"
    if b"\0" in name:
        return "has a zero in it"
    if name.startswith(b"/"):
        return "begins at the root"
    parts = name.split(b"/")
    if len(parts) > _MOST_PARTS:
        return f"has more than {_MOST_PARTS} parts"
    for part in parts:
        if part in (b"", b".", b".."):
            return f"has the part {shown(part)!r}"
        if len(part) > _MOST_PART:
            return f"has a part longer than {_MOST_PART} octets"
    if parts[0].startswith(RESERVED):
        return f"begins with {RESERVED.decode()}, which is reserved for incomplete transfers"
    return None


def split(name: bytes) -> NameParts:
    """Return the parts of a valid name."""
    *folders, last = name.split(b"/")
    return NameParts(tuple(folders), last)


def check(files: Iterable[object], folders: Iterable[object], most_entries: int) -> None:
    """Raise `BadManifest` unless all names are valid, files are distinct, and no file is also a folder.

    `most_entries` bounds the files and folders that the names create, with the folders above them. Work and memory are
    linear in the octets of the names, apart from one sort.
    """
    # With 0 in place of "/" everything below a folder directly follows the folder in the order of octets.
    entries = sorted([*_sort_keys(files, is_folder=False), *_sort_keys(folders, is_folder=True)])
    count, before, was_file = 0, b"", False
    for key, is_folder in entries:
        if was_file and key.startswith(before):
            kind = "is both a file and a folder" if is_folder or key != before else "is there twice"
            raise BadManifest(f"{shown(before[:-1].replace(_SORTED_SLASH, b'/'))!r} {kind}")
        count += key.count(_SORTED_SLASH, _shared_octets(before, key))
        if count > most_entries:
            raise BadManifest(
                f"a list of more than file_entries = {most_entries} files and folders, with the folders above them"
            )
        before, was_file = key, not is_folder


def _sort_keys(names: Iterable[object], *, is_folder: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield each name with a 0 behind every part. Raises `BadManifest`."""
    for name in names:
        problem = problem_of(name)
        if not isinstance(name, bytes):
            raise BadManifest(f"a name {problem}")
        if problem is not None:
            raise BadManifest(f"the name {name!r:.200} {problem}")
        yield name.replace(b"/", _SORTED_SLASH) + _SORTED_SLASH, is_folder


def _shared_octets(left: bytes, right: bytes) -> int:
    """Return the octets with which both begin, by halving."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
