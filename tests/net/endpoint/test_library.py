"""The library as applications use it, over real multicast on loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import trio

import pgm
from pgm import Batch, CloseCause, Closed, Message, Opened
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S, Taken, take_all, taking
from tests.net.support.opened import SIZES, messages_of_sizes, open_all
from tests.net.support.places import Place, one_segment


async def test_by_file_every_size_arrives_whole_and_in_order(tmp_path: Path, place: Place) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place))
    sent = messages_of_sizes(SIZES)
    async with (
        pgm.open_receiver(file, node="desk-1", stream="s") as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(str(file), node="source", stream="s") as source,
    ):
        first = [await source.send(message) for message in sent]
    assert taken.messages == sent
    assert taken.causes == [CloseCause.FIN]
    assert [type(one) for one in taken.events] == [Opened, Closed]
    assert taken.opened[0].first == first[0] == 0
    assert taken.opened[0].peer == place.address(1)
    assert taken.closed[0].next_sqn == source.counters.odata_packets == taken.counters.delivered_packets


async def test_by_url_without_a_file(place: Place) -> None:
    sent = messages_of_sizes([10, 0, 5000, 1400])
    async with (
        pgm.open_receiver(place.url()) as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(place.url(address=place.address(1)), fin_quiet_ivl="200ms") as source,
    ):
        for message in sent:
            await source.send(message)
    assert taken.messages == sent
    assert taken.causes == [CloseCause.FIN]


async def test_items_one_by_one(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([5, 5, 0, 0, 3000, 5])
    got: list[object] = []
    async with (
        pgm.open_receiver(topology, node="desk-1") as receiver,
        trio.open_nursery() as nursery,
    ):

        async def take() -> None:
            async for item in receiver:
                got.append(item)
                if isinstance(item, Closed):
                    break

        nursery.start_soon(take)
        async with pgm.open_source(topology, node="source") as source:
            first = [await source.send(message) for message in sent]
    messages = [one for one in got if isinstance(one, Message)]
    assert [one.payload for one in messages] == sent
    assert [one.sqn for one in messages] == first
    assert {one.tsi for one in messages} == {source.tsi}


async def test_batches_of_lists_and_arrays(place: Place) -> None:
    rows = np.arange(200 * 64, dtype=np.uint8).reshape(200, 64)
    mixed: list[object] = [b"bytes", bytearray(b"bytearray"), memoryview(b"view"), rows[3]]
    async with AsyncExitStack() as stack:
        (receiver,) = await open_all(stack, place, 1)
        (taken,) = await stack.enter_async_context(taking(receiver))
        source = await stack.enter_async_context(pgm.open_source(loads(one_segment(place)), node="source"))
        assert await source.send_batch(rows) == 0
        assert await source.send_batch([]) == 200
        assert await source.send_batch(np.empty((0, 10), np.uint8)) == 200
        assert await source.send_batch(mixed) == 200  # type: ignore[arg-type]
        assert await source.send_batch(rows[::-2]) == 204
        assert await source.send_batch(np.zeros((3, 0), np.uint8)) == 304
        await source.flush()
        assert source.counters.odata_packets == 307
    wanted = [row.tobytes() for row in rows] + [b"bytes", b"bytearray", b"view", rows[3].tobytes()]
    wanted += [row.tobytes() for row in rows[::-2]] + [b""] * 3
    assert taken.messages == wanted


async def test_library_send_copies_the_callers_buffer(place: Place) -> None:
    async with AsyncExitStack() as stack:
        (receiver,) = await open_all(stack, place, 1)
        (taken,) = await stack.enter_async_context(taking(receiver))
        source = await stack.enter_async_context(pgm.open_source(loads(one_segment(place)), node="source"))
        buffer, rows = bytearray(b"before"), np.ones((10, 100), np.uint8)
        large = bytearray(b"x" * 50_000)
        await source.send(buffer)
        await source.send_batch(rows)
        await source.send(large)
        buffer[:] = b"after!"
        rows[:] = 2
        large[:] = b"y" * 50_000
    assert taken.messages == [b"before"] + [b"\1" * 100] * 10 + [b"x" * 50_000]


async def test_several_receivers_get_the_same(place: Place) -> None:
    sent = messages_of_sizes([1400] * 2000 + [20_000] * 20)
    async with AsyncExitStack() as stack:
        receivers = await open_all(stack, place, 5)
        found = await stack.enter_async_context(taking(*receivers))
        source = await stack.enter_async_context(pgm.open_source(loads(one_segment(place)), node="source"))
        for at in range(0, len(sent), 50):
            await source.send_batch(sent[at : at + 50])
    for taken in found:
        assert taken.messages == sent
        assert taken.causes == [CloseCause.FIN]


async def test_two_sources_on_one_stream(place: Place) -> None:
    topology = loads(one_segment(place, sources=2))
    sent = {"source": messages_of_sizes([900] * 500, 1), "source-2": messages_of_sizes([70] * 900, 2)}
    tsis: dict[str, bytes] = {}
    async with pgm.open_receiver(topology, node="desk-1") as receiver, taking(receiver, streams=2) as (taken,):

        async def publish(node: str) -> None:
            async with pgm.open_source(topology, node=node) as source:
                tsis[node] = source.tsi
                for at in range(0, len(sent[node]), 7):
                    await source.send_batch(sent[node][at : at + 7])
                    await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for node in sent:
                nursery.start_soon(publish, node)
    assert {node: taken.payloads[tsis[node]] for node in sent} == sent
    assert taken.causes == [CloseCause.FIN, CloseCause.FIN]
    assert {one.peer for one in taken.opened} == {place.address(1), place.address(2)}


async def test_library_late_joiner_gets_everything_from_there_on(place: Place) -> None:
    topology = loads(one_segment(place, parameters='join_ivl = "0ns"'))
    before, after = messages_of_sizes([100] * 300, 1), messages_of_sizes([100] * 300, 2)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        await source.send_batch(before)
        await source.flush()
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1"))
        with trio.fail_after(PATIENCE_S):
            opened = await receiver.next_batch()
        assert isinstance(opened, Opened)
        assert opened.first == len(before)
        (taken,) = await stack.enter_async_context(taking(receiver))
        await source.send_batch(after)
        await source.aclose()
    assert taken.messages == after
    assert not taken.lost


async def test_library_early_joiner_gets_all(place: Place) -> None:
    topology = loads(one_segment(place, parameters='join_ivl = "20s"'))
    sent = messages_of_sizes([100] * 300)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        await source.send_batch(sent)
        await source.flush()
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1"))
        (taken,) = await stack.enter_async_context(taking(receiver))
        await source.aclose()
    assert taken.opened[0].first == 0
    assert taken.messages == sent


async def test_kept_batches_stay_what_they_were(place: Place) -> None:
    """A batch is a view of receive memory; that memory is not reused while the view exists."""
    sent = np.random.default_rng(1).integers(0, 256, (5000, 1000), dtype=np.uint8)
    kept: list[Batch] = []
    async with AsyncExitStack() as stack:
        (receiver,) = await open_all(stack, place, 1)
        source = await stack.enter_async_context(pgm.open_source(loads(one_segment(place)), node="source"))
        for at in range(0, 5000, 500):
            await source.send_batch(sent[at : at + 500])
            while sum(map(len, kept)) < at + 500:
                with trio.fail_after(PATIENCE_S):
                    item = await receiver.next_batch()
                if isinstance(item, Batch):
                    kept.append(item)
    assert np.array_equal(np.concatenate([batch.payloads for batch in kept]), sent)


async def test_a_receiver_outlives_its_sources(place: Place) -> None:
    """Each opening is a new session, and one receiver takes them in turn."""
    topology = loads(one_segment(place))
    async with pgm.open_receiver(topology, node="desk-1") as receiver:
        for turn in range(3):
            taken = Taken()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take_all, receiver, 1, taken)
                async with pgm.open_source(topology, node="source") as source:
                    await source.send(b"%d" % turn)
            assert taken.payloads == {source.tsi: [b"%d" % turn]}


async def test_several_tasks_may_send_and_flush_at_once(place: Place) -> None:
    topology = loads(one_segment(place, rate="80Mbit/s", parameters='txw_unsent_bytes = "64KiB"'))
    async with (
        pgm.open_receiver(topology, node="desk-1") as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(topology, node="source") as source,
    ):

        async def publish(number: int) -> None:
            for _ in range(60):
                await source.send(bytes([number]) * 10_000)

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(publish, number)
                await source.flush()
                nursery.start_soon(source.flush)
    assert sorted(taken.messages) == sorted(bytes([number]) * 10_000 for number in range(4) for _ in range(60))
