"""Parts of a read for the endpoints of one node."""

from __future__ import annotations

import random
import socket
from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.net.link.link import Link
from pgm.net.link.node_links import NodeLinks
from pgm.net.link.reader import SocketRead
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType
from pgm.wire.train import Data, DataWithGaps, Train
from tests.reference import data_packet
from tests.unit.core.makers import BY_GROUP, BY_UNICAST, PEER, SEGMENT, nak_packet, train_of

TSIS = [bytes(7) + bytes([number]) for number in range(1, 4)]  # the first is of a source of the node
PORTS = (7500, 7501, 7502)  # two receivers take the first, one the second; nobody takes the third


@attrs.define(eq=False)
class Reader:
    """Endpoint that keeps its parts of the reads."""

    core: Core
    is_open: bool = True
    found: list[tuple[bytes, int]] = attrs.field(factory=list)  # TSI and sqn of each packet
    rejects: Counter[str] = attrs.field(factory=Counter)

    def take(self, _link: Link, _sock: socket.socket, arrival: SocketRead) -> None:
        items, rejects = arrival.train.parse_scattered_untrusted()
        self.rejects.update(rejects)
        for item in items:
            if isinstance(item, DataWithGaps):
                self.found += [(item.tsi, item.data.wire_sqn + at) for low, end in item.spans for at in range(low, end)]
            elif isinstance(item, Data):
                self.found += [(item.tsi, item.wire_sqn + at) for at in range(item.count)]
            else:
                assert isinstance(item, Nak)
                self.found.append((item.tsi, item.sqn))

    def company_changed(self, *, is_alone: bool) -> None:
        """Do nothing."""


def receiver(*ports: int) -> Reader:
    return Reader(ReceiverCore(ReceiverSetup(SEGMENT, data_ports=frozenset(ports)), Parameters(), random.Random(1)))


def node() -> tuple[NodeLinks, Reader, list[Reader]]:
    links, source = NodeLinks(()), Reader(SourceCore(SourceSetup(TSIS[0], SEGMENT, PORTS[0]), Parameters(), 0))
    receivers = [receiver(PORTS[0]), receiver(PORTS[0]), receiver(PORTS[1])]
    for endpoint in (source, *receivers):
        links.join(endpoint)
    return links, source, receivers


def hand(links: NodeLinks, train: Train, *, is_group: bool) -> None:
    channel = BY_GROUP if is_group else BY_UNICAST
    links.hand_over(None, None, SocketRead(train, channel, PEER, True))  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from(TSIS), st.sampled_from(PORTS), st.booleans()), min_size=1, max_size=40))
def test_read_of_many_sessions_gives_each_packet_to_its_takers(packets: list[tuple[bytes, int, bool]]) -> None:
    """Damaged packets and those that nobody takes go to the oldest endpoint, once."""
    links, source, receivers = node()
    octets, expected, damaged = [], {port: list[tuple[bytes, int]]() for port in PORTS}, 0
    for sqn, (tsi, port, is_damaged) in enumerate(packets):
        packet = data_packet(sqn, bytes(8), tsi=tsi, data_port=port)
        octets.append(packet[:-1] + b"\1" if is_damaged else packet)
        damaged += is_damaged
        if not is_damaged:
            expected[port].append((tsi, sqn))
    hand(links, Train.of(b"".join(octets), len(octets[0])), is_group=True)
    assert [one.found for one in receivers] == [expected[PORTS[0]], expected[PORTS[0]], expected[PORTS[1]]]
    assert source.found == [(tsi, sqn) for tsi, sqn in expected[PORTS[2]] if tsi != TSIS[0]]
    assert source.rejects.total() == damaged
    assert not any(one.rejects for one in receivers)


def test_request_goes_to_its_source_and_by_group_to_receivers() -> None:
    for is_group in (False, True):
        links, source, receivers = node()
        own = nak_packet(5, tsi=TSIS[0], data_port=PORTS[0])
        of_other = nak_packet(7, tsi=TSIS[1], data_port=PORTS[0])
        confirmed = nak_packet(9, tsi=TSIS[0], data_port=PORTS[0], kind=PacketType.NCF)
        for packet in (own, of_other, confirmed):
            hand(links, train_of(packet), is_group=is_group)
        assert source.found == [(TSIS[0], 5)]
        heard = [(TSIS[0], 5), (TSIS[1], 7), (TSIS[0], 9)]
        assert [one.found for one in receivers] == [heard[not is_group :]] * 2 + [[]]


def test_closed_endpoint_gets_nothing_and_the_others_go_on() -> None:
    links, _, receivers = node()
    receivers[0].is_open = False
    hand(links, train_of(nak_packet(7, tsi=TSIS[1], data_port=PORTS[0])), is_group=True)
    assert [len(one.found) for one in receivers] == [0, 1, 0]
    for endpoint in receivers:
        links.leave(endpoint)
    assert not links.is_shared
