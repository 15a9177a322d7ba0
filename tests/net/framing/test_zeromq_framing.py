"""ZeroMQ's framing from a source to receivers, over real multicast on loopback (INT-Z2 to INT-Z8)."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Batch, CloseCause, Closed, LossCause, Message, MultipartBatch, Opened
from pgm.core.window.reassembly import LargeMessage
from pgm.errors import PayloadTooLarge, SourceClosed, UsageError
from pgm.impairments import Impairment, Injector
from pgm.messages.zmtp import Parts
from pgm.net.endpoint.receiver import Receiver
from pgm.topology.load import loads
from pgm.wire.formats import PacketType
from pgm.wire.train import Data, Train, fragment_of
from tests.net.support.listening import PATIENCE_S, Got, take_messages
from tests.net.support.places import Place, one_segment
from tests.unit.messages import libzmq

SEGMENT = 1428  # octets that libzmq's receivers take in a packet, INT-Z6
BRISK = {"fin_quiet_ivl": "300ms", "ihb_min": "20ms", "rate": "400Mbit/s"}


def url(place: Place, **query: object) -> str:
    """Return an address on loopback in ZeroMQ's notation."""
    pairs = "&".join(f"{key}={value}" for key, value in {**BRISK, **query}.items())
    return f"epgm://lo;{place.group()}:{place.port}?{pairs}"


def source_url(place: Place, **query: object) -> str:
    return url(place, address=place.address(1), **query)


def messages(count: int, seed: int = 1) -> list[Parts]:
    """Return messages of one to four parts, most of them small, some of many packets."""
    rng = random.Random(seed)
    sizes = [0, 1, 5, 70, 70, 70, 252, 253, 254, 255, 1400, 1426, 5000]
    return [tuple(rng.randbytes(rng.choice(sizes)) for _ in range(rng.randint(1, 4))) for _ in range(count)]


@asynccontextmanager
async def taking(receiver: Receiver) -> AsyncIterator[Got]:
    """Receive while the block runs; the stream ends with the block."""
    got = Got()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_messages, receiver, got)
        yield got


async def test_messages_of_all_shapes_arrive_as_they_were_sent(place: Place) -> None:
    sent = messages(600)
    async with (
        pgm.open_receiver(url(place)) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place)) as source,
    ):
        sqns = [await source.send_parts(parts) for parts in sent]
    assert got.parts == sent
    assert [message.payload for message in got.messages] == [b"".join(parts) for parts in sent]
    assert [message.sqn for message in got.messages] == sqns
    assert [type(one) for one in got.events] == [Opened, Closed]
    assert got.messages[0] == Message(b"".join(sent[0]), 0, source.tsi, sent[0] if len(sent[0]) > 1 else ())


async def test_single_payloads_are_messages_of_one_part(place: Place) -> None:
    rows = np.arange(200 * 64, dtype=np.uint8).reshape(200, 64)
    async with (
        pgm.open_receiver(url(place)) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place)) as source,
    ):
        await source.send(b"first")
        await source.send_batch([b"", bytearray(b"second"), memoryview(b"third")])
        await source.send_batch(rows)
        assert source.try_send(b"last") >= 0
    payloads = [b"first", b"", b"second", b"third", *(row.tobytes() for row in rows), b"last"]
    assert got.parts == [(payload,) for payload in payloads]


async def test_zeromq_framing_single_message_leaves_at_once(place: Place) -> None:
    async with (
        pgm.open_receiver(url(place)) as receiver,
        pgm.open_source(source_url(place)) as source,
    ):
        with trio.fail_after(PATIENCE_S):
            assert isinstance(await receiver.next_batch(), Opened)
            for number in range(5):
                await source.send_parts([b"topic", b"%d" % number])
                batch = await receiver.next_batch()
                assert isinstance(batch, MultipartBatch)
                assert list(batch) == [(b"topic", b"%d" % number)]
                assert list(batch.sqns) == [number]


async def test_zeromq_framing_sends_above_the_rate_fill_packets(place: Place) -> None:
    """The 1,000 messages of 72 octets, with their frame, need 51 full packets and few that left early."""
    sent = [(b"%070d" % number,) for number in range(1000)]
    async with (
        pgm.open_receiver(url(place)) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place, rate="8Mbit/s")) as source,
    ):
        for parts in sent:
            await source.send_parts(parts)
        await source.flush()
        assert 51 <= source.counters.odata_packets <= 60
    assert got.parts == sent


async def test_flush_waits_for_the_packet_that_is_not_full(place: Place) -> None:
    async with pgm.open_source(source_url(place)) as source:
        for _ in range(30):
            await source.send(b"x" * 200)
        with trio.fail_after(PATIENCE_S):
            await source.flush()
        stream = source.counters.odata_octets - (24 + 2) * source.counters.odata_packets
        assert stream == 30 * 202


async def test_losses_are_repaired(place: Place) -> None:
    sent = messages(1500)
    async with (
        pgm.open_receiver(url(place, nak_bo_ivl="5ms")) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place, fin_quiet_ivl="2s")) as source,
    ):
        receiver.links[0].injector = Injector(Impairment(loss=0.05), "test")
        for parts in sent:
            await source.send_parts(parts)
    assert got.parts == sent
    assert receiver.counters.repaired_sqns > 20
    assert not got.lost


class Deaf(Injector):
    """Injector that loses every packet."""

    def __init__(self) -> None:
        super().__init__(Impairment(), "deaf")

    def draw(self, count: int) -> np.ndarray:
        return np.ones(count, np.bool_)


async def test_zeromq_framing_loss_is_reported_and_reading_goes_on(place: Place) -> None:
    """INT-Z7: only complete messages arrive, in order; packets without a message are reported, too."""
    sent = [(b"%08d" % number, *parts) for number, parts in enumerate(messages(3000))]
    async with (
        pgm.open_receiver(url(place, nak_ncf_retries=3, nak_rpt_ivl="5ms", nak_bo_ivl="2ms")) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place)) as source,
    ):
        source.links[0].injector = Deaf()
        receiver.links[0].injector = Injector(Impairment(burst_loss=0.03, burst_length=6), "test")
        for parts in sent:
            await source.send_parts(parts)
    assert {one.cause for one in got.lost} == {LossCause.RETRIES, LossCause.FRAGMENT}
    rest = iter(sent)
    assert all(parts in rest for parts in got.parts), "in order, whole, once"
    assert len(sent) // 2 < len(got.parts) < len(sent)
    lost = [sqn for one in got.lost for sqn in range(one.first, one.first + one.count)]
    assert lost == sorted(set(lost)), "in stream order, none twice"
    assert not {message.sqn for message in got.messages} & set(lost)


async def test_zeromq_framing_late_joiner_begins_at_next_message(place: Place) -> None:
    large = (b"topic", b"x" * 1_000_000)
    async with pgm.open_source(source_url(place, rate="80Mbit/s", join_ivl="0ns")) as source:
        for _ in range(5):
            await source.send_parts(large)
        with trio.fail_after(PATIENCE_S):
            while source.counters.odata_packets < 1000:  # noqa: ASYNC110 - a counter has no event
                await trio.sleep(0.001)
        async with pgm.open_receiver(url(place)) as receiver, taking(receiver) as got:
            await source.send_parts([b"the", b"end"])
            await source.aclose()
    assert got.parts == [*[large] * (len(got.parts) - 1), (b"the", b"end")]
    assert 2 <= len(got.parts) <= 5
    assert not got.lost


async def test_subscriptions_choose_by_the_beginning_of_the_first_part(place: Place) -> None:
    sent = [(b"EUR.%d" % at, b"1") if at % 3 else (b"USD.%d" % at, b"EUR") for at in range(300)]
    async with (
        pgm.open_receiver(url(place), subscribe=[b"EUR."]) as some,
        pgm.open_receiver(url(place), subscribe=[]) as none,
        taking(some) as got,
        taking(none) as nothing,
        pgm.open_source(source_url(place)) as source,
    ):
        for parts in sent:
            await source.send_parts(parts)
    assert got.parts == [parts for parts in sent if parts[0].startswith(b"EUR.")]
    assert not nothing.parts
    assert none.counters.delivered_packets == some.counters.delivered_packets > 0


async def test_subscriptions_change_while_it_runs(place: Place) -> None:
    async def exchange(count: int) -> list[bytes]:
        """Return the topics that arrive of one message each of a, b and an end."""
        for topic in (b"a", b"b") * count:
            await source.send_parts([topic, b""])
        await source.send_parts([b"end"])
        topics = []
        async for item in receiver:
            assert isinstance(item, Message)
            if item.parts == (b"end",):
                break
            topics.append(item.parts[0])
        return topics

    async with (
        pgm.open_receiver(url(place), subscribe=[b"end"]) as receiver,
        pgm.open_source(source_url(place)) as source,
    ):
        with trio.fail_after(PATIENCE_S):
            assert isinstance(await receiver.next_batch(), Opened)
            assert await exchange(1) == []
            receiver.subscribe(b"b")
            assert await exchange(1) == [b"b"]
            receiver.subscribe(b"")
            assert await exchange(1) == [b"a", b"b"]
            receiver.unsubscribe(b"")
            assert await exchange(2) == [b"b", b"b"]
            with pytest.raises(UsageError, match="not subscribed"):
                receiver.unsubscribe(b"a")


async def test_zeromq_framing_unsubscribe_filters_queued_messages(place: Place) -> None:
    async with (
        pgm.open_receiver(url(place), subscribe=[b"a", b"b"]) as receiver,
        pgm.open_source(source_url(place)) as source,
    ):
        await source.send_batch([b"a1", b"b1", b"a2", b"b2"])
        got = []
        with trio.fail_after(PATIENCE_S):
            async for item in receiver:
                if isinstance(item, Message):
                    got.append(item.payload)
                    if item.payload == b"a1":
                        receiver.unsubscribe(b"a")
                    if item.payload == b"b2":
                        break
    assert got == [b"a1", b"b1", b"b2"]


def test_without_trio(place: Place) -> None:
    with pgm.blocking.open_receiver(url(place), subscribe=[b"b"]) as receiver:
        receiver.subscribe(b"a")
        with pgm.blocking.open_source(source_url(place)) as source:
            source.send_parts([b"a", b"1"])
            source.send_batch([b"b2", b"a3", b"c4", b"a5", b"b6"])
            source.flush()
            got = []
            for item in receiver:
                if isinstance(item, Message):
                    got.append(item.parts)
                    if item.parts == (b"b2",):
                        receiver.unsubscribe(b"a")
                    if item.parts == (b"b6",):
                        break
    assert got == [(b"a", b"1"), (b"b2",), (b"b6",)]


async def test_a_stream_of_a_topology_file_may_have_the_framing(place: Place) -> None:
    topology = loads(one_segment(place).replace("data_port = 7500", 'data_port = 7500\nframing = "zeromq"'))
    sent = messages(100)
    async with (
        pgm.open_receiver(topology, node="desk-1", subscribe=[b""]) as receiver,
        taking(receiver) as got,
        pgm.open_source(topology, node="source") as source,
    ):
        for parts in sent:
            await source.send_parts(parts)
    assert got.parts == sent


async def test_zeromq_framing_other_streams_refuse_parts_and_topics(place: Place) -> None:
    async with (
        pgm.open_receiver(place.url()) as receiver,
        pgm.open_source(place.url(address=place.address(1)), fin_quiet_ivl="50ms") as source,
    ):
        with pytest.raises(UsageError, match="messages of several parts"):
            await source.send_parts([b"a", b"b"])
        with pytest.raises(UsageError, match="subscriptions"):
            receiver.subscribe(b"a")
        await source.send(b"payload")
        with trio.fail_after(PATIENCE_S):
            assert isinstance(await receiver.next_batch(), Opened)
            batch = await receiver.next_batch()
        assert isinstance(batch, Batch)
        assert Message(b"payload", 0, source.tsi).parts == (b"payload",)
    with pytest.raises(UsageError, match="subscriptions"):
        async with pgm.open_receiver(place.url(address=place.address(9)), subscribe=[b"a"]):
            pass


async def test_misuse_of_a_source_is_refused_and_nothing_of_it_is_sent(place: Place) -> None:
    async with (
        pgm.open_receiver(url(place)) as receiver,
        taking(receiver) as got,
        pgm.open_source(source_url(place), max_apdu="1000B") as source,
    ):
        with pytest.raises(PayloadTooLarge, match="2 parts and 1064 octets"):
            await source.send_parts([b"x" * 500, b"x" * 500])
        with pytest.raises(ValueError, match="at least one part"):
            await source.send_parts([])
        with pytest.raises(ValueError, match="not octets"):
            await source.send_parts([memoryview(struct.pack("2I", 1, 2)).cast("I")])
        await source.send_parts([b"x" * 1000])
        await source.aclose()
        with pytest.raises(SourceClosed):
            await source.send_parts([b"late"])
    assert got.parts == [(b"x" * 1000,)]


async def test_a_window_that_holds_no_packet_is_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="holds no packet"):
        async with pgm.open_source(source_url(place), txw_bytes="4B"):
            pass
    async with pgm.open_source(source_url(place), fin_quiet_ivl="50ms"):
        pass  # nothing was left open


async def test_a_source_left_by_an_exception_cuts_the_stream_short(place: Place) -> None:
    async def send_and_fail() -> None:
        async with pgm.open_source(source_url(place, rate="1Mbit/s")) as source:
            for _ in range(300):
                await source.send(b"x" * 300)
            _ = 1 / 0

    async with pgm.open_receiver(url(place)) as receiver, taking(receiver) as got:
        with pytest.raises(ZeroDivisionError):
            await send_and_fail()
    assert isinstance(got.events[-1], Closed)
    assert got.events[-1].cause is CloseCause.RESET
    assert len(got.parts) < 300


async def test_packets_of_another_framing_are_counted_and_reported(place: Place) -> None:
    """A plain source on the same group and port: no packet of it becomes a message, and no call raises."""
    plain = place.url(data_port=place.port, address=place.address(1), fin_quiet_ivl="300ms")
    async with pgm.open_receiver(url(place)) as receiver, taking(receiver) as got, pgm.open_source(plain) as source:
        await source.send_batch([b"\0\0\0", b"\0", b"", b"\xff\xfenothing", b"x" * 5000])
        await source.send(b"\0\0\3\0ab")
    assert got.parts == [(b"ab",)]
    malformed = [one for one in got.lost if one.cause is LossCause.MALFORMED]
    assert sum(one.count for one in malformed) == receiver.counters.framing_rejects == 5


def listen(place: Place) -> socket.socket:
    """Join the group with a socket that sees what any receiver sees."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((place.group(), place.port))
    member = socket.inet_aton(place.group()) + socket.inet_aton("127.0.0.1")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    sock.setblocking(False)
    return sock


@pytest.mark.parametrize("seed", range(2))
async def test_no_octet_that_makes_libzmq_abort_is_ever_sent(place: Place, seed: int) -> None:
    """INT-Z8, on the wire: no data packet can make libzmq abort, whatever an application sends.

    No packet is empty, shorter than its offset, in fragments, or larger than libzmq's segment. No offset points outside
    of the packet. The same holds for RDATA.
    """
    rng = random.Random(seed)
    sent: list[Parts] = []
    packets: dict[int, bytes] = {}
    kinds = set()
    with listen(place) as sock:

        def drain() -> None:
            while True:
                try:
                    packet = sock.recv(65_536)
                except BlockingIOError:
                    return
                (item,), _ = Train.of(packet).parse_untrusted()
                if isinstance(item, Data):
                    run = item.run(item.wire_sqn)
                    kinds.add(item.type)
                    assert fragment_of(run) is None
                    packets[run.first] = run.payloads.tobytes()

        async with (
            pgm.open_receiver(url(place, nak_bo_ivl="5ms")) as receiver,
            taking(receiver) as got,
            pgm.open_source(source_url(place, rate="80Mbit/s", fin_quiet_ivl="1s")) as source,
        ):
            receiver.links[0].injector = Injector(Impairment(loss=0.1), str(seed))
            for _ in range(20):
                more = messages(rng.randint(0, 20), rng.randrange(1 << 30))
                if rng.random() < 0.5:
                    for parts in more:
                        await source.send_parts(parts)
                else:
                    more = [parts[:1] for parts in more]
                    await source.send_batch([parts[0] for parts in more])
                sent += more
                if rng.random() < 0.5:
                    await source.flush()
                drain()
            await source.flush()
        drain()
    assert got.parts == sent
    assert {PacketType.ODATA, PacketType.RDATA} <= kinds
    assert sorted(packets) == list(range(len(packets)))
    assert all(3 <= len(packet) <= SEGMENT for packet in packets.values())
    for begin in range(0, len(packets), max(1, len(packets) // 8)):
        peer = libzmq.Receiver(SEGMENT)  # raises where libzmq would abort
        for sqn in range(begin, len(packets)):
            peer.add(packets[sqn])
        assert peer.messages == sent[len(sent) - len(peer.messages) :]
        assert begin or peer.messages == sent


def test_a_packet_in_fragments_is_a_packet_all_the_same() -> None:
    """No libzmq sends fragments, but a complete packet in fragments is read."""
    from pgm.messages.decoder import Decoder
    from pgm.messages.zmtp import Packer
    from pgm.net.framing.items import batch_of

    packer = Packer(60_000)
    packer.add([(b"x" * 50_000,)])
    batch = batch_of(LargeMessage(b"x" * 8, 7, 40, packer.take_rest()))
    (found,) = Decoder(1 << 20).add(batch.first_sqn, batch.payloads)
    assert found.messages == [(b"x" * 50_000,)]
