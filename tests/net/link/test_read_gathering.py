"""Single packets at a socket become one train of the link, and packets that do not fit are not lost."""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trio
import trio.testing

import pgm
from pgm.core.structures.arena import ROOM, Arena
from pgm.net.link.backlog import DRAIN_TRAINS
from pgm.net.link.link import Link
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT
from pgm.net.sockets.recvmmsg import Recvmmsg
from pgm.parameters import Parameters
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import KIB, MIB, parse_octets
from pgm.wire.control_packets import Nak, Spm, encode
from pgm.wire.formats import TYPE_AT, PacketType
from pgm.wire.options import NO_OPTIONS, NakList
from pgm.wire.train import MAX_READ_OCTETS, MAX_READ_PACKETS, MAX_TRAIN_PACKETS, DataWithGaps
from pgm.wire.train_grouping import MOST_ROWS
from tests.memory import kept_by
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place, one_segment
from tests.reference import DATA_PORT, TSI, data_packet


@pytest.fixture
def link(place: Place) -> Iterator[Link]:
    plan = plan_node(loads(one_segment(place)), "desk-1")
    opened = Link(plan.segments[0], 0, Parameters(gro=False), Arena(), None)
    yield opened
    opened.close()


def sender(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    request = struct.pack("=4s4si", bytes(4), bytes(4), socket.if_nametoindex("lo"))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)
    return sock


def resident_octets() -> int:
    """Return the resident memory of this process in octets."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def packets(sizes: list[int]) -> list[bytes]:
    return [bytes([number % 256]) * size for number, size in enumerate(sizes)]


def read_all(link: Link, *, keep: bool = False) -> list[tuple[str, int, list[bytes]]]:
    """Return every train: its sender, the length of its packets, and the packets."""
    group = link.inputs[0]
    found = []
    while (arrival := link.read(group)) is not None:
        train = arrival.train
        octets = bytes(train.buffer[train.offset : train.offset + train.length])
        cut = [octets[at : at + train.stride] for at in range(0, len(octets), train.stride)]
        found.append((arrival.peer, train.stride, cut))
        if keep:
            link.keep(train)
    assert not link.holds(group)
    return found


@pytest.mark.parametrize("keep", [False, True])
def test_read_gathering_similar_packets_become_a_train(link: Link, place: Place, keep: bool) -> None:
    sent = packets([100] * 10 + [40] + [100] * 3 + [200, 100, 100, 30, 30])
    with sender(place.address(1)) as one:
        for packet in sent:
            one.sendto(packet, (link.plan.group, link.plan.port))
    found = read_all(link, keep=keep)
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert [(stride, len(cut)) for _, stride, cut in found] == [(100, 11), (100, 3), (200, 1), (100, 2), (30, 2)]
    assert link.counters.trains_in == len(found)
    assert link.counters.packets_in == len(sent)


def test_senders_are_kept_apart(link: Link, place: Place) -> None:
    sent = packets([100] * 9)
    with sender(place.address(1)) as one, sender(place.address(2)) as other:
        for number, packet in enumerate(sent):
            (one, other)[number // 2 % 2].sendto(packet, (link.plan.group, link.plan.port))
    found = read_all(link)
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert [peer for peer, _, _ in found] == [place.address(1), place.address(2)] * 2 + [place.address(1)]


def test_read_gathering_drops_own_echoes_only(link: Link) -> None:
    """Own echoes lie in the middle, and at the end as a shorter packet."""
    group = (link.plan.group, link.plan.port)
    with sender(link.segment.address) as one:
        for sizes, own_octets in (([100] * 3, 100), ([100] * 2, 60), ([100] * 2, 100)):
            for packet in packets(sizes):
                one.sendto(packet, group)
            link.sockets.own.sendto(b"!" * own_octets, group)
            one.sendto(b"behind" * 20, group)
            found = read_all(link)
            assert [packet for _, _, cut in found for packet in cut] == [*packets(sizes), b"behind" * 20]


def test_trains_are_bounded(link: Link, place: Place) -> None:
    sent = packets([50] * (MAX_READ_PACKETS + 200)) + packets([9000] * 150)
    with sender(place.address(1)) as one:
        for packet in sent:
            one.sendto(packet, (link.plan.group, link.plan.port))
    found = read_all(link)
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert max(len(cut) for _, _, cut in found) == MAX_READ_PACKETS
    assert MAX_READ_PACKETS <= MOST_ROWS, "packets of one longer read would not be looked at together"
    assert max(sum(map(len, cut)) for _, _, cut in found) <= MAX_READ_OCTETS


def test_trains_that_follow_each_other_are_one(place: Place) -> None:
    """One call takes all that follows; a short packet may end a stream of trains."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(), Arena(), None)
    sent = [*packets([1000] * (3 * MAX_TRAIN_PACKETS)), b"short", *packets([1000] * MAX_TRAIN_PACKETS)]
    try:
        with sender(place.address(1)) as one:
            one.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
            together = b"".join(sent)
            cuts = [*range(0, 3 * MAX_TRAIN_PACKETS * 1000, MAX_TRAIN_PACKETS * 1000), 3 * MAX_TRAIN_PACKETS * 1000]
            for at, end in zip(cuts, [*cuts[1:], cuts[-1] + 5], strict=True):
                one.sendto(together[at:end], (plan.segments[0].group, plan.segments[0].port))
            one.sendto(together[cuts[-1] + 5 :], (plan.segments[0].group, plan.segments[0].port))
        found = read_all(receiver, keep=True)
    finally:
        receiver.close()
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert [len(cut) for _, _, cut in found] == [3 * MAX_TRAIN_PACKETS + 1, MAX_TRAIN_PACKETS]


def test_a_packet_alone_among_trains_does_not_end_them(place: Place) -> None:
    """Trains behind it are not read as single packets either, of which one call would take and hold up to 128."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(), Arena(), None)
    to = (plan.segments[0].group, plan.segments[0].port)
    sent = packets([1000] * (4 * 40 + 1))
    try:
        with sender(place.address(1)) as one:
            one.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
            for at, end in ((0, 40), (40, 80), (80, 81), (81, 121), (121, 161)):
                one.sendto(b"".join(sent[at:end]), to)
            found = read_all(receiver)
    finally:
        receiver.close()
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert [len(cut) for _, _, cut in found] == [len(sent)]


def test_read_gathering_stops_at_trains(place: Place) -> None:
    """Held data is copied twice.

    For a buffer full of trains that takes ten milliseconds, without other reads and sends.
    """
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(), Arena(), None)
    group, to = receiver.inputs[0], (plan.segments[0].group, plan.segments[0].port)
    held = []
    try:
        with sender(place.address(1)) as one:
            for singles in (2, 200, 2):  # behind many of them more are asked for at a time, but once only
                one.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
                for packet in packets([1000] * singles):
                    one.sendto(packet, to)
                one.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
                for _ in range(40):
                    one.sendto(bytes(4000), to)
                arrival = receiver.read(group)
                assert arrival is not None
                arrays = [each for each in kept_by(receiver) if isinstance(each, np.ndarray)]
                held.append(sum(each.nbytes == 4000 for each in arrays))
                rest = sum(len(cut) for _, _, cut in read_all(receiver))
                assert arrival.train.count + rest == singles + 160
    finally:
        receiver.close()
    assert held[0] <= 8
    assert held[2] <= 8


def test_trains_of_as_many_octets_in_other_packets_are_others(place: Place) -> None:
    """Only the control message beside a read tells the two apart."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(), Arena(), None)
    strides = [100, 100, 300, 300, 600, 100]
    try:
        with sender(place.address(1)) as one:
            for stride in strides:
                one.setsockopt(SOL_UDP, UDP_SEGMENT, stride)
                one.sendto(bytes(1200), (plan.segments[0].group, plan.segments[0].port))
        found = read_all(receiver, keep=True)
    finally:
        receiver.close()
    assert [(stride, len(cut)) for _, stride, cut in found] == [(100, 24), (300, 8), (600, 2), (100, 12)]


def test_read_gathering_fits_the_chunk(place: Place) -> None:
    """One call reads many packets, and they are kept: the arena's chunk ends among them."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(gro=False), Arena(4 * ROOM), None)
    sent = packets([1000] * 700 + [999] + [1000] * 300)
    found = []
    try:
        with sender(place.address(1)) as one:
            for at in range(0, len(sent), 100):  # a socket's buffer may be small
                for packet in sent[at : at + 100]:
                    one.sendto(packet, (plan.segments[0].group, plan.segments[0].port))
                found += read_all(receiver, keep=True)
    finally:
        receiver.close()
    assert [packet for _, _, cut in found for packet in cut] == sent


def test_read_gathering_packets_after_an_odd_one_form_a_train(link: Link, place: Place) -> None:
    """A confirmation in the middle of a stream does not make the packets after it single reads.

    No train is longer than its room.
    """
    sent = packets([1000] * 20 + [60] + [1000] * 30 + [60, 60] + [1000] * 8 + [3000] * 40)
    with sender(place.address(1)) as one:
        for packet in packets([1000] * 130):  # they come one by one: from now on many are asked for at a time
            one.sendto(packet, (link.plan.group, link.plan.port))
        assert sum(len(cut) for _, _, cut in read_all(link)) == 130
        for packet in sent:
            one.sendto(packet, (link.plan.group, link.plan.port))
    found = read_all(link)
    assert [packet for _, _, cut in found for packet in cut] == sent
    assert [(stride, len(cut)) for _, stride, cut in found] == [
        (1000, 21),  # a shorter one may end a train
        (1000, 30),
        (60, 2),
        (1000, 8),
        (3000, 40),
    ]


def test_packets_that_tell_of_drops_still_come_many_by_a_call(place: Place) -> None:
    """After its first drop the kernel adds a message to every packet. Single reads would cause further drops."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(gro=False, so_rcvbuf=65_536), Arena(), None)
    many = Recvmmsg.or_none()
    assert many is not None
    to = (plan.segments[0].group, plan.segments[0].port)
    try:
        with sender(place.address(1)) as one:
            for packet in packets([1000] * 500):
                one.sendto(packet, to)
            came = sum(len(cut) for _, _, cut in read_all(receiver))
            assert came < 500
            for packet in packets([1000] * 20):
                one.sendto(packet, to)
            found = many.read(receiver.inputs[0], 20)
            assert found.drops == 500 - came
            assert len(found) == 20
            assert found.is_odd is None
            for packet in packets([1000] * 20):
                one.sendto(packet, to)
            assert [len(cut) for _, _, cut in read_all(receiver)] == [20]
        assert receiver.counters.socket_drops == 500 - came
    finally:
        receiver.close()


def test_nothing_octets_and_own_echoes_do_not_end_a_train(link: Link, place: Place) -> None:
    to = (link.plan.group, link.plan.port)
    with sender(place.address(1)) as one:
        one.sendto(b"a" * 20, to)
        link.sockets.own.sendto(b"own" * 9, to)
        one.sendto(b"", to)
        one.sendto(b"b" * 20, to)
    assert read_all(link) == [(place.address(1), 20, [b"a" * 20, b"b" * 20])]


def test_room_for_many_packets_is_taken_as_far_as_they_reach(place: Place) -> None:
    """A row has room for a train. With huge pages the first single packets waited for all of that memory."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(gro=False), Arena(), None)
    many = Recvmmsg.or_none()
    assert many is not None
    before = resident_octets()
    try:
        with sender(place.address(1)) as one:
            for packet in packets([100] * 100):
                one.sendto(packet, (plan.segments[0].group, plan.segments[0].port))
        found = len(many.read(receiver.inputs[0], 100))
    finally:
        receiver.close()
    assert found == 100
    assert resident_octets() - before < MIB


async def test_the_memory_of_a_receiver_may_be_warm_from_the_start(place: Place) -> None:
    """Packets behind the first gap then meet no page faults."""
    for octets, chunks in (("0B", 1), ("8MiB", 5)):
        async with pgm.open_receiver(place.url(), rxw_warm_bytes=octets) as receiver:
            assert receiver.links[0].arena.chunks == chunks


async def test_read_gathering_small_window_has_small_chunks(place: Place) -> None:
    """A waiting packet keeps a whole chunk."""
    for window, octets in (("64KiB", 256 * KIB), ("4MiB", 512 * KIB), ("32MiB", 2 * MIB)):
        async with pgm.open_receiver(place.url(), rxw_bytes=window) as receiver:
            arena = receiver.links[0].arena
            assert arena.left_octets == octets
            assert arena.octets <= octets + parse_octets(window)


async def test_a_packet_that_was_read_is_not_waited_for(place: Place) -> None:
    """The driver pauses after some trains; packets held by the last read must not wait for further ones."""
    async with pgm.open_receiver(place.url(gro="false")) as receiver:
        plan = receiver.links[0].plan
        sent = packets([100 + number for number in range(DRAIN_TRAINS + 1)])
        with sender(place.address(1)) as one:
            for packet in sent:
                one.sendto(packet, (plan.group, plan.port))
        with trio.fail_after(PATIENCE_S):
            while receiver.counters.packets_in < len(sent):
                await trio.testing.wait_all_tasks_blocked()
        assert receiver.counters.trains_in == len(sent) == DRAIN_TRAINS + 1


async def test_a_node_that_rests_reads_all_that_waits_first(place: Place) -> None:
    """The number of small trains does not matter; a few of them between two rests would overrun the node."""
    rests = 10
    async with pgm.open_receiver(place.url(gro="false", rx_wake_ivl="100ms")) as receiver:
        plan = receiver.links[0].plan
        sent = packets([100 + number for number in range(rests * DRAIN_TRAINS)])
        with sender(place.address(1)) as one:
            for packet in sent:
                one.sendto(packet, (plan.group, plan.port))
        begun = trio.current_time()
        with trio.fail_after(PATIENCE_S):
            while receiver.counters.packets_in < len(sent):
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert trio.current_time() - begun < rests / 2 * 0.1


def test_room_that_was_made_behind_a_read_is_not_read_into(link: Link, place: Place) -> None:
    """Packets behind a gap move, and the next read begins behind them; later packets of the same read stay."""
    link.has_single_consumer = True
    group = (link.plan.group, link.plan.port)
    sqns = [[5, 6, 8, 9, 10, 12, 13, 14, 15], [16, 17, 19, 20]]
    runs = []
    with sender(place.address(1)) as one:
        for some in sqns:
            for sqn in some:
                one.sendto(data_packet(sqn, bytes([sqn]) * 80), group)
            arrival = link.read(link.inputs[0])
            assert arrival is not None
            [item], _ = arrival.train.parse_scattered_untrusted()
            assert isinstance(item, DataWithGaps)
            assert not item.open_gaps(0)
            assert item.open_gaps(2)
            assert [piece.wire_sqn for piece in item.pieces()] == [first for first in some if first - 1 not in some]
            runs.append(item.spread_run(some[0]))
            link.keep(arrival.train)
    assert runs[1].offset == runs[0].offset + runs[0].octets
    for run, some in zip(runs, sqns, strict=True):
        for sqn in some:
            assert run.payloads[sqn - run.first].tobytes() == bytes([sqn]) * 80


@pytest.mark.parametrize("gro", [False, True])
def test_room_is_left_behind_each_read(place: Place, gro: bool) -> None:
    """This holds at the end of a chunk, too: reads there have gaps like all others."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    receiver = Link(plan.segments[0], 0, Parameters(gro=gro), Arena(6 * ROOM), None)
    receiver.has_single_consumer = True
    times, octets = (2, 1000 * MAX_TRAIN_PACKETS) if gro else (2 * MAX_TRAIN_PACKETS, 1000)
    reads = 0
    try:
        with sender(place.address(1)) as one:
            if gro:
                one.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
            for _ in range(10):
                for _ in range(times):
                    one.sendto(bytes(octets), (plan.segments[0].group, plan.segments[0].port))
                while (arrival := receiver.read(receiver.inputs[0])) is not None:
                    assert arrival.train.keeping.room >= ROOM
                    receiver.keep(arrival.train)
                    reads += 1
    finally:
        receiver.close()
    assert reads >= 10


def test_an_ncf_does_not_cut_what_a_receiver_reads(link: Link, place: Place) -> None:
    """The NCF comes behind later packets, which still get room for gaps: the NCF's octets are not needed."""
    link.has_single_consumer = True
    sent = [data_packet(sqn, bytes(80)) for sqn in (5, 6, 8, 9, 12, 13)]
    confirmed = ncf(7, 10, 11)
    with sender(place.address(1)) as one:
        for packet in (*sent[:3], confirmed, *sent[3:]):
            one.sendto(packet, (link.plan.group, link.plan.port))
    arrival = link.read(link.inputs[0])
    assert arrival is not None
    assert list(arrival.train.packets()) == [*sent, confirmed]
    [item, found], rejects = arrival.train.parse_scattered_untrusted()
    assert not rejects
    assert isinstance(item, DataWithGaps)
    assert isinstance(found, Nak)
    assert item.open_gaps(3)
    run = item.spread_run(5)
    assert arrival.train.octets_to_keep == run.octets
    assert [run.rows[sqn - 5].tobytes() for sqn in (5, 6, 8, 9, 12, 13)] == sent
    assert link.read(link.inputs[0]) is None


@pytest.mark.parametrize("seed", range(12))
def test_only_ncfs_are_given_later(link: Link, place: Place, seed: int) -> None:
    """All other packets keep the order of sending, and so do the NCFs; none comes early, and none is lost."""
    rng = random.Random(seed)
    link.has_single_consumer = True
    kinds = [
        lambda number: data_packet(number, bytes(80)),
        lambda number: ncf(number, *range(number + 1, number + rng.choice((1, 2, 30)))),
        lambda number: encode(
            Spm(tsi=TSI, data_port=DATA_PORT, spm_sqn=number, trail=1, lead=number, path_nla="10.0.0.1")
        ),
        lambda number: data_packet(number, bytes(rng.choice((40, 120)))),
    ]
    weights = rng.choice(([90, 5, 0, 0], [90, 6, 1, 2], [50, 50, 0, 0], [0, 90, 5, 5]))
    sent = [(rng.random() < 0.01, rng.choices(kinds, weights)[0](number)) for number in range(1, 400)]
    found = []
    with sender(place.address(1)) as one, sender(place.address(2)) as other:
        for at in range(0, len(sent), 100):
            for is_other, packet in sent[at : at + 100]:
                (other if is_other else one).sendto(packet, (link.plan.group, link.plan.port))
            found += [packet for _, _, cut in read_all(link, keep=True) for packet in cut]

    def places(packets: list[bytes], *, are_ncfs: bool) -> list[bytes]:
        return [packet for packet in packets if (packet[TYPE_AT] == PacketType.NCF) is are_ncfs]

    before = [packet for _, packet in sent]
    for are_ncfs in (False, True):
        assert places(found, are_ncfs=are_ncfs) == places(before, are_ncfs=are_ncfs)
    assert all(found.index(one) >= before.index(one) for one in places(before, are_ncfs=True))


@pytest.mark.parametrize("left", [2 * ROOM, 2 * ROOM + 500, 3 * ROOM - 1])
def test_packets_that_wait_are_read_together_wherever_a_chunk_ends(place: Place, left: int) -> None:
    """Single reads, none of them kept, would reuse one place for ever, and the socket would overflow."""
    plan = plan_node(loads(one_segment(place)), "desk-1")
    arena = Arena(8 * ROOM)
    arena.put(bytes(8 * ROOM - left))
    receiver = Link(plan.segments[0], 0, Parameters(gro=False), arena, None)
    receiver.has_single_consumer = True
    taken: list[bytes] = []

    def take(packet: bytes, _: str) -> bool:
        taken.append(packet)
        return True

    try:
        with sender(place.address(1)) as one:
            for packet in packets([1000] * 40):
                one.sendto(packet, (plan.segments[0].group, plan.segments[0].port))
        arrival = receiver.read(receiver.inputs[0], take=take)
    finally:
        receiver.close()
    assert taken == []
    assert arrival is not None
    assert arrival.train.count == 40


def ncf(*sqns: int) -> bytes:
    """Return an NCF that lists these sqns."""
    nlas = {"source_nla": "10.0.0.1", "group_nla": "239.192.0.1"}
    options = (NakList(sqns=sqns[1:]),) if sqns[1:] else NO_OPTIONS
    return encode(Nak(tsi=TSI, data_port=DATA_PORT, kind=PacketType.NCF, sqn=sqns[0], options=options, **nlas))


def test_read_gathering_shared_reads_are_not_moved(link: Link, place: Place) -> None:
    """Only a receiver's own link is the sole user of the memory it reads."""
    with sender(place.address(1)) as one:
        for sqn in (5, 7, 8):
            one.sendto(data_packet(sqn, bytes(80)), (link.plan.group, link.plan.port))
        arrival = link.read(link.inputs[0])
    assert arrival is not None
    [item], _ = arrival.train.parse_scattered_untrusted()
    assert isinstance(item, DataWithGaps)
    assert not item.open_gaps(8)
