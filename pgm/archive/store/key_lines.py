"""Copy of the public keys of signed streams, beside the segments: lines of a stream's name and the line of its keys.

The topology file forgets keys after a rotation; the copy shows which keys a check of old rows needs. The copy is no
authority: a user who may write the archive may write it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pgm.archive.errors import ArchiveError
from pgm.errors import UnitError
from pgm.trust.public_keys import PublicKeys, parse_line

NAME = "keys"


def keep_keys(directory: Path, keys: Mapping[str, Iterable[PublicKeys]]) -> None:
    """Add the keys of streams to the copy, without those that it has. Raises `ArchiveError`."""
    known = {(stream, one) for stream, lines in kept_keys(directory).items() for one in lines}
    new = [(stream, one) for stream, lines in keys.items() for one in lines if (stream, one) not in known]
    if not new:
        return
    path = directory / NAME
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{stream} {one.line}\n" for stream, one in new)
    except OSError as error:
        raise ArchiveError(f"{path}: {error.strerror}", remedy="make the file writable for the recorder") from None


def kept_keys(directory: Path) -> dict[str, tuple[PublicKeys, ...]]:
    """Return the copied keys by stream; none if no signed stream was recorded. Raises `ArchiveError`."""
    path = directory / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveError(f"{path} cannot be read: {error}", remedy="restore the file, or move it away") from None
    keys: dict[str, tuple[PublicKeys, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stream, _, rest = line.partition(" ")
        try:
            keys[stream] = (*keys.get(stream, ()), parse_line(rest))
        except UnitError as error:
            remedy = f"remove the line; {error.remedy}" if error.remedy else "remove the line"
            raise ArchiveError(f"{path}, line {number}: {error.message}", remedy=remedy) from None
    return keys
