"""Reads that poll for a single packet give the same as any other read.

That holds for trains, odd octets, packets of others and own echoes.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import attrs
import pytest

import pgm
import pgm.blocking
from pgm.core.structures.arena import Arena
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT
from pgm.parameters import Parameters
from pgm.topology.load import loads
from pgm.topology.node_plan import Role
from tests.net.link.test_read_gathering import sender
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place, one_segment

SEEDS = range(12)
Read = tuple[str, int, bytes]  # sender, length of the packets, and all packets


@pytest.fixture
def links(place: Place) -> Iterator[list[Link]]:
    """Return two links of the same group: each gets all packets."""
    plan = resolve(place.url(), None, Role.RECEIVER, {}).segments[0]
    opened = [Link(plan, 0, Parameters(so_rcvbuf=300_000), Arena(), None) for _ in range(2)]
    yield opened
    for one in opened:
        one.close()


def read_plainly(link: Link) -> Read | None:
    arrival = link.read(link.inputs[0], gathers=False)
    if arrival is None:
        return None
    train = arrival.train
    return arrival.peer, train.stride, bytes(train.buffer[train.offset : train.offset + train.length])


def read_all(link: Link, rng: random.Random, *, alone: bool) -> list[Read]:
    """Return all waiting packets. With `alone` it polls as a busy-poll receiver, and takes single packets at random."""
    sock, found = link.inputs[0], []

    def take(packet: bytes, peer: str) -> bool:
        if rng.random() < 0.3:
            return False
        found.append((peer, len(packet), packet))
        return True

    while True:
        if alone and rng.random() < 0.8:
            came = link.poll_single(sock, take, rng.choice([1, 3]))
            assert link.holds(sock) == (came < 0)
            if not came:
                break
            if came > 0:
                continue
        read = read_plainly(link)
        if read is None:
            break
        found.append(read)
    assert not link.holds(sock)
    return found


def send_anything(links: list[Link], one: socket.socket, other: socket.socket, rng: random.Random) -> None:
    to = (links[0].plan.group, links[0].plan.port)
    for _ in range(rng.randrange(1, 30)):
        size = rng.choice([0, 1, 20, 124, 124, 124, 1400, 9000])
        count = rng.choice([1, 1, 1, 2, 7])
        octets = rng.randbytes(size * count - (rng.randrange(size) if count > 1 and size else 0))
        sock = rng.choice([one, one, other])
        if count > 1 and size:
            sock.setsockopt(SOL_UDP, UDP_SEGMENT, size)
        sock.sendto(octets, to)
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_reads_equal_general_reads(links: list[Link], place: Place, seed: int) -> None:
    """The kernel's drops are counted equally, too: some rounds send more than the buffers hold."""
    rng = random.Random(seed)
    with sender(place.address(1)) as one, sender(place.address(2)) as other:
        for number in range(12):
            for _ in range(30 if number == 6 else 1):
                send_anything(links, one, other, rng)
            came = [read_all(link, rng, alone=link is links[0]) for link in links]
            assert came[0] == came[1]
            assert attrs.asdict(links[0].counters) == attrs.asdict(links[1].counters)
    assert links[0].counters.trains_in > 0
    assert links[0].counters.socket_drops > 0


def test_own_echoes_and_nothing_are_passed_over(links: list[Link], place: Place) -> None:
    to, taken = (links[0].plan.group, links[0].plan.port), []
    with sender(place.address(1)) as one:
        links[0].sockets.own.sendto(b"own", to)
        one.sendto(b"", to)
        one.sendto(b"theirs", to)
    sock = links[0].inputs[0]
    came = [links[0].poll_single(sock, lambda *what: not taken.append(what)) for _ in range(4)]
    assert came == [1, 1, 1, 0]
    assert taken == [(b"theirs", place.address(1))]
    assert not links[0].holds(sock)


def test_single_reads_mixed_stream_is_whole_with_busy_poll(place: Place) -> None:
    rng = random.Random(1)
    sent = messages_of_sizes([rng.choice([0, 100, 100, 1400, 3000]) for _ in range(400)])
    tree = loads(one_segment(place))
    got: list[bytes] = []
    with (
        pgm.blocking.open_receiver(tree, node="desk-1", busy_poll=True) as receiver,
        pgm.blocking.open_source(tree, node="source", busy_poll=True) as source,
    ):
        at = 0
        while at < len(sent):
            count = rng.choice([1, 1, 1, 2, 20])
            part = sent[at : at + count]
            if count == 1:
                source.send(part[0])
            else:
                source.send_batch(part)
            at += len(part)
            for _ in range(rng.choice([0, 1, 2])):
                receiver.poll()
            while len(got) < at:
                item = receiver.recv(5)
                assert item is not None, len(got)
                if isinstance(item, pgm.Message):
                    got.append(item.payload)
        assert receiver.counters.lost_sqns == 0
    assert got == sent
