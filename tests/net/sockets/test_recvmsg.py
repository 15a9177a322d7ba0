"""Direct calls of `recvmsg` report the same about a datagram as Python's `recvmsg`."""

from __future__ import annotations

import ctypes
import errno
import random
import socket
from collections.abc import Iterator

import pytest

from pgm.core.structures.arena import Arena
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.net.sockets.msghdr import CONTROL_OCTETS
from pgm.net.sockets.open import SO_RXQ_OVFL, SOL_UDP, UDP_GRO, UDP_SEGMENT
from pgm.net.sockets.recvmsg import CONTROL_WORD, Recvmsg, receive_message
from pgm.parameters import Parameters
from pgm.topology.node_plan import Role
from tests.net.support.places import Place

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@pytest.fixture(params=HOSTS, ids=("IPv4", "IPv6"))
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return a sending and a receiving socket."""
    with (
        socket.socket(request.param, socket.SOCK_DGRAM) as one,
        socket.socket(request.param, socket.SOCK_DGRAM) as other,
    ):
        try:
            for sock in (one, other):
                sock.bind((HOSTS[request.param], 0))
                sock.setblocking(False)
        except OSError:
            pytest.skip("this host has no IPv6")
        other.setsockopt(SOL_UDP, UDP_GRO, 1)
        other.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        yield one, other


def test_all_is_told_of_a_datagram(ends: tuple[socket.socket, socket.socket]) -> None:
    """The datagrams are trains, empty ones, and ones with a drop count.

    Each is peeked first, so that both calls see it.
    """
    one, other = ends
    rng, single = random.Random(1), Recvmsg(other)
    metadata: set[int] = set()
    for _ in range(200):
        for _ in range(rng.choice([1, 1, 3, 40])):
            size = rng.choice([0, 1, 124, 1400])
            one.setsockopt(SOL_UDP, UDP_SEGMENT, size if rng.random() < 0.3 else 0)
            one.sendto(rng.randbytes(size * rng.choice([1, 2, 5])), other.getsockname())
            one.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
        while (octets := receive_message(single.number, single.header, socket.MSG_PEEK)) >= 0:
            packet, ancillary, flags, name = other.recvmsg(1 << 16, CONTROL_OCTETS)
            assert single.data[:octets].tobytes() == packet
            assert single.parsed_metadata() == (ancillary, flags, name[:2])
            metadata.update(kind for _, kind, _ in ancillary)
            single.metadata[CONTROL_WORD] = CONTROL_OCTETS
        assert ctypes.get_errno() == errno.EAGAIN
    assert metadata == {UDP_GRO, SO_RXQ_OVFL}


def test_recvmsg_errors_are_those_of_the_general_path(place: Place) -> None:
    """An answer to an earlier send is ignored once; other errors are raised."""
    link = Link(resolve(place.url(), None, Role.RECEIVER, {}).segments[0], 0, Parameters(), Arena(), None)
    sock = link.sockets.own
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind((place.address(1), 0))
        sock.connect(gone.getsockname())
    sock.send(b"to nobody")
    assert link.poll_single(sock, lambda *_: True, 3) == 1
    assert link.poll_single(sock, lambda *_: True, 3) == 0
    group = link.inputs[0]
    link.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        link.poll_single(group, lambda *_: True)
