"""Streams with batches from sources to receivers, over real multicast on loopback.

The tests cover shared packets, subjects, destination nodes and losses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pyarrow as pa
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Closed, LossCause, Message, Opened
from pgm.errors import PayloadTooLarge, SourceClosed, UsageError
from pgm.messages.objects import ARROW
from pgm.net.control.status_socket import snapshot_of
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.packed_batch import PackedBatch
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.topology.plan import plan_node
from tests.net.support.listening import PATIENCE_S, Got, take_messages
from tests.net.support.places import Place, one_segment


def topology(place: Place, **options: str) -> Topology:
    return loads(one_segment(place, **options).replace("data_port = 7500", 'data_port = 7500\nframing = "batch"'))


@asynccontextmanager
async def taking(*receivers: Receiver) -> AsyncIterator[list[Got]]:
    """Receive while the block runs; the stream ends with the block."""
    found = [Got() for _ in receivers]
    async with trio.open_nursery() as nursery:
        for receiver, got in zip(receivers, found, strict=True):
            nursery.start_soon(take_messages, receiver, got)
        yield found


async def sent_packets(source: Source, count: int) -> None:
    """Wait until `count` packets have left."""
    while source.counters.odata_packets < count:  # noqa: ASYNC110 - a counter has no event
        await trio.sleep(0.001)


def random_messages(count: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice([0, 1, 7, 70, 70, 70, 1400, 1500, 10_000])) for _ in range(count)]


async def test_batches_single_sends_share_packets_in_order(place: Place) -> None:
    sent = random_messages(800)
    tree = topology(place)
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        taking(receiver) as [got],
        pgm.open_source(tree, node="source", stream="s") as source,
    ):
        sqns = [await source.send(payload, subject="/a/b") for payload in sent]
    assert got.payloads == sent
    assert [message.sqn for message in got.messages] == sqns
    assert {message.subject for message in got.messages} == {"/a/b"}
    assert source.counters.messages_sent == receiver.counters.messages_received == len(sent)
    assert [type(one) for one in got.events] == [Opened, Closed]


async def test_status_has_the_messages_of_each_subject_at_both_ends(place: Place) -> None:
    """Large calls, small calls and single messages are counted alike; a receiver counts those that it delivers."""
    tree, sizes = topology(place), np.zeros((300, 8), np.uint8)
    async with (
        pgm.open_receiver(tree, node="desk-1", subjects=["/a/..."]) as receiver,
        taking(receiver) as [got],
        pgm.open_source(tree, node="source") as source,
    ):
        await source.send_batch(sizes, subject=(["/a/b", "/a/c", "/d"], np.arange(300) % 3))
        await source.send_batch(sizes, subject="/a/b")
        await source.send_batch([b"1", b"2", b"3"], subject=["/a/c", None, "/d"])
        await source.send(b"4", subject="/a/c", flush=True)
    sent, taken = (
        snapshot_of(plan_node(tree, node), end.driver, 0)["subjects"]["s"]
        for node, end in (("source", source), ("desk-1", receiver))
    )
    assert sent == {"/a/b": 400, "/a/c": 102, "/d": 101, "none": 1}
    assert taken == {"/a/b": 400, "/a/c": 102} == Counter(message.subject for message in got.messages)


async def test_losses_are_repaired_and_large_messages_come_in_fragments(place: Place) -> None:
    sent = [*random_messages(2000, seed=2), random.Random(3).randbytes(1_000_000)]
    tree = topology(place, loss='{ loss = "5%" }')
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        taking(receiver) as [got],
        pgm.open_source(tree, node="source") as source,
    ):
        for at in range(0, len(sent), 100):
            await source.send_batch(sent[at : at + 100])
    assert not got.lost, (got.lost, got.events)
    assert got.payloads == sent, (got.events, receiver.counters.snapshot(), source.counters.snapshot())
    assert receiver.counters.repaired_sqns > 0
    assert source.counters.messages_sent == receiver.counters.messages_received == len(sent)


@pytest.mark.parametrize("form", ["list", "numpy", "binary", "fixed", "chunked"])
async def test_batches_are_taken_in_every_form(place: Place, form: str) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (5000, 70), np.uint8)
    sent = [row.tobytes() for row in rows]
    names = [f"/q/{number % 7}" for number in range(5000)]
    places = np.arange(5000) % 7
    table = [f"/q/{number}" for number in range(7)]
    batch, subject = {
        "list": (sent, names),
        "numpy": (rows, (table, places)),
        "binary": (pa.array(sent, pa.binary()), pa.array(names)),
        "fixed": (pa.array(sent, pa.binary(70)), pa.array(names).dictionary_encode()),
        "chunked": (pa.chunked_array([pa.array(sent[:9]), pa.array(sent[9:])]), names),
    }[form]
    tree = topology(place)
    batches: list[PackedBatch] = []
    async with (
        pgm.open_receiver(tree, node="desk-1", subjects=["/q/*"]) as receiver,
        pgm.open_source(tree, node="source") as source,
    ):
        await source.send_batch(batch, subject=subject)
        with trio.fail_after(PATIENCE_S):
            async for item in receiver.batches():
                if isinstance(item, PackedBatch):
                    batches.append(item)
                    if sum(map(len, batches)) == len(sent):
                        break
    assert [payload for one in batches for payload in one] == sent
    assert [name for one in batches for name in one.subjects_of_all()] == names
    assert source.counters.odata_packets < 300
    tables = pa.concat_tables([one.table() for one in batches]).to_pydict()
    assert tables["payload"] == sent
    assert tables["subject"] == names
    first = batches[0]
    assert first[3].tobytes() == sent[3]
    assert first.payloads[2].tobytes() == sent[2]
    assert first.subject(4) == names[4]


async def test_subscriptions_come_and_go_while_messages_come(place: Place) -> None:
    tree = topology(place)
    async with (
        pgm.open_receiver(tree, node="desk-1", subjects=["/a/*"]) as receiver,
        pgm.open_source(tree, node="source") as source,
    ):
        with trio.fail_after(PATIENCE_S):
            assert isinstance(await receiver.next_batch(), Opened)

            async def next_payloads(*marks: bytes) -> list[bytes]:
                for number, mark in enumerate(marks):
                    subject = ["/a/x", "/b/x", "/a/x/y"][number % 3]
                    await source.send(mark, subject=subject)
                await source.send(b"end", subject="/a/end")
                found = []
                while not found or found[-1] != b"end":
                    item = await receiver.next_batch()
                    assert isinstance(item, PackedBatch)
                    found += list(item)
                return found

            assert await next_payloads(b"1", b"2", b"3") == [b"1", b"end"]
            wild = receiver.subscribe("/b/...", tag="bee")
            assert [one.tag for one in receiver.matching("/b")] == ["bee"]
            assert await next_payloads(b"1", b"2", b"3") == [b"1", b"2", b"end"]
            receiver.unsubscribe(wild)
            assert await next_payloads(b"1", b"2", b"3") == [b"1", b"end"]
    assert receiver.counters.messages_skipped == 5


async def test_messages_for_one_node_are_skipped_by_the_others(place: Place) -> None:
    tree = topology(place)
    to = [None, "desk-1", "desk-2", "desk-3"] * 500
    sent = [b"%d" % number for number in range(len(to))]
    async with (
        pgm.open_receiver(tree, node="desk-1") as one,
        pgm.open_receiver(tree, node="desk-2") as two,
        taking(one, two) as [first, second],
        pgm.open_source(tree, node="source") as source,
    ):
        await source.send_batch(sent, to=to)
        await source.send(b"alone", to="desk-2")
    assert first.payloads == [text for text, node in zip(sent, to, strict=True) if node in (None, "desk-1")]
    assert second.payloads == [text for text, node in zip(sent, to, strict=True) if node in (None, "desk-2")] + [
        b"alone"
    ]
    assert one.counters.messages_skipped == 1001


async def test_a_message_waits_for_others_only_while_many_packets_leave(place: Place) -> None:
    tree = topology(place)
    async with pgm.open_source(tree, node="source", flush_ivl="200ms", flush_rte=1) as source:
        await source.send(b"the first leaves at once")
        with trio.fail_after(PATIENCE_S):
            await sent_packets(source, 1)
            for number in range(10):
                await source.send(b"%d" % number)
            assert source.counters.odata_packets == 1
            begun = trio.current_time()
            await sent_packets(source, 2)
            assert trio.current_time() - begun < 5
            assert source.counters.odata_packets == 2
            await source.send(b"waits")
            await source.send(b"and goes", flush=True)
            await source.flush()
            assert source.counters.odata_packets == 3


async def test_batches_sends_above_the_rate_fill_packets(place: Place) -> None:
    tree = topology(place, rate="8Mbit/s")
    async with pgm.open_source(tree, node="source") as source:
        for _ in range(2000):
            await source.send(b"x" * 70, flush=True)
        await source.flush()
        assert source.counters.odata_packets < 300
        assert source.try_send(b"more") is not None


async def test_batches_bad_subjects_and_sizes_are_refused_unsent(place: Place) -> None:
    tree = topology(place, parameters='max_apdu = "1MiB"')
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        taking(receiver) as [got],
        pgm.open_source(tree, node="source") as source,
    ):
        for name in ("a", "/a/*", "/...", ""):
            with pytest.raises(UsageError, match="is no subject"):
                await source.send(b"x", subject=name)
            with pytest.raises(UsageError, match="is no subject"):
                await source.send_batch([b"x"], subject=name)
        with pytest.raises(UsageError, match="is no name of a node"):
            await source.send(b"x", to="")
        with pytest.raises(UsageError, match="2 subjects for 1 messages"):
            await source.send_batch([b"x"], subject=["/a", "/b"])
        with pytest.raises(UsageError, match="is no message"):
            await source.send_batch(["text"])
        with pytest.raises(UsageError, match="is no batch"):
            await source.send_batch(np.zeros(3))
        with pytest.raises(PayloadTooLarge):
            await source.send(b"x" * (1 << 20))
        with pytest.raises(PayloadTooLarge):
            await source.send_batch([b"x", b"x" * (1 << 20)])
        with pytest.raises(UsageError, match="several parts"):
            await source.send_parts([b"a", b"b"])
        await source.send(b"y" * source.max_apdu)
        await source.send(b"good")
    assert [len(payload) for payload in got.payloads] == [source.max_apdu, 4]
    with pytest.raises(SourceClosed):
        await source.send(b"late")


async def test_streams_without_batches_have_no_subjects(place: Place) -> None:
    tree = loads(one_segment(place))
    async with pgm.open_source(tree, node="source") as source:
        with pytest.raises(UsageError, match='framing = "batch"'):
            await source.send(b"x", subject="/a")
        with pytest.raises(UsageError, match='framing = "batch"'):
            await source.send_batch([b"x"], to="desk-1")
    with pytest.raises(UsageError, match='framing = "batch"'):
        async with pgm.open_receiver(tree, node="desk-1", subjects=["/a"]):
            pass


async def test_batches_bad_packets_are_counted_and_reported(place: Place) -> None:
    plain, tree = loads(one_segment(place)), topology(place)
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        taking(receiver) as [got],
        pgm.open_source(plain, node="source") as source,
    ):
        await source.send(b"no batch")
        await source.send(b"x" * 5000)
        await source.send(b"\xa4avaAanaAdsizeaCddataCabc")
        await source.send(b"\xa4avaa")
        await source.send(b"\xa4av\x01an\x01dsize\x03ddataCabc")
    assert got.payloads == [b"abc"]
    assert {one.cause for one in got.lost} == {LossCause.MALFORMED}
    assert sum(one.count for one in got.lost) == receiver.counters.framing_rejects == 7


def test_busy_polling_sends_and_receives_batches(place: Place) -> None:
    tree = topology(place)
    with (
        pgm.blocking.open_receiver(tree, node="desk-1", subjects=["/a/..."]) as receiver,
        pgm.blocking.open_source(tree, node="source", busy_poll=True) as source,
    ):
        source.send(b"one", subject="/a")
        source.send_batch([b"two", b"three"], subject=["/a/b", "/b"])
        found: list[bytes] = []
        while len(found) < 2:
            item = receiver.recv(PATIENCE_S)
            assert item is not None
            if isinstance(item, Message):
                found.append(item.payload)
    assert found == [b"one", b"two"]


@pytest.mark.parametrize("rate", ["400Mbit/s", "40Mbit/s"])
def test_many_at_once_are_sent_and_taken_by_busy_polling(place: Place, rate: str) -> None:
    """Both ends are in one thread, with losses, and with a rate that makes a call wait within its messages."""
    tree = topology(place, loss='{ loss = "2%" }', rate=rate)
    rows = np.random.default_rng(2).integers(0, 256, (4000, 70), np.uint8)
    table, places = [f"/q/{number}" for number in range(7)], np.arange(4000) % 7
    calls, found, names = (4000, 3999, 3, 20, 1, 2000), [], []
    with (
        pgm.blocking.open_receiver(tree, node="desk-1", subjects=["/q/*"], busy_poll=True) as receiver,
        pgm.blocking.open_source(tree, node="source", busy_poll=True) as source,
    ):
        for count in calls:
            source.send_batch(rows[:count], subject=(table, places[:count]))
            assert source.sessions[0].next_sqn == source.sessions[0].lead + 1  # with the kernel when the call returns
        while sum(map(len, found)) < sum(calls):
            item = receiver.next_batch(PATIENCE_S)
            assert item is not None
            if isinstance(item, PackedBatch):
                found.append(item)
                names += item.subjects_of_all()
    assert b"".join(one.octets.tobytes() for one in found) == b"".join(rows[:count].tobytes() for count in calls)
    assert names == [table[at] for count in calls for at in places[:count]]


@pytest.mark.parametrize("order", ["unordered", "unreliable"])
async def test_streams_that_are_delivered_as_they_arrive(place: Place, order: str) -> None:
    text = one_segment(place, loss='{ loss = "5%" }')
    tree = loads(text.replace("data_port = 7500", f'data_port = 7500\nframing = "batch"\norder = "{order}"'))
    sent = random_messages(2000, seed=5)
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        taking(receiver) as [got],
        pgm.open_source(tree, node="source") as source,
    ):
        await source.send_batch([b"%d " % number + payload for number, payload in enumerate(sent)])
    assert len(set(got.payloads)) == len(got.payloads)
    assert set(got.payloads) <= {b"%d " % number + payload for number, payload in enumerate(sent)}
    if order == "unordered":
        assert len(got.payloads) == len(sent)
        assert got.payloads != sorted(got.payloads, key=lambda payload: int(payload.split()[0]))
        return
    assert receiver.counters.nak_packets == 0
    assert {one.cause for one in got.lost} == {LossCause.UNREPAIRED, LossCause.FRAGMENT}
    assert receiver.counters.lost_sqns == sum(one.count for one in got.lost if one.cause is LossCause.UNREPAIRED) > 0


@pytest.mark.parametrize("framing", ["plain", "batch"])
async def test_values_are_sent_and_received_and_what_is_none_is_told(place: Place, framing: str) -> None:
    tree = loads(one_segment(place).replace("data_port = 7500", f'data_port = 7500\nframing = "{framing}"'))
    values = [1, "text", b"octets", {"price": 12.5, "sizes": [1, 2, {"deep": None}]}, [], None]
    found: list[pgm.Object] = []
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        pgm.open_source(tree, node="source") as source,
    ):
        for value in values:
            await source.send_object(value)
        for bad in (b"", b"\x9f" * 5000, b"\xd8\x1c\x81\xd8\x1d\x00", b"\xc5\x82\x1b" + b"\xff" * 8 + b"\x01", b"\xa1"):
            await source.send(bad)
        await source.send_object("good", flush=True)
        with pytest.raises(UsageError, match="that CBOR does not know"):
            await source.send_object(object())
        with trio.fail_after(PATIENCE_S):
            async for item in receiver.objects():
                if isinstance(item, pgm.Object):
                    found.append(item)
                    if item.value == "good":
                        break
    assert [one.value for one in found if not one.error] == [*values, "good"]
    assert receiver.counters.object_rejects == 5


async def test_arrow_tables_are_sent_and_received(place: Place) -> None:
    tree = topology(place)
    table = pa.table({"price": [1.5, 2.5], "symbol": ["a", "b"]})
    async with (
        pgm.open_receiver(tree, node="desk-1") as receiver,
        pgm.open_source(tree, node="source") as source,
    ):
        await source.send_object(table, codec=ARROW, subject="/tables")
        await source.send(b"no table", flush=True)
        with pytest.raises(UsageError, match="is no Arrow table"):
            await source.send_object({}, codec=ARROW)
        with trio.fail_after(PATIENCE_S):
            found = []
            async for item in receiver.objects(ARROW):
                if isinstance(item, pgm.Object):
                    found.append(item)
                    if item.error:
                        break
    assert found[0].value == table
    assert found[0].subject == "/tables"
    assert len(found) == 2
