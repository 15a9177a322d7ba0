"""Keys that count in a check of rows: those of topology files, or the copy beside the archive.

Keys count by the start of a session, which the source has signed. So a key that expired or was replaced later still proves
its rows. Proofs by revoked keys are told apart, since their thief may sign any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import attrs

from pgm.archive.store.key_lines import NAME, kept_keys
from pgm.trust.public_keys import KeyState, PublicKeys
from pgm.units import SECOND

_GSI_OCTETS = 6


@attrs.frozen
class SignedStream:
    """Signed stream of one topology file. The global source id of a TSI names the source, as the file derives it."""

    keys: Mapping[str, tuple[PublicKeys, ...]]  # by source; "" for keys of any source
    gsis: Mapping[bytes, str] = attrs.field(factory=dict)  # global source ids of the sources
    is_batched: bool | None = None  # whether messages share packets; None: not known
    is_sealed: bool = False

    def keys_for(self, tsi: bytes, source: str | None) -> tuple[PublicKeys, ...]:
        """Return the keys that may sign a session, whose rows name a source."""
        alone = next(iter(self.keys)) if len(self.keys) == 1 else None
        name = self.gsis.get(tsi[:_GSI_OCTETS], alone)
        if name is None or (name and source not in (None, name)):
            return ()
        return self.keys[name]


@attrs.frozen
class Authority:
    """Signed streams by name, and the ids of revoked keys with the reasons."""

    streams: Mapping[str, tuple[SignedStream, ...]] = attrs.field(factory=dict)
    revoked: Mapping[str, str] = attrs.field(factory=dict)
    origin: str = ""  # for messages: the files

    def is_signed(self, stream: str | None) -> bool:
        """Return whether the rows of a stream need proofs."""
        return stream in self.streams

    def keys_for(self, tsi: bytes, stream: str | None, source: str | None) -> dict[str, PublicKeys]:
        """Return the keys that may sign a session, by id."""
        streams = self.streams.get(stream or "", ())
        return {keys.id: keys for one in streams for keys in one.keys_for(tsi, source)}

    def is_batched(self, stream: str | None, *, is_opened: bool = False) -> bool | None:
        """Return whether rows of a stream are messages that share packets; None if that is not known.

        Rows of a sealed stream are whole packets, unless the recorder has decrypted them.
        """
        known = {one.is_batched and (is_opened or not one.is_sealed) for one in self.streams.get(stream or "", ())}
        return known.pop() if len(known) == 1 else None

    def is_sealed(self, stream: str | None) -> bool:
        """Return whether a stream is sealed, by any file."""
        return any(one.is_sealed for one in self.streams.get(stream or "", ()))

    def has_batches(self, stream: str | None) -> bool:
        """Return whether packets of a stream in the clear are batches, by all files."""
        return all(one.is_batched for one in self.streams.get(stream or "", ()))

    def with_more(self, other: Authority) -> Authority:
        """Return the streams of both."""
        streams = dict(self.streams)
        for name, more in other.streams.items():
            streams[name] = (*streams.get(name, ()), *more)
        origin = ", ".join(filter(None, (self.origin, other.origin)))
        return Authority(streams, {**self.revoked, **other.revoked}, origin)


def session_day(epoch_ns: int) -> date:
    """Return the day in UTC on which a session began."""
    return datetime.fromtimestamp(epoch_ns / SECOND, UTC).date()


def counts_on(keys: PublicKeys, epoch_ns: int) -> bool:
    """Return whether keys were valid when a session began."""
    return keys.state_on(session_day(epoch_ns)) is KeyState.VALID


def archive_authority(directories: Iterable[Path]) -> Authority:
    """Return the keys that recorders have copied beside their archives. Raises `ArchiveError`."""
    authority = Authority()
    for directory in directories:
        kept = kept_keys(directory)
        if kept:
            streams = {stream: (SignedStream({"": keys}),) for stream, keys in kept.items()}
            authority = authority.with_more(Authority(streams, {}, str(directory / NAME)))
    return authority
