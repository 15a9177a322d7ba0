"""Check of file names from a network: only relative names below the receiver's folder are accepted."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pgm.errors import PgmError

RESERVED = b".pgm-"  # prefix of the folders in which receivers keep incomplete transfers
_MOST_PART = 255  # octets of one part, the limit of file systems
_MOST_NAME = 4000  # octets of a whole name: below the limit of 4096 for paths
_MOST_PARTS = 100


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


def check(files: Iterable[object], folders: Iterable[object]) -> None:
    """Raise `BadManifest` unless all names are valid, files are distinct, and no file is also a folder."""
    seen: set[bytes] = set()
    above: set[bytes] = set()
    kinds = ((name, is_file) for names, is_file in ((files, True), (folders, False)) for name in names)
    for name, is_file in kinds:
        problem = problem_of(name)
        if problem is not None or not isinstance(name, bytes):
            raise BadManifest(f"the name {name!r:.200} {problem}" if isinstance(name, bytes) else f"a name {problem}")
        if is_file and name in seen:
            raise BadManifest(f"the name {shown(name)!r} is there twice")
        if is_file:
            seen.add(name)
        else:
            above.add(name)
        at = name.rfind(b"/")
        while at > 0 and name[:at] not in above:
            above.add(name[:at])
            at = name.rfind(b"/", 0, at)
    both = seen & above
    if both:
        raise BadManifest(f"{shown(min(both))!r} is both a file and a folder")
