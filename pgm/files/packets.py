"""What a packet of a transfer carries: sixteen octets that say what and where, and octets of files, of their list or of digests.

version (1), kind (1), the first six octets of the manifest's digest, and a place (8), little-endian.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import cbor2
import numpy as np
import numpy.typing as npt

from pgm.messages.references import refers
from pgm.wire.train import Octets

VERSION = 1
HEAD_OCTETS = 16
_WORD = 8
ID_OCTETS = 6
MOST_ANSWER = 1400  # octets: one packet of any network
MOST_RANGES = 64  # in an answer, so that it is one packet with places of eight octets
_MOST_PLACE = 1 << 60
_MOST_WHO = 80


class FilePacketKind(enum.IntEnum):
    """What a packet carries, and what its place counts."""

    ANNOUNCE = 1  # CBOR: what is sent; and a question, if its place is not 0
    MANIFEST = 2  # octets of the manifest
    DATA = 3  # octets of the transfer
    DIGESTS = 4  # digests of blocks in a row; the place is the first one's number


class BadPacket(Exception):
    """Octets that are no packet of a transfer."""


@attrs.frozen
class Announcement:
    """What is sent, of how many octets, and where answers go. `question` counts questions from 1 on; 0 asks nothing."""

    digest: bytes
    manifest_octets: int
    octets: int
    host: str
    port: int
    question: int = 0

    @property
    def ident(self) -> bytes:
        """What the transfer's packets have in their heads."""
        return self.digest[:ID_OCTETS]

    def encode(self) -> bytes:
        """Payload of its packet, without the head."""
        return cbor2.dumps([self.digest, self.manifest_octets, self.octets, self.host, self.port, self.question])

    @classmethod
    def decode(cls, octets: bytes) -> Announcement:
        """Raises `BadPacket`."""
        digest, manifest_octets, size, host, port, question = _fields(octets, 6)
        if type(digest) is not bytes or len(digest) != 32 or type(host) is not str:
            raise BadPacket("digest or host")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise BadPacket("host") from None
        numbers = (manifest_octets, size, question)
        if not all(_is_place(one) for one in numbers) or not _is_place(port) or not 0 < port < 1 << 16:
            raise BadPacket("a number")
        return cls(digest, manifest_octets, size, host, port, question)


class TransferState(enum.IntEnum):
    """How far a receiver is."""

    LACKS = 0  # something, which its answer says
    BUSY = 1  # reading or syncing what it has: ask again
    DONE = 2  # everything is there and in its place
    FAILED = 3  # it cannot write: nobody waits for it


@attrs.frozen
class TransferAnswer:
    """What a receiver says to a question. `ranges` of octets of the transfer that it lacks."""

    ident: bytes
    who: str
    question: int
    state: TransferState
    lacks_manifest: bool = False
    missing: int = 0  # octets
    ranges: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        """One datagram."""
        places = [place for one in self.ranges for place in one]
        return cbor2.dumps(
            [self.ident, self.who, self.question, int(self.state), self.lacks_manifest, self.missing, places]
        )

    @classmethod
    def decode(cls, octets: bytes) -> TransferAnswer:
        """Raises `BadPacket`."""
        ident, who, question, state, lacks_manifest, missing, places = _fields(octets, 7)
        if type(ident) is not bytes or len(ident) != ID_OCTETS or type(who) is not str or len(who) > _MOST_WHO:
            raise BadPacket("whose it is")
        if not who.isprintable() or type(lacks_manifest) is not bool or type(places) is not list:
            raise BadPacket("a field")
        if (
            not all(map(_is_place, (question, missing, state, *places)))
            or state not in TransferState._value2member_map_
        ):
            raise BadPacket("a number")
        if len(places) % 2 or len(places) > 2 * MOST_RANGES or any(a >= b for a, b in pairwise(places)):
            raise BadPacket("ranges")
        ranges = tuple(zip(places[::2], places[1::2], strict=True))
        return cls(ident, who, question, TransferState(state), lacks_manifest, missing, ranges)


def _is_place(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_PLACE


def _fields(octets: bytes, count: int) -> list[Any]:
    if refers(octets):
        raise BadPacket("references")
    try:
        fields = cbor2.loads(octets)
    except Exception as error:  # tags make values of many classes, each with complaints of its own
        raise BadPacket(str(error)) from error
    if type(fields) is not list or len(fields) != count:
        raise BadPacket("fields")
    return fields


def head_word(kind: FilePacketKind, ident: bytes) -> int:
    """The first eight octets of every packet of a kind, as a little-endian number."""
    return int.from_bytes(bytes((VERSION, kind)) + ident, "little")


def packet(kind: FilePacketKind, ident: bytes, place: int, octets: bytes) -> bytes:
    """One packet's payload."""
    return bytes((VERSION, kind)) + ident + place.to_bytes(_WORD, "little") + octets


def packets(kind: FilePacketKind, ident: bytes, octets: bytes, unit: int) -> list[bytes]:
    """Octets in as many packets as they need; their places count octets."""
    return [packet(kind, ident, at, octets[at : at + unit]) for at in range(0, len(octets), unit)]


def rows(kind: FilePacketKind, ident: bytes, place: int, octets: Octets, unit: int, room: Octets) -> list[Octets]:
    """Packets of octets in a row: a (count, size) array of full ones, and one of the rest if there is one.

    `room` is a row of octets that has room for them all; they are built there.
    """
    whole = len(octets) // unit
    used = whole * (HEAD_OCTETS + unit)
    found = []
    if whole:
        places = np.arange(place, place + whole * unit, unit, dtype=np.int64)
        found.append(_rows(kind, ident, places, octets[: whole * unit].reshape(whole, unit), room[:used]))
    if whole * unit < len(octets):
        rest = octets[whole * unit :].reshape(1, -1)
        last = room[used : used + HEAD_OCTETS + rest.size]
        found.append(_rows(kind, ident, np.array([place + whole * unit]), rest, last))
    return found


def _rows(kind: FilePacketKind, ident: bytes, places: npt.NDArray[np.int64], payloads: Octets, room: Octets) -> Octets:
    made = room.reshape(len(payloads), HEAD_OCTETS + payloads.shape[1])
    made[:, :_WORD] = np.frombuffer(head_word(kind, ident).to_bytes(_WORD, "little"), np.uint8)
    made[:, _WORD:HEAD_OCTETS] = places.astype("<i8").view(np.uint8).reshape(-1, _WORD)
    made[:, HEAD_OCTETS:] = payloads
    return made


@attrs.frozen(eq=False)
class FilePackets:
    """Packets of one kind whose places follow each other: `payloads` is a (count, size) view."""

    kind: int
    ident: bytes
    place: int
    payloads: Octets


def read(payloads: Octets) -> Sequence[FilePackets]:
    """What packets of equal size carry, in order. What is no packet of a transfer is left out."""
    if payloads.shape[1] < HEAD_OCTETS or not len(payloads):
        return ()
    words = np.ascontiguousarray(payloads[:, :HEAD_OCTETS]).view("<u8")
    size = payloads.shape[1] - HEAD_OCTETS
    heads, places = words[:, 0], words[:, 1]
    # Unsigned differences wrap, and none that wraps is the size of a packet.
    cuts = np.flatnonzero((heads[1:] != heads[:-1]) | (places[1:] - places[:-1] != np.uint64(size))) + 1
    found, first = [], 0
    for end in (*cuts.tolist(), len(payloads)):
        head = int(heads[first]).to_bytes(_WORD, "little")
        place = int(places[first])
        if head[0] == VERSION and place < _MOST_PLACE:
            found.append(FilePackets(head[1], head[2:], place, payloads[first:end, HEAD_OCTETS:]))
        first = end
    return found


def few(ranges: Sequence[tuple[int, int]], most: int | None = MOST_RANGES) -> list[tuple[int, int]]:
    """At most so many ranges in order that cover all of these, by closing the smallest gaps."""
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    if most is None or len(joined) <= most:
        return joined
    gaps = sorted(range(1, len(joined)), key=lambda at: joined[at][0] - joined[at - 1][1], reverse=True)
    cuts = [0, *sorted(gaps[: most - 1]), len(joined)]
    return [(joined[a][0], joined[b - 1][1]) for a, b in pairwise(cuts)]
