"""Reference for packer and decoder: a slow transcription of libzmq's sender and receiver."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.messages.zmtp import Parts


class Abort(Exception):
    """Point at which libzmq's process aborts (zmq_assert)."""


@attrs.define
class Receiver:
    """pgm_receiver.cpp and v1_decoder.cpp: one peer, its packets one by one."""

    segment: int
    most: int = 1 << 62
    messages: list[Parts] = attrs.field(factory=list)
    joined_in: int | None = None  # the packet in which it joined last
    _decoder: _Stream | None = None
    _packets: int = 0

    def lost(self) -> None:
        """Report a loss from PGM, which drops the decoder."""
        self._decoder = None

    def add(self, packet: bytes) -> None:
        if not 2 <= len(packet) <= self.segment:
            raise Abort(f"a packet of {len(packet)} octets")
        offset, octets = int.from_bytes(packet[:2], "big"), packet[2:]
        self._packets += 1
        if self._decoder is None:
            if offset == 0xFFFF:
                return
            if offset > len(octets):
                raise Abort("an offset outside")
            self._decoder, octets = _Stream(self.most), octets[offset:]
            self.joined_in = self._packets - 1
        for octet in octets:
            if not self._decoder.add(octet, self.messages):
                self._decoder = None
                break


@attrs.define
class _Stream:
    most: int
    _frame: bytearray = attrs.field(factory=bytearray)
    _parts: list[bytes] = attrs.field(factory=list)

    def add(self, octet: int, messages: list[Parts]) -> bool:
        frame = self._frame
        frame.append(octet)
        head = 9 if frame[0] == 0xFF else 1
        if len(frame) < head:
            return True
        length = int.from_bytes(frame[1:9], "big") if head == 9 else frame[0]
        if not length or length - 1 > self.most:
            return False
        if len(frame) == head + length:
            self._parts.append(bytes(frame[head + 1 :]))
            if not frame[head] & 1:
                messages.append(tuple(self._parts))
                self._parts.clear()
            frame.clear()
        return True


def sender(messages: Sequence[Parts], segment: int) -> list[bytes]:
    """Return the packets of pgm_sender.cpp with everything queued at once."""
    frames: list[tuple[bool, bytes]] = []  # whether a message begins here, and the octets
    for parts in messages:
        for index, part in enumerate(parts):
            more = index < len(parts) - 1
            length = len(part) + 1
            head = bytes([length]) if length < 255 else b"\xff" + length.to_bytes(8, "big")
            frames.append((index == 0, head + bytes([more]) + part))
    packets, rest, room = [], b"", segment - 2
    while frames or rest:
        body, rest, offset = rest[:room], rest[room:], 0xFFFF
        while len(body) < room and not rest:
            begins = frames[0][0] if frames else True
            if begins and offset == 0xFFFF:
                offset = len(body)
            if not frames:
                break
            octets = frames.pop(0)[1]
            body, rest = body + octets[: room - len(body)], octets[room - len(body) :]
        if body:
            packets.append(offset.to_bytes(2, "big") + body)
    return packets
