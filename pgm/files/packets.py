"""Packets of a transfer: a head of sixteen octets, and octets of files, of the manifest or of digests.

The head has a version (1 octet), a kind (1), the first six octets of the manifest's digest, and a place (8, little-endian).
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

from pgm.messages.references import has_reference
from pgm.wire.train import Octets

VERSION = 1
HEAD_OCTETS = 16
_WORD = 8
ID_OCTETS = 6
MOST_RANGES = 64  # of an answer, so that it fits one packet with places of eight octets
_MOST_PLACE = 1 << 60
_MOST_WHO = 80


class FilePacketKind(enum.IntEnum):
    """Kind of a packet. Each comment gives the meaning of the place."""

    ANNOUNCE = 1  # CBOR: the announcement, which is a question if its place is not 0
    MANIFEST = 2  # octets of the manifest
    DATA = 3  # octets of the transfer
    DIGESTS = 4  # digests of successive blocks; the place is the number of the first block


class BadPacket(Exception):
    """Octets that are not a packet of a transfer."""


@attrs.frozen
class Announcement:
    """Announcement of a transfer: digest, sizes in octets, and the address for answers. `question` 0 asks nothing."""

    digest: bytes
    manifest_octets: int
    octets: int
    host: str
    port: int
    question: int = 0

    @property
    def ident(self) -> bytes:
        """Return the identity of the transfer in the heads of its packets."""
        return self.digest[:ID_OCTETS]

    def encode(self) -> bytes:
        """Return the payload of the packet, without the head."""
        return cbor2.dumps([self.digest, self.manifest_octets, self.octets, self.host, self.port, self.question])

    @classmethod
    def decode(cls, octets: bytes) -> Announcement:
        """Read an untrusted announcement. Raises `BadPacket`."""
        digest, manifest_octets, size, host, port, question = _fields(octets, 6)
        if type(digest) is not bytes or len(digest) != 32 or type(host) is not str:
            raise BadPacket("digest or host")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise BadPacket("host") from None
        numbers = (manifest_octets, size, question)
        if not all(map(_is_place, numbers)) or not _is_place(port) or not 0 < port < 1 << 16:
            raise BadPacket("a number")
        return cls(digest, manifest_octets, size, host, port, question)


class TransferState(enum.IntEnum):
    """State of a receiver."""

    LACKS = 0  # the answer names the missing parts
    BUSY = 1  # the receiver reads or syncs its files; the source asks again
    DONE = 2  # all files are complete and in place
    FAILED = 3  # the receiver cannot write; the source does not wait for it


@attrs.frozen
class TransferAnswer:
    """Answer of a receiver to a question. `ranges` are the missing octets of the transfer."""

    ident: bytes
    who: str
    question: int
    state: TransferState
    lacks_manifest: bool = False
    missing: int = 0  # octets
    ranges: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        """Return the answer as one datagram."""
        places = [place for extent in self.ranges for place in extent]
        return cbor2.dumps(
            [self.ident, self.who, self.question, int(self.state), self.lacks_manifest, self.missing, places]
        )

    @classmethod
    def decode(cls, octets: bytes) -> TransferAnswer:
        """Read an untrusted answer. Raises `BadPacket`."""
        ident, who, question, state, lacks_manifest, missing, places = _fields(octets, 7)
        if type(ident) is not bytes or len(ident) != ID_OCTETS or type(who) is not str or len(who) > _MOST_WHO:
            raise BadPacket("identity")
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
    if has_reference(octets):
        raise BadPacket("references")
    try:
        fields = cbor2.loads(octets)
    except Exception as error:  # tags build values of many classes, which raise many kinds of errors
        raise BadPacket(str(error)) from error
    if type(fields) is not list or len(fields) != count:
        raise BadPacket("fields")
    return fields


def head_word(kind: FilePacketKind, ident: bytes) -> int:
    """Return the first eight octets of every packet of a kind, as a little-endian number."""
    return int.from_bytes(bytes((VERSION, kind)) + ident, "little")


def packet(kind: FilePacketKind, ident: bytes, place: int, octets: bytes) -> bytes:
    """Return the payload of one packet."""
    return bytes((VERSION, kind)) + ident + place.to_bytes(_WORD, "little") + octets


def packets(kind: FilePacketKind, ident: bytes, octets: bytes, unit: int) -> list[bytes]:
    """Return the packets of some octets. The places of the packets count octets."""
    return [packet(kind, ident, at, octets[at : at + unit]) for at in range(0, len(octets), unit)]


def rows(kind: FilePacketKind, ident: bytes, place: int, octets: Octets, unit: int, room: Octets) -> list[Octets]:
    """Return the packets of a row of octets: a (count, size) array of full packets, and one of the rest, if any.

    The packets are built in `room`, a row of octets that is large enough for all of them.
    """
    full = len(octets) // unit
    used = full * (HEAD_OCTETS + unit)
    arrays = []
    if full:
        places = np.arange(place, place + full * unit, unit, dtype=np.int64)
        arrays.append(_rows(kind, ident, places, octets[: full * unit].reshape(full, unit), room[:used]))
    if full * unit < len(octets):
        rest = octets[full * unit :].reshape(1, -1)
        last = room[used : used + HEAD_OCTETS + rest.size]
        arrays.append(_rows(kind, ident, np.array([place + full * unit]), rest, last))
    return arrays


def _rows(kind: FilePacketKind, ident: bytes, places: npt.NDArray[np.int64], payloads: Octets, room: Octets) -> Octets:
    array = room.reshape(len(payloads), HEAD_OCTETS + payloads.shape[1])
    array[:, :_WORD] = np.frombuffer(head_word(kind, ident).to_bytes(_WORD, "little"), np.uint8)
    array[:, _WORD:HEAD_OCTETS] = places.astype("<i8").view(np.uint8).reshape(-1, _WORD)
    array[:, HEAD_OCTETS:] = payloads
    return array


@attrs.frozen(eq=False)
class FilePackets:
    """Packets of one kind with successive places. `payloads` is a (count, size) view."""

    kind: int
    ident: bytes
    place: int
    payloads: Octets
    row: int = 0  # of the array of packets, where the contents begin


def read(payloads: Octets) -> Sequence[FilePackets]:
    """Return the contents of a (count, size) array of packets in order, without packets of other protocols."""
    if payloads.shape[1] < HEAD_OCTETS or not len(payloads):
        return ()
    words = np.ascontiguousarray(payloads[:, :HEAD_OCTETS]).view("<u8")
    size = payloads.shape[1] - HEAD_OCTETS
    heads, places = words[:, 0], words[:, 1]
    # Unsigned differences wrap around, and no wrapped difference equals the size of a packet.
    cuts = np.flatnonzero((heads[1:] != heads[:-1]) | (places[1:] - places[:-1] != np.uint64(size))) + 1
    contents, first = [], 0
    for end in (*cuts.tolist(), len(payloads)):
        head = int(heads[first]).to_bytes(_WORD, "little")
        place = int(places[first])
        if head[0] == VERSION and place < _MOST_PLACE:
            contents.append(FilePackets(head[1], head[2:], place, payloads[first:end, HEAD_OCTETS:], first))
        first = end
    return contents


def covering_ranges(ranges: Sequence[tuple[int, int]], most: int | None = MOST_RANGES) -> list[tuple[int, int]]:
    """Return at most `most` ranges in order that cover all of these. The smallest gaps are closed."""
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
