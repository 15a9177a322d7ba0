"""Decoder of ZeroMQ's framing: packets of one session in, messages out (INT-Z5, INT-Z7).

No packet of a peer raises an exception. An unreadable packet drops the current message and is reported. Decoding continues
at the next message, as after a loss.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from pgm.messages.zmtp import LONG, LONG_LENGTH, MORE, NO_MESSAGE, OFFSET, Parts, weight

Octets = npt.NDArray[np.uint8]


@attrs.define
class DecodedMessages:
    """Complete messages, each with the sqn of the packet in which it began."""

    messages: list[Parts]
    sqns: list[int]


@attrs.frozen
class UnusedPackets:
    """Packets that arrived and contribute to no message: their message is incomplete or unreadable."""

    first: int
    count: int
    is_malformed: bool = False


class Decoder:
    """Decoder of one session. The caller adds packets in order and reports losses.

    Before it has joined, the decoder skips packets in which no message begins. `most` bounds the weight of a message (see
    `weight`), and with it the memory of the decoder.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_joined = False
        self._has_been_joined = False
        self._rest = bytearray()  # an incomplete frame
        self._need = 0  # octets of `_rest` that complete the frame
        self._parts: list[bytes] = []  # of the current message
        self._octets = 0  # of `_parts`
        self._begun = 0  # sqn in which the current message began
        self._owned = 0  # first sqn that holds only the current message
        self._end = 0  # sqn after the last packet

    def lost(self) -> list[UnusedPackets]:
        """Drop the current message, after a loss or at the end of the session. Return its packets."""
        has_message = self._is_joined and bool(self._rest or self._parts)
        owned, count = self._owned, self._end - self._owned
        self._is_joined = False
        self._rest.clear()
        self._parts.clear()
        self._need = self._octets = 0
        return [UnusedPackets(owned, count)] if has_message and count > 0 else []

    @property
    def begun(self) -> int | None:
        """Return the sqn in which the current message began; None between two messages."""
        return self._begun if self._is_joined and (self._rest or self._parts) else None

    def add(self, first: int, packets: Octets) -> list[DecodedMessages | UnusedPackets]:
        """Decode packets `first`, `first + 1` and so on, a (count, size) array. Return the results in order."""
        results: list[DecodedMessages | UnusedPackets] = []
        end = first + len(packets)
        if packets.shape[1] < OFFSET.size:
            results += [*self.lost(), UnusedPackets(first, len(packets), is_malformed=True)]
        else:
            while first < end:
                first = self._take(first, packets[first - end :], results)
        self._end = end
        return results

    def _take(self, first: int, packets: Octets, results: list[DecodedMessages | UnusedPackets]) -> int:
        """Join if necessary, then read as many packets as possible. Return the sqn at which to continue."""
        begin = 0
        if not self._is_joined:
            row, begin = _place_to_join(packets)
            if row and self._has_been_joined:
                results.append(UnusedPackets(first, row))
            first, packets = first + row, packets[row:]
            if not len(packets):
                return first
            if begin > packets.shape[1] - OFFSET.size:
                results.append(UnusedPackets(first, 1, is_malformed=True))
                return first + 1
            self._is_joined = self._has_been_joined = True
        carries_octets = packets.shape[1] > OFFSET.size
        bad = self._read(first, packets, begin, results) if carries_octets else None
        if bad is None:
            return first + len(packets)
        self._end = first + bad
        results += [*self.lost(), UnusedPackets(self._end, 1, is_malformed=True)]
        return self._end + 1

    def _read(
        self, first: int, packets: Octets, begin: int, results: list[DecodedMessages | UnusedPackets]
    ) -> int | None:
        """Read the stream that the packets carry. Return the row of the first unreadable packet, or None."""
        stream = packets[:, OFFSET.size :].tobytes()
        base = len(self._rest)
        if self._need > base + len(stream):
            self._rest += stream
            return None
        data = bytes(self._rest) + stream if base else stream
        room = packets.shape[1] - OFFSET.size
        is_new = not base and not self._parts  # otherwise the first octets belong to the current message
        messages: list[Parts] = []
        starts: list[int] = []
        at, bad = self._frames(data, begin, messages, starts)
        start = starts.pop()
        if messages:
            sqns = [first + (start_at - base) // room for start_at in starts]
            if not is_new:
                sqns[0] = self._begun
            results.append(DecodedMessages(messages, sqns))
        if messages or is_new:
            row, inside = divmod(start - base, room)
            self._begun = first + row
            self._owned = first + row + (1 if inside and start != begin else 0)
        self._rest[:] = data[at:]
        return None if bad is None else max(0, bad - base) // room

    def _frames(self, data: bytes, at: int, messages: list[Parts], starts: list[int]) -> tuple[int, int | None]:
        """Read all complete frames from `at` on, and store the begins of messages, the current one last.

        Returns the begin of the first incomplete or invalid frame, and the end of the head of an invalid frame, if any.
        """
        parts, end = self._parts, len(data)
        starts.append(at)
        self._need = 0
        while at < end:
            length, head = data[at], at + 1
            if length == LONG:
                head += LONG_LENGTH.size
                if head > end:
                    break
                (length,) = LONG_LENGTH.unpack_from(data, at + 1)
            stop = head + length
            if not length or weight(self._octets + length - 1, len(parts) + 1) > self._most:
                return at, head - 1
            if stop > end:
                self._need = stop - at
                break
            body = data[head + 1 : stop]
            more = data[head] & MORE
            at = stop
            if more:
                parts.append(body)
                self._octets += length - 1
                continue
            messages.append((*parts, body) if parts else (body,))
            starts.append(at)
            if parts:
                parts.clear()
                self._octets = 0
        return at, None


def _place_to_join(packets: Octets) -> tuple[int, int]:
    """Return the first packet in which a message begins, or the number of packets, and the offset of that message."""
    offsets = packets[:, 0].astype(np.intp) << 8 | packets[:, 1]
    rows = np.flatnonzero(offsets != NO_MESSAGE)
    return (int(rows[0]), int(offsets[rows[0]])) if rows.size else (len(packets), 0)
