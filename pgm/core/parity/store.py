"""Bounded store of received parity packets.

The bounds are the number of groups, the packets of each group, and the octets.
"""

from __future__ import annotations

from itertools import islice

from pgm.core.counters import Counters
from pgm.fec.groups import ParityShape
from pgm.wire.parity import ParityPacket

PACKET_OCTETS = 256  # memory of the objects around a packet, so that small packets count too


class ParityStore:
    """Parity packets of at most `most_groups` groups, by group.

    A group has `size` packets. A group needs at most `size` parity packets. Without room the newest groups are dropped.
    The oldest groups hold up delivery, and if they were dropped, no group might ever be complete. One group always has
    room: data in order behind a loss may fill all memory, and only the repair of the loss frees that memory.
    """

    def __init__(self, size: int, most_groups: int, counters: Counters) -> None:
        self._size = size
        self._most_groups = most_groups
        self._counters = counters
        self._groups: dict[int, dict[int, ParityPacket]] = {}  # by group and number; no group is empty
        self._refused: dict[int, None] = {}  # groups whose packets did not fit together, oldest first
        self.octets = 0

    def __len__(self) -> int:
        return len(self._groups)

    def count(self, group: int) -> int:
        """Return the number of packets of a group."""
        return len(self.of(group))

    def of(self, group: int) -> dict[int, ParityPacket]:
        """Return the packets of a group by number."""
        return self._groups.get(group, {})

    def within(self, first: int, end: int) -> list[int]:
        """Return the groups that have any of `first` to `end - 1`."""
        return [group for group in self._groups if group < end and group + self._size > first]

    def add(self, packet: ParityPacket, room: int) -> bool:
        """Store a packet if it is new, has the shape of its group, and fits.

        Return whether it was stored. `room` is the limit for several groups together, in octets.
        """
        group, octets = packet.group, _octets(packet)
        collected = self.of(group)
        if packet.index in collected or len(collected) >= self._size or not _has_shape_of(packet, collected):
            return False
        while self._groups.keys() - {group} and not self._has_room(octets, room, is_new=not collected):
            newest = max(self._groups)
            if group >= newest:
                self._counters.parity_packets_dropped += 1
                return False
            self._counters.parity_packets_dropped += self.count(newest)
            self.drop(newest)
        self._groups.setdefault(group, {})[packet.index] = packet
        self.octets += octets
        return True

    def _has_room(self, octets: int, room: int, *, is_new: bool) -> bool:
        return self.octets + octets <= room and not (is_new and len(self._groups) >= self._most_groups)

    def drop(self, group: int) -> None:
        """Forget a group."""
        self.octets -= sum(map(_octets, self._groups.pop(group, {}).values()))

    def refuse(self, group: int) -> None:
        """Note that the packets of a group do not fit together."""
        self._refused[group] = None
        if len(self._refused) > self._most_groups:
            del self._refused[next(iter(self._refused))]

    def is_refused(self, group: int) -> bool:
        """Return whether the packets of a group did not fit together."""
        return group in self._refused

    def drop_before(self, sqn: int) -> None:
        """Forget the groups that begin before this sqn."""
        for group in [group for group in self._groups if group < sqn]:
            self.drop(group)

    def clear(self) -> None:
        """Forget all."""
        self._groups.clear()
        self.octets = 0


def _octets(packet: ParityPacket) -> int:
    return PACKET_OCTETS + len(packet.payload) + len(packet.fragment or b"")


def _has_shape_of(packet: ParityPacket, group: dict[int, ParityPacket]) -> bool:
    shape = ParityShape.of(packet)
    return all(ParityShape.of(other) == shape for other in islice(group.values(), 1))
