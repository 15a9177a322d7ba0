"""Drops of a socket: packets of unlisted senders are counted apart from those for which the socket had no room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgm.core.structures.arena import Arena
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.net.sockets.packet_filter import SAMPLE, SenderLists
from pgm.parameters import Parameters
from pgm.topology.node_plan import Role
from tests.net.link.test_read_gathering import sender
from tests.net.support.places import Place
from tests.reference import DATA_PORT, data_packet

AFTER = 20
FLOOD = 40 * SAMPLE
PACKET = data_packet(1, bytes(1000))


@pytest.fixture
def link(place: Place) -> Iterator[Link]:
    plan = resolve(place.url(), None, Role.RECEIVER, {}).segments[0]
    lists = SenderLists({DATA_PORT: frozenset({place.address(1)})})
    opened = Link(plan, 0, Parameters(so_rcvbuf=1 << 20, kernel_refusal_after=AFTER), Arena(), None, lists=lists)
    yield opened
    opened.close()


def read_all(link: Link, stranger: str) -> int:
    """Read all, and count packets of a stranger as a core does. Return the packets of others."""
    others = 0
    while (arrival := link.read(link.inputs[0])) is not None:
        if arrival.peer == stranger:
            link.counters.unlisted_packets += arrival.train.count
        else:
            others += arrival.train.count
    return others


def test_refused_packets_are_counted_apart_from_lack_of_room(place: Place, link: Link) -> None:
    counters, stranger = link.counters, place.address(66)
    with sender(stranger) as gun, sender(place.address(1)) as source:
        to = link.plan.group, link.plan.port
        for _ in range(AFTER):
            gun.sendto(PACKET, to)
        assert read_all(link, stranger) == 0
        assert (counters.unlisted_packets, counters.kernel_refused_packets) == (AFTER, 0)
        assert read_all(link, stranger) == 0  # the filter is attached
        for _ in range(FLOOD // 100):
            for _ in range(100):
                gun.sendto(PACKET, to)
            source.sendto(PACKET, to)
            assert read_all(link, stranger) == 1
        refused = FLOOD // 100 * 100 + AFTER
        assert counters.unlisted_packets < AFTER + FLOOD / 8
        assert counters.unlisted_packets + counters.kernel_refused_packets == refused
        assert counters.socket_drops == 0
        sent = 3 * (1 << 20) // len(PACKET)
        for _ in range(sent):
            source.sendto(PACKET, to)
        got = read_all(link, stranger)
        assert 0 < got < sent
        assert got + counters.socket_drops == sent
        assert counters.unlisted_packets + counters.kernel_refused_packets == refused
