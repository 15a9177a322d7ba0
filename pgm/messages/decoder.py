"""ZeroMQ's framing, the receiving side: packets of one session in, messages out (INT-Z5, INT-Z7).

Nothing that a peer sends raises. What cannot be read drops the message under way, is reported, and reception goes on
where the next message begins, as it does after a loss.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from pgm.messages.zmtp import LONG, LONG_LENGTH, MORE, NO_MESSAGE, OFFSET, Parts, weight

Octets = npt.NDArray[np.uint8]


@attrs.define
class DecodedMessages:
    """Whole messages, and for each the sqn of the packet it began in."""

    messages: list[Parts]
    sqns: list[int]


@attrs.frozen
class UnusedPackets:
    """Packets that arrived and gave nothing to any message: what they belong to is incomplete, or cannot be read."""

    first: int
    count: int
    is_malformed: bool = False


class Decoder:
    """The stream of one session. Feed it packets in order; tell it of losses.

    Until it has joined, packets in which no message begins are passed over. `most` bounds the weight of a message
    (see `weight`), and with it what is held here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._is_joined = False
        self._has_been_joined = False
        self._rest = bytearray()  # a frame that is not whole yet
        self._need = 0  # octets of rest before anything can come of it
        self._parts: list[bytes] = []  # of the message under way
        self._octets = 0  # of those parts
        self._begun = 0  # sqn in which the message under way began
        self._owned = 0  # first sqn that holds nothing else than the message under way
        self._end = 0  # sqn behind the last packet taken

    def lost(self) -> list[UnusedPackets]:
        """Something is missing, or the session ends: what was begun cannot be ended."""
        is_under_way = self._is_joined and bool(self._rest or self._parts)
        owned, count = self._owned, self._end - self._owned
        self._is_joined = False
        self._rest.clear()
        self._parts.clear()
        self._need = self._octets = 0
        return [UnusedPackets(owned, count)] if is_under_way and count > 0 else []

    def add(self, first: int, packets: Octets) -> list[DecodedMessages | UnusedPackets]:
        """Take packets `first`, `first + 1` and so on, a (count, size) array; returns what came of them, in order."""
        found: list[DecodedMessages | UnusedPackets] = []
        end = first + len(packets)
        if packets.shape[1] < OFFSET.size:
            found += [*self.lost(), UnusedPackets(first, len(packets), is_malformed=True)]
        else:
            while first < end:
                first = self._take(first, packets[first - end :], found)
        self._end = end
        return found

    def _take(self, first: int, packets: Octets, found: list[DecodedMessages | UnusedPackets]) -> int:
        """Join if need be, then read as far as it goes; returns the sqn to go on from."""
        begin = 0
        if not self._is_joined:
            row, begin = _place_to_join(packets)
            if row and self._has_been_joined:
                found.append(UnusedPackets(first, row))
            first, packets = first + row, packets[row:]
            if not len(packets):
                return first
            if begin > packets.shape[1] - OFFSET.size:
                found.append(UnusedPackets(first, 1, is_malformed=True))
                return first + 1
            self._is_joined = self._has_been_joined = True
        carries_octets = packets.shape[1] > OFFSET.size
        bad = self._read(first, packets, begin, found) if carries_octets else None
        if bad is None:
            return first + len(packets)
        self._end = first + bad
        found += [*self.lost(), UnusedPackets(self._end, 1, is_malformed=True)]
        return self._end + 1

    def _read(
        self, first: int, packets: Octets, begin: int, found: list[DecodedMessages | UnusedPackets]
    ) -> int | None:
        """Read the stream that the packets carry; returns the row of a packet that cannot be read, if there is one."""
        stream = packets[:, OFFSET.size :].tobytes()
        base = len(self._rest)
        if self._need > base + len(stream):
            self._rest += stream
            return None
        data = bytes(self._rest) + stream if base else stream
        room = packets.shape[1] - OFFSET.size
        is_new = not base and not self._parts  # else what comes first belongs to the message under way
        messages: list[Parts] = []
        starts: list[int] = []
        at, bad = self._frames(data, begin, messages, starts)
        start = starts.pop()
        if messages:
            sqns = [first + (one - base) // room for one in starts]
            if not is_new:
                sqns[0] = self._begun
            found.append(DecodedMessages(messages, sqns))
        if messages or is_new:
            row, inside = divmod(start - base, room)
            self._begun = first + row
            self._owned = first + row + (1 if inside and start != begin else 0)
        self._rest[:] = data[at:]
        return None if bad is None else max(0, bad - base) // room

    def _frames(self, data: bytes, at: int, messages: list[Parts], starts: list[int]) -> tuple[int, int | None]:
        """Read all whole frames from `at` on, and note where messages begin, the one under way last.

        Returns where the unread frame begins, and where the head of one that is none ends.
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
    """The first packet in which a message begins, and where; a packet behind the last if there is none."""
    offsets = packets[:, 0].astype(np.intp) << 8 | packets[:, 1]
    rows = np.flatnonzero(offsets != NO_MESSAGE)
    return (int(rows[0]), int(offsets[rows[0]])) if rows.size else (len(packets), 0)
