"""Parity that waits at whoever recovers until there is enough of it: bounded by groups, by packets of each, and by octets."""

from __future__ import annotations

import attrs

from pgm.core.counters import Counters
from pgm.fec import groups
from pgm.wire.parity import ParityPacket

PACKET_OCTETS = 256  # of the objects around a packet: small packets cost memory too


@attrs.define
class _Collected:
    """The parity packets of one group, all of one shape."""

    shape: groups.ParityShape
    packets: dict[int, ParityPacket] = attrs.field(factory=dict)
    octets: int = 0


class ParityStore:
    """Parity packets by group of `size`, of `most_groups` groups. More than `size` of one group help nobody.

    Where there is no room the newest groups give way: the oldest hold up delivery, and were they to give way none might
    ever be whole.
    """

    def __init__(self, size: int, most_groups: int, counters: Counters) -> None:
        self._size = size
        self._most_groups = most_groups
        self._counters = counters
        self._groups: dict[int, _Collected] = {}
        self.octets = 0

    def __len__(self) -> int:
        return len(self._groups)

    def count(self, group: int) -> int:
        """Packets of a group."""
        found = self._groups.get(group)
        return 0 if found is None else len(found.packets)

    def of(self, group: int) -> dict[int, ParityPacket]:
        """The packets of a group by number."""
        found = self._groups.get(group)
        return {} if found is None else found.packets

    def within(self, first: int, end: int) -> list[int]:
        """Groups that have sqns of `first` to `end - 1`."""
        return [group for group in self._groups if group < end and group + self._size > first]

    def add(self, packet: ParityPacket, room: int) -> bool:
        """Keep a packet if it is new, fits the others of its group, and finds room: `room` octets for all groups together."""
        shape, group, octets = groups.ParityShape.of(packet), packet.group, PACKET_OCTETS + _octets(packet)
        found = self._groups.get(group)
        if found is not None and (
            found.shape != shape or packet.index in found.packets or len(found.packets) >= self._size
        ):
            return False
        is_new = found is None
        while not self._has_room(octets, room, is_new=is_new):
            newest = max(self._groups, default=group)
            if group >= newest:
                self._counters.parity_packets_dropped += 1
                return False
            self._counters.parity_packets_dropped += self.count(newest)
            self.drop(newest)
        if found is None:
            found = self._groups[group] = _Collected(shape)
        found.packets[packet.index] = packet
        found.octets += octets
        self.octets += octets
        return True

    def _has_room(self, octets: int, room: int, *, is_new: bool) -> bool:
        return self.octets + octets <= room and not (is_new and len(self._groups) >= self._most_groups)

    def drop(self, group: int) -> None:
        """Forget a group."""
        found = self._groups.pop(group, None)
        if found is not None:
            self.octets -= found.octets

    def drop_before(self, sqn: int) -> None:
        """Forget the groups that begin before this sqn."""
        for group in [group for group in self._groups if group < sqn]:
            self.drop(group)

    def clear(self) -> None:
        """Forget all."""
        self._groups.clear()
        self.octets = 0


def _octets(packet: ParityPacket) -> int:
    return len(packet.payload) + (0 if packet.fragment is None else len(packet.fragment))
