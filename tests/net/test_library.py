"""The library as applications use it, over real multicast on loopback."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Batch, CloseCause, Closed, LossCause, Message, Opened
from pgm.impairments import Impairment, Injector
from pgm.net.receiver import Receiver
from pgm.topology.load import loads
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_node
from tests.net.listening import PATIENCE_S, Taken, take_all, taking
from tests.net.places import Place, one_segment

SIZES = [0, 1, 7, 8, 70, 1000, 1400, 1440, 1441, 1448, 1449, 2000, 2900, 10_000, 65_536, 100_001, 1_000_000, 0, 3]


def messages_of_sizes(sizes: list[int], seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


def planned(place: Place, node: str, **options: str) -> NodePlan:
    return plan_node(loads(one_segment(place, **options)), node)


def injector(loss: float) -> Injector:
    return Injector(Impairment(loss=loss), "test")


async def open_all(stack: AsyncExitStack, place: Place, count: int, **parameters: object) -> list[Receiver]:
    topology = loads(one_segment(place))
    nodes = [f"desk-{number}" for number in range(1, count + 1)]
    return [await stack.enter_async_context(pgm.open_receiver(topology, node=node, **parameters)) for node in nodes]


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


async def test_a_source_by_url_without_an_address_is_asked_for_repairs(place: Place) -> None:
    sent = messages_of_sizes([1000] * 500)
    url = place.url()
    async with (
        pgm.open_receiver(url) as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(url, fin_quiet_ivl="300ms") as source,
    ):
        receiver.links[0].injector = injector(0.1)
        await source.send_batch(sent)
    assert taken.messages == sent
    assert taken.counters.repaired_sqns > 0


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


async def test_what_the_caller_does_with_its_buffer_afterwards_does_not_matter(place: Place) -> None:
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


async def test_who_joins_late_gets_everything_from_there_on(place: Place) -> None:
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


async def test_who_joins_soon_after_the_start_still_gets_all(place: Place) -> None:
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


async def test_a_source_left_by_an_exception_tells_its_receivers(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = messages_of_sizes([100] * 50)

    async def send_and_fail() -> None:
        async with pgm.open_source(topology, node="source") as source:
            await source.send_batch(sent)
            await source.flush()
            _ = 1 / 0

    async with pgm.open_receiver(topology, node="desk-1") as receiver, taking(receiver) as (taken,):
        with pytest.raises(ZeroDivisionError):
            await send_and_fail()
    assert taken.messages == sent
    assert taken.causes == [CloseCause.RESET]


async def test_a_receiver_left_by_an_exception_passes_it_on_as_it_is(place: Place) -> None:
    with pytest.raises(ZeroDivisionError):
        async with pgm.open_receiver(loads(one_segment(place)), node="desk-1"):
            _ = 1 / 0


def open_files() -> set[str]:
    """What this process has open, sockets by their inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the listing's own
    return {one for one in found if one.startswith("socket:")}


async def test_cancelling_leaves_no_task_and_no_socket_behind(place: Place) -> None:
    topology = loads(one_segment(place))
    files, tasks = open_files(), trio.lowlevel.current_statistics().tasks_living
    is_busy = trio.Event()

    async def publish() -> None:
        async with pgm.open_source(topology, node="source") as source:
            while True:
                await source.send(bytes(1400))

    async def listen() -> None:
        async with pgm.open_receiver(topology, node="desk-1") as receiver:
            async for item in receiver:
                if isinstance(item, Message):
                    is_busy.set()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(publish)
            await is_busy.wait()
            assert len(open_files()) == len(files) + 4
            nursery.cancel_scope.cancel()
    assert open_files() == files
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_cancelled_send_has_sent_whole_messages_or_none(place: Place) -> None:
    topology = loads(one_segment(place, rate="8Mbit/s", parameters='txw_unsent_bytes = "64KiB"'))
    message = bytes(30_000)
    sent = 0
    async with (
        pgm.open_receiver(topology, node="desk-1") as receiver,
        taking(receiver) as (taken,),
        pgm.open_source(topology, node="source") as source,
    ):
        with trio.move_on_after(0.1) as scope:
            while True:
                await source.send(message)
                sent += 1
        assert scope.cancelled_caught
        await source.send(b"after")
    assert taken.messages == [message] * sent + [b"after"]


async def test_a_slow_application_loses_by_overrun_and_others_do_not(place: Place) -> None:
    limits = 'txw_bytes = "256KiB", rxw_bytes = "64KiB", inbox_bytes = "64KiB"'
    slow_plan = planned(place, "desk-1", parameters=limits)
    other_plan = planned(place, "desk-2")
    source_plan = planned(
        place, "source", parameters='txw_bytes = "256KiB", txw_unsent_bytes = "64KiB"', window="256KiB"
    )
    sent = messages_of_sizes([1000] * 3000)
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(pgm.open_receiver(slow_plan))
        other = await stack.enter_async_context(pgm.open_receiver(other_plan))
        (taken,) = await stack.enter_async_context(taking(other))
        source = await stack.enter_async_context(pgm.open_source(source_plan))
        for at in range(0, len(sent), 30):
            await source.send_batch(sent[at : at + 30])
        await source.aclose()
        assert 0 < slow.counters.delivered_packets < len(sent)
        (late,) = await stack.enter_async_context(taking(slow))
    assert taken.messages == sent
    assert not taken.lost
    assert {one.cause for one in late.lost} == {LossCause.OVERRUN}
    assert len(late.messages) + sum(one.count for one in late.lost) == len(sent)
    survivors = iter(sent)
    assert all(message in survivors for message in late.messages), "out of order"


@pytest.mark.parametrize("burst", [False, True])
async def test_injected_losses_are_repaired(place: Place, burst: bool) -> None:
    loss = '{ loss = "2%", burst_loss = "6%", burst_length = 12 }' if burst else '{ loss = "10%" }'
    topology = loads(one_segment(place, loss=loss))
    sent = messages_of_sizes([1200] * 3000 + [30_000] * 20)
    async with AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(pgm.open_receiver(topology, node=f"desk-{n}", seed=str(n)))
            for n in (1, 2, 3)
        ]
        found = await stack.enter_async_context(taking(*receivers))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        for at in range(0, len(sent), 20):
            await source.send_batch(sent[at : at + 20])
    for taken in found:
        assert taken.messages == sent
        assert not taken.lost
        assert taken.counters.repaired_sqns > 100


@pytest.mark.parametrize(("gso", "gro"), [(True, True), (False, True), (True, False), (False, False)])
async def test_with_and_without_offload_the_result_is_the_same(place: Place, gso: bool, gro: bool) -> None:
    topology = loads(one_segment(place, loss='{ loss = "3%" }'))
    sent = messages_of_sizes([1400] * 1500 + [50_000] * 10)
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1", gro=gro))
        (taken,) = await stack.enter_async_context(taking(receiver))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source", gso=gso, gro=gro))
        assert receiver.links[0].sockets.gro == gro
        assert source.links[0].sockets.gso == gso
        await source.send_batch(sent)
    assert taken.messages == sent
    trains = taken.counters.packets_in / taken.counters.trains_in
    assert trains > 3 if gso and gro else trains >= 1  # the link gathers what waits, if the kernel does not


async def test_two_receivers_without_addresses_of_their_own_on_one_host(place: Place) -> None:
    sent = messages_of_sizes([1000] * 2000)
    async with AsyncExitStack() as stack:
        url = place.url(nak_bo_ivl="5ms")
        receivers = [await stack.enter_async_context(pgm.open_receiver(url)) for _ in range(2)]
        found = await stack.enter_async_context(taking(*receivers))
        for number, receiver in enumerate(receivers):
            receiver.links[0].injector = injector(0.05 * (1 + number))
        source_url = place.url(address=place.address(1))
        source = await stack.enter_async_context(pgm.open_source(source_url, fin_quiet_ivl="300ms"))
        await source.send_batch(sent)
    for taken in found:
        assert taken.messages == sent
        assert taken.counters.repaired_sqns > 50
    assert source.counters.nak_packets_in > 0


async def test_the_smallest_receive_buffers_are_told_of_and_mended(place: Place) -> None:
    """The kernel's default rmem_max of 212,992, and less: what does not fit is counted and repaired."""
    topology = loads(one_segment(place))
    sent = messages_of_sizes([1400] * 4000)
    async with AsyncExitStack() as stack:
        usual = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1", so_rcvbuf="208KiB"))
        least = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-2", so_rcvbuf="16KiB"))
        assert usual.links[0].sockets.buffers.rcvbuf == 212_992
        assert not usual.links[0].sockets.buffers.complaint
        found = await stack.enter_async_context(taking(usual, least))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        for at in range(0, len(sent), 50):
            await source.send_batch(sent[at : at + 50])
    for taken in found:
        assert taken.messages == sent
        assert not taken.lost
    assert found[1].counters.socket_drops > 0


async def test_kept_batches_stay_what_they_were(place: Place) -> None:
    """A batch is a view of receive memory; that memory is not reused while somebody holds the view."""
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


# The twins without trio


def test_blocking_source_and_receiver(place: Place) -> None:
    topology = loads(one_segment(place, loss='{ loss = "5%" }'))
    sent = messages_of_sizes([1000] * 500 + [0, 40_000])
    got: list[object] = []
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:

        def take() -> None:
            for item in receiver:
                got.append(item)
                if isinstance(item, Closed):
                    break

        taker = threading.Thread(target=take)
        taker.start()
        with pgm.blocking.open_source(topology, node="source") as source:
            assert source.send(sent[0]) == 0
            assert source.send_batch(sent[1:]) == 1
            source.flush()
        taker.join(PATIENCE_S)
        assert not taker.is_alive()
    assert [one.payload for one in got if isinstance(one, Message)] == sent
    assert isinstance(got[-1], Closed)
    assert got[-1].cause is CloseCause.FIN
    assert source.counters.odata_packets == receiver.counters.delivered_packets


def test_blocking_batches_and_time_limit(place: Place) -> None:
    topology = loads(one_segment(place))
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        began = time.monotonic()
        assert receiver.next_batch(0.05) is None
        assert 0.05 <= time.monotonic() - began < PATIENCE_S
        with pgm.blocking.open_source(topology, node="source") as source:
            source.send_batch(np.arange(64, dtype=np.uint8).reshape(8, 8))
            rows = []
            for item in receiver.batches():
                if isinstance(item, Batch):
                    rows.append(item.copy().payloads)
                    if sum(map(len, rows)) == 8:
                        break
    assert np.concatenate(rows).tobytes() == bytes(range(64))


def test_blocking_calls_raise_in_the_thread_that_called(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(pgm.TopologyError, match="no node 'nobody'"), pgm.blocking.open_source(topology, node="nobody"):
        pass
    with pytest.raises(pgm.UsageError, match="is a receiver"), pgm.blocking.open_source(topology, node="desk-1"):
        pass
    with pgm.blocking.open_source(topology, node="source", max_apdu=1000) as source:
        with pytest.raises(pgm.UsageError):
            source.send(bytes(2000))
        with pytest.raises(pgm.TransportError), pgm.blocking.open_source(topology, node="source"):
            pass
        source.send(bytes(1000))


def test_a_blocking_source_left_by_an_exception_resets(place: Place) -> None:
    topology = loads(one_segment(place))

    def send_and_fail() -> None:
        with pgm.blocking.open_source(topology, node="source") as source:
            source.send(b"x")
            source.flush()
            _ = 1 / 0

    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        with pytest.raises(ZeroDivisionError):
            send_and_fail()
        items = []
        for item in receiver:
            items.append(item)
            if isinstance(item, Closed):
                break
    assert [type(one) for one in items] == [Opened, Message, Closed]
    assert items[-1].cause is CloseCause.RESET


def test_blocking_handles_leave_no_thread_behind(place: Place) -> None:
    topology = loads(one_segment(place))
    before, files = threading.active_count(), open_files()
    with pgm.blocking.open_receiver(topology, node="desk-1"), pgm.blocking.open_source(topology, node="source"):
        assert threading.active_count() >= before + 2
    assert [one.name for one in threading.enumerate() if one.name == "pgm"] == []
    assert open_files() == files


def test_a_blocking_call_after_the_block_says_so(place: Place) -> None:
    topology = loads(one_segment(place))
    with pgm.blocking.open_source(topology, node="source") as source:
        source.send(b"x")
    with pytest.raises(pgm.UsageError):
        source.send(b"y")
    with pgm.blocking.open_receiver(topology, node="desk-1") as receiver:
        pass
    with pytest.raises(pgm.UsageError):
        receiver.next_batch(0)


async def test_a_send_after_the_block_says_so(place: Place) -> None:
    topology = loads(one_segment(place))
    async with pgm.open_source(topology, node="source") as source:
        await source.send(b"x")
    with pytest.raises(pgm.UsageError):
        await source.send(b"y")


# Several tasks and early exits


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


async def test_a_loop_that_was_left_goes_on_where_it_stopped(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = [b"%03d" % number for number in range(200)]
    got: list[bytes] = []
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1"))
        source = await stack.enter_async_context(pgm.open_source(topology, node="source"))
        await source.send_batch(sent)
        with trio.fail_after(PATIENCE_S):
            while len(got) < 100:
                async for item in receiver:
                    if isinstance(item, Message):
                        got.append(item.payload)
                        break
            async for found in receiver.batches():
                assert isinstance(found, Batch)
                assert found.first_sqn == len(got)
                got += found
                if len(got) == len(sent):
                    break
    assert got == sent


def test_a_blocking_loop_that_was_left_goes_on_where_it_stopped(place: Place) -> None:
    topology = loads(one_segment(place))
    sent = [b"%03d" % number for number in range(200)]
    got: list[bytes] = []
    with (
        pgm.blocking.open_receiver(topology, node="desk-1") as receiver,
        pgm.blocking.open_source(topology, node="source") as source,
    ):
        source.send_batch(sent)
        while len(got) < 100:
            got.append(next(item.payload for item in receiver if isinstance(item, Message)))
        for found in receiver.batches():
            assert isinstance(found, Batch)
            got += found
            if len(got) == len(sent):
                break
    assert got == sent


async def test_the_cause_of_an_error_in_the_block_stays(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(pgm.TransportError) as caught:
        async with pgm.open_source(topology, node="source"), pgm.open_source(topology, node="source"):
            pass
    assert isinstance(caught.value.__cause__, OSError)


async def test_groups_of_the_application_pass_as_they_are(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(ExceptionGroup) as caught:
        async with pgm.open_receiver(topology, node="desk-1"):
            raise ExceptionGroup("mine", [ValueError("one")])
    assert caught.value.message == "mine"
