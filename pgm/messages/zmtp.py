"""ZeroMQ's framing over PGM: what `epgm://` endpoints of libzmq send and expect (INT-Z3 to INT-Z8).

Messages of one or more parts become a stream of ZMTP/1.0 frames, and the stream is cut wherever a packet is full.
Every packet begins with two octets: how many octets follow before the first one that begins a message (a part after
the first begins none), or 0xFFFF if none does. A receiver that joins, or has lost something, starts at such a place.
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

# What a part costs besides its octets where messages are bounded: an object, however empty it is.
_PART_OCTETS = 64


class HarmfulPacket(PgmError):
    """A packet on which libzmq would abort its process. It is not sent: this is a bug of ours."""

    code = "PGM-HARM"


# Heads of parts in the short form, by their octets: of a message's last part, and of the others.
_LAST, _OTHER = ([bytes((length, flags)) for length in range(1, LONG)] for flags in (0, MORE))


def weight(octets: int, parts: int) -> int:
    """What a message counts for where messages are bounded: its octets, and something for every part after the first."""
    return octets + (parts - 1) * _PART_OCTETS


def frame_head(octets: int, *, more: bool) -> bytes:
    """What precedes the octets of one part: the length of flags and body, and the flags (INT-Z5)."""
    short = _OTHER if more else _LAST
    if octets < len(short):
        return short[octets]
    return bytes((LONG, *LONG_LENGTH.pack(octets + 1), MORE if more else 0))


def refuse_harmful(packet: bytes, size: int) -> bytes:
    """The packet itself. Raises `HarmfulPacket` if libzmq, reading it, would abort (INT-Z8).

    That is a packet without octets behind the offset's two, one of more than `size` octets, which would
    leave in fragments, and one whose offset points outside.
    """
    if not OFFSET.size < len(packet) <= size:
        raise HarmfulPacket(f"a packet of {len(packet)} octets; {OFFSET.size + 1} to {size} are harmless")
    (offset,) = OFFSET.unpack_from(packet)
    if offset != NO_MESSAGE and offset > len(packet) - OFFSET.size:
        raise HarmfulPacket(f"an offset of {offset} in a packet of {len(packet)} octets")
    return packet


class Packer:
    """The sending side of one session: messages in, packets of at most `size` octets out.

    Packets come out when they are full; what does not fill one waits for `take_rest`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._room = size - OFFSET.size
        self._stream = bytearray()  # of the packet that is being filled
        self._first = NO_MESSAGE  # where the first message begins in it

    @property
    def has_rest(self) -> bool:
        """Whether octets wait for a full packet."""
        return bool(self._stream)

    def add(self, messages: Iterable[Sequence[Payload]]) -> list[bytes]:
        """Take messages, each a sequence of at least one part; returns the packets that became full.

        Raises ValueError for a message without parts or a part that is no octets, before anything is taken.
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
        """The packet that is not full yet. Ask `has_rest` first: without octets there is none."""
        packet = refuse_harmful(OFFSET.pack(self._first) + self._stream, self.size)
        self._stream.clear()
        self._first = NO_MESSAGE
        return packet
