"""Losses at chosen places of a simulated tree: one packet on one link, one way."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pgm.core.segment import Channel
from pgm.sim.links import Arrival, SimulatedLink
from pgm.sim.world import World
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data, Train


class PlantedLosses:
    """Losses on one link: of each chosen pair of packet type and sqn the first `times` packets."""

    def __init__(self, link: SimulatedLink) -> None:
        self._link = link
        self._left: dict[tuple[PacketType, int], int] = {}
        self._carry, self._pass_whole = link.carry, link.pass_whole
        link.carry, link.pass_whole = self.carry, self.pass_whole  # type: ignore[method-assign]

    def add(self, kind: PacketType, sqn: int, times: int = 1) -> None:
        """Lose the next packets of a type about a sqn."""
        self._left[kind, sqn] = times

    def pass_whole(self, train: Train, now_ns: int) -> int:
        """Pass a train, unless one of its packets may have to go."""
        return -1 if self._left else self._pass_whole(train, now_ns)

    def carry(self, train: Train, now_ns: int) -> list[Arrival]:
        """Carry what remains of a train."""
        lost = np.array([self._takes(packet) for packet in train.packets()], np.bool_)
        if not lost.any():
            return self._carry(train, now_ns)
        left = train.without(lost)
        return [] if left is None else self._carry(left, now_ns)

    def _takes(self, packet: bytes) -> bool:
        for key in keys_of(packet):
            if self._left.get(key):
                self._left[key] -= 1
                if not self._left[key]:
                    del self._left[key]
                return True
        return False

    @property
    def left(self) -> int:
        """Losses that have not happened."""
        return sum(self._left.values())


def keys_of(packet: bytes) -> Iterable[tuple[PacketType, int]]:
    """Return packet type and sqns of one packet with data or a NAK; nothing for others."""
    for item in Train.of(packet).parse_untrusted()[0]:
        if isinstance(item, Data):
            yield item.type, item.wire_sqn
        elif isinstance(item, Nak):
            yield from ((item.kind, sqn) for sqn in item.sqns)


class Planter:
    """Planted losses on all links of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._links: dict[tuple[str, str, str], PlantedLosses] = {}

    def on(self, node: str, segment: str, way: str) -> PlantedLosses:
        """Return the losses on the link of a node: `way` is "in" or "out"."""
        if (node, segment, way) not in self._links:
            attachments = self._world.nodes[node].attachments
            attachment = next(one for one in attachments if one.segment.name == segment)
            link = attachment.ingress if way == "in" else attachment.egress
            self._links[node, segment, way] = PlantedLosses(link)
        return self._links[node, segment, way]

    @property
    def left(self) -> int:
        """Losses that have not happened."""
        return sum(one.left for one in self._links.values())


def note_refused(world: World, node: str) -> set[int]:
    """Return a set that fills with the sqns of data that the full sockets of a node refuse."""
    refused: set[int] = set()
    station = world.nodes[node]
    hear = station.hear

    def noted(train: Train, channel: Channel, peer: Nla) -> None:
        drops = station.total("socket_drops")
        hear(train, channel, peer)
        if station.total("socket_drops") > drops:
            refused.update(
                sqn for packet in train.packets() for kind, sqn in keys_of(packet) if kind is PacketType.ODATA
            )

    station.hear = noted  # type: ignore[method-assign]
    return refused
