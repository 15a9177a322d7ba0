"""Socket for multicast without control messages.

It sends from the address of the node's own socket, which still belongs to that socket alone.
"""

from __future__ import annotations

import errno
import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgm.core.effects import Send, alone
from pgm.core.structures.arena import Arena
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.net.link.node_links import open_links
from pgm.net.sockets.open import SOL_UDP, UDP_GRO, UDP_SEGMENT
from pgm.topology.node_plan import Role
from pgm.wire.train import packets_a_train
from tests.net.link.test_read_gathering import sender
from tests.net.support.lab import lab, needs_namespaces
from tests.net.support.places import Place, below_a_relay
from tests.net.support.sending import PACKETS_A_ROUND, ROUNDS

DSCP = 10
MARKED = {"multicast_hops": 3, "dscp": DSCP}
IP_RECVTTL = 12  # which the standard library does not name


@pytest.fixture
def ends(place: Place) -> Iterator[tuple[Link, Link]]:
    """Return a source's link and a receiver's."""
    plans = [resolve(place.url(), None, role, MARKED) for role in (Role.SOURCE, Role.RECEIVER)]
    [one], [other] = (open_links(plan, Arena()) for plan in plans)
    yield one, other
    one.close()
    other.close()


def test_group_sender_packets_equal_those_of_the_own_socket(ends: tuple[Link, Link]) -> None:
    """Packets have the same address and port, hops and traffic class."""
    source, receiver = ends
    group = receiver.inputs[0]
    group.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    group.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    assert source.send_packet(b"packet")
    source.send(alone(source.segment, b"packet"))
    first, second = group.recvmsg(100, 200), group.recvmsg(100, 200)
    assert first == second
    assert first[0] == b"packet"
    assert first[3] == source.sockets.own.getsockname()
    assert {(kind, octets[0]) for _, kind, octets in first[1]} == {(socket.IP_TTL, 3), (socket.IP_TOS, DSCP << 2)}


def test_group_sender_own_socket_still_receives(ends: tuple[Link, Link], place: Place) -> None:
    name = ends[0].sockets.own.getsockname()
    assert ends[0].sockets.to_group is not None
    assert ends[0].sockets.to_group.getsockname() == name
    with sender(place.address(1)) as asker, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match=str(errno.EADDRINUSE)):
            other.bind(name)
        asker.sendto(b"nak", name)
        assert ends[0].sockets.own.recv(100) == b"nak"


def test_a_receiver_has_none_and_leaves_single_packets_to_others(ends: tuple[Link, Link]) -> None:
    assert ends[1].sockets.to_group is None
    assert not ends[1].send_packet(b"packet")


def test_a_relay_has_one_for_those_below(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(below_a_relay(place))
    links = open_links(resolve(file, "relay", Role.AGGREGATOR, {}), Arena())
    try:
        assert [link.sockets.to_group is not None for link in links] == [False, True]
    finally:
        for link in links:
            link.close()


@pytest.mark.parametrize("gso", [True, False])
def test_group_sender_trains_and_packets_arrive_unchanged(ends: tuple[Link, Link], gso: bool) -> None:
    """The result does not depend on the segment size that the kernel had before."""
    source, receiver = ends
    source.sockets.gso = gso
    group, rng = receiver.inputs[0], random.Random(1)
    group.setsockopt(SOL_UDP, UDP_GRO, 0)
    for number in range(300):
        stride, count = rng.choice((10, 100, 700, 1400)), rng.choice((1, 1, 2, 3, 80))
        octets = rng.randbytes(stride * count - rng.randrange(stride if count > 1 else 1))
        if count == 1 and number % 2:
            assert source.send_packet(octets)
        else:
            source.send(Send(source.segment, octets, stride))
        sent = [octets[at : at + stride] for at in range(0, len(octets), stride)]
        assert [group.recv(2000) for _ in sent] == sent


def test_short_packet_behind_a_full_train_shares_its_call(ends: tuple[Link, Link]) -> None:
    source, receiver = ends
    octets = random.Random(1).randbytes(packets_a_train(1424) * 1424 + 450)
    source.send(Send(source.segment, octets, 1424))
    assert receiver.inputs[0].recvmsg(1 << 16)[0] == octets


@pytest.mark.network
@needs_namespaces
@pytest.mark.parametrize(("address", "group"), [("10.9.0.1", "239.192.9.1"), ("fd00:9::1", "[ff15::9:1]")])
def test_group_sender_keeps_one_card_queue_despite_icmp(address: str, group: str) -> None:
    """One queue keeps the order, and errors of earlier packets cost no later packet."""
    with lab() as made:
        host = made.host("source")
        queues = ("numtxqueues", "4", "numrxqueues", "4")
        host.run("ip", "link", "add", "card", *queues, "type", "veth", "peer", "name", "far", *queues)
        for name in ("card", "far"):
            host.run("ip", "link", "set", name, "up")
        host.add_address("card", f"{address}/{64 if ':' in address else 24}")
        host.run("ip", "route", "add", "224.0.0.0/4", "dev", "card")
        for _ in range(4):  # by chance two sockets may have the same queue
            host.run("tc", "qdisc", "replace", "dev", "card", "root", "handle", "1:", "mq")
            for number in range(1, 5):
                host.run("tc", "qdisc", "add", "dev", "card", "parent", f"1:{number}", "pfifo")
            url = f"pgm://{group}:3056?interface=card&address={address}&data_port=7500"
            with host.start(sys.executable, "-m", "tests.net.support.sending", url, stdout=subprocess.PIPE) as process:
                said, _ = process.communicate()
            assert said == b"0 True\n"
            rows = json.loads(host.run("tc", "-s", "-j", "qdisc", "show", "dev", "card"))
            by_queue = [row["packets"] for row in rows if row["kind"] == "pfifo"]
            host.run("tc", "qdisc", "del", "dev", "card", "root")
            assert max(by_queue) >= ROUNDS * PACKETS_A_ROUND
            assert sum(by_queue) - max(by_queue) < ROUNDS  # packets of the kernel itself


def test_group_sender_disables_gso_where_the_kernel_refuses(
    ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older kernels refuse packets above the current MTU. This kernel does not, so a stand-in refuses."""
    source, receiver = ends
    group, by, sock = receiver.inputs[0], source.to_group, source.sockets.to_group
    group.setsockopt(SOL_UDP, UDP_GRO, 0)
    assert by is not None
    assert sock is not None
    train = Send(source.segment, bytes(300), 100)
    source.send(train)

    def send(octets: bytes) -> int:
        if sock.getsockopt(SOL_UDP, UDP_SEGMENT):
            raise OSError(errno.EINVAL, "larger than the line takes")
        return sock.send(octets)

    monkeypatch.setattr(by, "_send", send)
    source.send(alone(source.segment, b"spm"))
    source.send(train)
    assert source.send_packet(b"data")
    assert [group.recv(1000) for _ in range(8)] == [bytes(100)] * 3 + [b"spm"] + [bytes(100)] * 3 + [b"data"]
    assert source.counters.send_errors == 0


class Interrupted:
    """Socket that sets an option and is then interrupted by a signal handler that raises."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def setsockopt(self, *told: int) -> None:
        self._sock.setsockopt(*told)
        raise KeyboardInterrupt


def test_group_sender_interrupted_send_stays_whole(ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch) -> None:
    source, receiver = ends
    group, by = receiver.inputs[0], source.to_group
    group.setsockopt(SOL_UDP, UDP_GRO, 0)
    assert by is not None
    with monkeypatch.context() as patch:
        patch.setattr(by, "sock", Interrupted(by.sock))
        with pytest.raises(KeyboardInterrupt):
            source.send(Send(source.segment, bytes(300), 100))
    assert source.send_packet(bytes(250))
    assert group.recv(1000) == bytes(250)
    source.send(Send(source.segment, bytes(300), 100))
    assert [group.recv(1000) for _ in range(3)] == [bytes(100)] * 3
