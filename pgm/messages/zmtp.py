"""ZeroMQ's framing over PGM, as `epgm://` endpoints of libzmq send and expect it (INT-Z3 to INT-Z8).

Messages of one or more parts become a stream of ZMTP/1.0 frames. The stream is cut at each full packet. Every packet begins
with an offset of two octets: the number of octets before the first begin of a message, or 0xFFFF if no message begins. Only
the first part of a message counts as its begin. A receiver that joins, or that has lost a packet, starts at such a place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from pgm.errors import PgmError

Parts = tuple[bytes, ...]
Payload = bytes | bytearray | memoryview

NO_MESSAGE = 0xFFFF
MORE = 0x01
LONG = 0xFF
LONG_LENGTH = struct.Struct(">Q")
OFFSET = struct.Struct(">H")

# Weight of a part besides its octets, because even an empty part is an object in memory.
_PART_OCTETS = 64


class HarmfulPacket(PgmError):
    """A packet on which libzmq would abort its process. It is not sent, and means a bug of this project."""

    code = "PGM-HARM"


# Heads of parts in the short form, by octets: for the last part of a message, and for the others.
_LAST, _OTHER = ([bytes((length, flags)) for length in range(1, LONG)] for flags in (0, MORE))


def weight(octets: int, parts: int) -> int:
    """Return the weight of a message for bounds: its octets, and 64 for every part after the first."""
    return octets + (parts - 1) * _PART_OCTETS


def frame_head(octets: int, *, more: bool) -> bytes:
    """Return the head of one part: the length of flags and body, and the flags (INT-Z5)."""
    short = _OTHER if more else _LAST
    if octets < len(short):
        return short[octets]
    return bytes((LONG, *LONG_LENGTH.pack(octets + 1), MORE if more else 0))


def refuse_harmful(packet: bytes, size: int) -> bytes:
    """Return the packet. Raises `HarmfulPacket` if libzmq would abort on it (INT-Z8).

    libzmq aborts on a packet without octets after the offset, and on a packet whose offset points outside. A packet of more
    than `size` octets is refused too, because it would leave in fragments.
    """
    if not OFFSET.size < len(packet) <= size:
        raise HarmfulPacket(f"a packet of {len(packet)} octets; {OFFSET.size + 1} to {size} are harmless")
    (offset,) = OFFSET.unpack_from(packet)
    if offset != NO_MESSAGE and offset > len(packet) - OFFSET.size:
        raise HarmfulPacket(f"an offset of {offset} in a packet of {len(packet)} octets")
    return packet


class Packer:
    """Packer of one session: `add` returns full packets of at most `size` octets, `take_rest` the open one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._room = size - OFFSET.size
        self._stream = bytearray()  # octets of the open packet
        self._first = NO_MESSAGE  # offset of the first message in the open packet

    @property
    def has_rest(self) -> bool:
        """Return whether octets wait for a full packet."""
        return bool(self._stream)

    def add(self, messages: Iterable[Sequence[Payload]]) -> list[bytes]:
        """Add messages, each a sequence of at least one part. Return the packets that became full.

        Raises ValueError for a message without parts, or for a part whose items are not octets. No message is added then.
        """
        pieces: list[Payload] = []
        starts = [] if self._first == NO_MESSAGE else [self._first]
        length = len(self._stream)
        for parts in messages:
            if not parts:
                raise ValueError("a message has at least one part")
            starts.append(length)
            for part in parts[:-1]:
                head = frame_head(len(part), more=True)
                pieces += (head, part)
                length += len(head) + len(part)
            head = frame_head(len(parts[-1]), more=False)
            pieces += (head, parts[-1])
            length += len(head) + len(parts[-1])
        octets = b"".join(pieces)
        if len(self._stream) + len(octets) != length:
            raise ValueError("a part whose items are not octets")
        self._stream += octets
        return self._cut(starts)

    def _cut(self, starts: list[int]) -> list[bytes]:
        room, packets = self._room, []
        view = bytes(self._stream) if len(self._stream) >= room else b""
        begun = at = 0
        while len(view) - at >= room:
            while begun < len(starts) and starts[begun] < at:
                begun += 1
            first = starts[begun] - at if begun < len(starts) and starts[begun] < at + room else NO_MESSAGE
            packets.append(refuse_harmful(OFFSET.pack(first) + view[at : at + room], self.size))
            at += room
        del self._stream[:at]
        self._first = next((start - at for start in starts[begun:] if start >= at), NO_MESSAGE)
        return packets

    def take_rest(self) -> bytes:
        """Return the open packet and start an empty one. Raises `HarmfulPacket` unless `has_rest`."""
        packet = refuse_harmful(OFFSET.pack(self._first) + self._stream, self.size)
        self._stream.clear()
        self._first = NO_MESSAGE
        return packet
