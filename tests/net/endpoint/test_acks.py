"""Acks of applications: a packet is stable when the application of each member has taken it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Batch, Message, UsageError
from pgm.core.effects import CloseCause, LossCause, Lost, Opened
from pgm.core.window.reassembly import WholeMessages
from pgm.net.endpoint.ack_positions import AckPosition, AckPositions, JointAcks
from pgm.net.endpoint.policies import Ack
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.items import Item, PartMessage
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.wire.packet_run import Run
from tests.net.support.listening import PATIENCE_S, taking, until
from tests.net.support.loops import Run as RunLoop
from tests.net.support.loops import runner_of
from tests.net.support.loops import until as asyncio_until
from tests.net.support.places import Place, one_segment

WINDOW = 64
SETTINGS = f'ack_expiry = "1s", ack_ivl = "10ms", ack_window = {WINDOW}, ack_stall_ivl = "60s"'


def acked(place: Place, stream: str = "", more: str = "") -> Topology:
    text = one_segment(place, parameters=", ".join(filter(None, (SETTINGS, more))))
    return loads(text.replace("[streams.s]\n", f'[streams.s]\nflow = "acked"\n{stream}\n'))


async def settled(source: Source) -> None:
    """Wait for two more acks: the newest position of each member has arrived."""
    wanted = source.counters.ack_packets_in + 2
    await until(lambda: source.counters.ack_packets_in >= wanted)


async def require_stable(source: Source, sqn: int) -> None:
    """Require that everything up to `sqn` becomes stable, and nothing else."""
    with trio.fail_after(PATIENCE_S):
        await source.stable(sqn)
    await settled(source)
    assert not source.is_stable(sqn + 1)


@asynccontextmanager
async def one_member(
    topology: Topology, ack: Ack = "auto", **options: Any
) -> AsyncIterator[tuple[Source, Receiver, Callable[[], Any]]]:
    """Open a source and its only member. Yield both, and a function that waits for the member's next message."""
    async with (
        pgm.open_source(topology, node="source") as source,  # leaves last: it waits for acks of members
        pgm.open_receiver(topology, node="desk-1", ack=ack, **options) as receiver,
    ):
        with trio.fail_after(PATIENCE_S):
            await source.joined(1)
        items = aiter(receiver)

        async def next_message() -> Message:
            with trio.fail_after(PATIENCE_S):
                while not isinstance(item := await anext(items), Message):
                    pass
                return item

        yield source, receiver, next_message


@pytest.mark.parametrize("framing", ["plain", "batch", "zeromq"])
async def test_message_is_stable_when_the_next_one_is_taken(place: Place, framing: str) -> None:
    async with one_member(acked(place, f'framing = "{framing}"')) as (source, receiver, take):
        await source.send_batch([bytes(1000)] * 50)  # ZeroMQ's messages share packets
        await until(lambda: receiver.counters.delivered_packets > 30)
        for _ in range(5):
            message = await take()
        await require_stable(source, message.sqn - 1)
        for _ in range(45):
            await take()
        assert await receiver.next_batch(0) is None
        await require_stable(source, source.sessions[0].lead)


async def test_batch_is_stable_when_the_next_one_is_taken(place: Place) -> None:
    async with one_member(acked(place)) as (source, receiver, take):
        await source.send_batch([bytes(100)] * 30)
        await until(lambda: receiver.counters.delivered_packets == 30)
        assert (await take()).sqn == 0
        rest = await receiver.next_batch()
        assert isinstance(rest, Batch)
        await require_stable(source, rest.first_sqn - 1 if rest.first_sqn > 1 else -1)
        while rest is not None:
            rest = await receiver.next_batch(0)
        await require_stable(source, 29)


async def test_slow_member_holds_the_source_as_a_window_does(place: Place) -> None:
    async with one_member(acked(place)) as (source, receiver, take), trio.open_nursery() as nursery:
        nursery.start_soon(source.send_batch, [bytes(100)] * 1000)
        for _ in range(10):
            message = await take()
        await until(lambda: receiver.counters.delivered_packets == message.sqn + WINDOW)
        await settled(source)
        assert source.sessions[0].lead == message.sqn - 1 + WINDOW
        assert receiver.parameters.inbox_bytes > 1000 * 1000
        for _ in range(990):
            message = await take()
        assert message.sqn == 999


async def test_messages_share_a_packet_and_an_ack(place: Place) -> None:
    async with one_member(acked(place, 'framing = "batch"')) as (source, _, take):
        await source.send_batch([b"small"] * 100, flush=True)
        await source.flush()
        first = await take()
        assert source.sessions[0].lead == first.sqn
        for _ in range(99):
            message = await take()
            assert message.sqn == first.sqn
            assert not source.is_stable(first.sqn)
        await require_stable(source, first.sqn - 1)


async def test_messages_that_nobody_wants_need_no_ack(place: Place) -> None:
    topology = acked(place, 'framing = "batch"')
    async with one_member(topology, subjects=["/a"]) as (source, receiver, take), trio.open_nursery() as nursery:
        sqn = await source.send(b"first", subject="/a", flush=True)
        await source.flush()
        assert (await take()).sqn == sqn
        for _ in range(5):
            last = await source.send(b"other", subject="/b", flush=True)
            await source.flush()
        assert last == sqn + 5
        await require_stable(source, sqn - 1)
        nursery.start_soon(receiver.next_batch)
        await require_stable(source, last)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("framing", ["plain", "batch", "zeromq"])
async def test_manual_ack_covers_everything_before_it(place: Place, framing: str) -> None:
    async with one_member(acked(place, f'framing = "{framing}"'), "manual") as (source, receiver, take):
        await source.send_batch([bytes(1000)] * 20 + [bytes(5000)])
        messages = [await take() for _ in range(21)]
        await settled(source)
        assert not source.is_stable(0)
        receiver.ack(messages[9])
        await require_stable(source, messages[10].sqn - 1)
        receiver.ack(messages[3])  # covered already
        receiver.ack(messages[20])  # of several packets
        await require_stable(source, source.sessions[0].lead)


async def test_manual_ack_of_batches_and_values_is_stable(place: Place) -> None:
    async with one_member(acked(place, 'framing = "batch"'), "manual") as (source, receiver, _):
        await source.send_object({"n": 1}, flush=True)
        with trio.fail_after(PATIENCE_S):
            async for item in receiver.objects():
                receiver.ack(item)
                if not isinstance(item, Opened):
                    break
        await require_stable(source, 0)
        first = await source.send_batch([b"small"] * 2000, flush=True)
        with trio.fail_after(PATIENCE_S):
            batch = await receiver.next_batch()
        assert isinstance(batch, pgm.PackedBatch)
        await settled(source)
        assert not source.is_stable(first)
        receiver.ack(batch)
        await require_stable(source, int(batch.packet_sqns[-1]))


async def test_small_messages_are_acked_with_their_packet(place: Place) -> None:
    async with one_member(acked(place, 'framing = "batch"'), "manual") as (source, receiver, take):
        await source.send_batch([b"small"] * 20, flush=True)
        messages = [await take() for _ in range(20)]
        assert all(isinstance(message, PartMessage) for message in messages)
        receiver.ack(messages[18])
        await settled(source)
        assert not source.is_stable(0)
        receiver.ack(messages[19])
        await require_stable(source, 0)


async def test_ack_without_manual_or_acked_stream_is_refused(place: Place) -> None:
    async with one_member(acked(place)) as (source, receiver, take):
        await source.send(b"a")
        message = await take()
        with pytest.raises(UsageError, match='open it with ack="manual"'):
            receiver.ack(message)
    with pytest.raises(UsageError, match="choose one of auto, manual"):
        async with pgm.open_receiver(acked(place), node="desk-1", ack="hand"):  # type: ignore[arg-type]
            raise AssertionError
    plain = loads(one_segment(place))
    async with (
        pgm.open_source(plain, node="source") as source,
        pgm.open_receiver(plain, node="desk-1", ack="manual") as receiver,
    ):
        await source.send(b"a")
        with trio.fail_after(PATIENCE_S):
            async for item in receiver:
                if isinstance(item, Message):
                    break
        await until(lambda: receiver.known_sources)
        with pytest.raises(UsageError, match="does not wait for acks"):
            receiver.ack(item)


async def test_normal_end_of_the_block_takes_the_last_item(place: Place) -> None:
    topology = acked(place)
    async with pgm.open_source(topology, node="source") as source:
        for fails in (False, True):
            with suppress(ZeroDivisionError):
                async with pgm.open_receiver(topology, node="desk-1") as receiver:
                    with trio.fail_after(PATIENCE_S):
                        await source.joined(1)
                    last = await source.send(b"x")
                    with trio.fail_after(PATIENCE_S):
                        async for item in receiver:
                            if isinstance(item, Message) and item.sqn == last:
                                break
                    if fails:
                        raise ZeroDivisionError
            await until(lambda: not source.members)
            assert source.counters.members_left == 1 + fails
            assert source.is_stable(last) is not fails
            assert source.is_stable(last - 1)


@pytest.mark.parametrize("order", ["unordered", "unreliable"])
async def test_unordered_stream_is_acked_by_what_was_taken(place: Place, order: str) -> None:
    async with one_member(acked(place, f'order = "{order}"')) as (source, receiver, take):
        await source.send_batch([bytes(1000)] * 20)
        await until(lambda: receiver.counters.delivered_packets == 20)
        sqns = [(await take()).sqn for _ in range(5)]
        await require_stable(source, sqns[-1] - 1)
        for _ in range(15):
            await take()
        assert await receiver.next_batch(0) is None
        await require_stable(source, 19)


async def test_receivers_of_one_node_are_one_member(place: Place) -> None:
    topology = acked(place)
    async with (
        pgm.open_receiver(topology, node="desk-2") as other,
        taking(other),
        pgm.open_source(topology, node="source") as source,
        pgm.open_node(topology, node="desk-1") as node,
        node.receiver() as stays,
    ):
        async with node.receiver() as leaves:
            await until(lambda: source.members == 2)
            await until(lambda: stays.known_sources and leaves.known_sources)
            await source.send_batch([bytes(100)] * 20)
            for receiver, count in ((stays, 5), (leaves, 10)):
                items = aiter(receiver)
                for _ in range(count + 1):  # and Opened
                    await anext(items)
            await require_stable(source, 3)
        await require_stable(source, 3)
        assert source.members == 2
        assert not source.counters.members_left
        await anext(aiter(stays))
        await require_stable(source, 4)
        while await stays.next_batch(0) is not None:
            pass
        await require_stable(source, 19)


@pytest.mark.parametrize("busy_poll", [False, True])
@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_threads_ack_what_they_have_taken(place: Place, ack: Ack, *, busy_poll: bool) -> None:
    topology = acked(place)

    def messages(receiver: Any) -> Iterator[Item]:
        return (item for item in receiver if isinstance(item, Message))

    with ExitStack() as stack:
        source = stack.enter_context(pgm.blocking.open_source(topology, node="source"))
        open_receiver: Any = pgm.blocking.open_receiver
        receiver = stack.enter_context(open_receiver(topology, node="desk-1", ack=ack, busy_poll=busy_poll))
        turn = receiver.poll if busy_poll else lambda: None

        def wait_until(holds: Callable[[], bool]) -> None:
            end_s = time.monotonic() + PATIENCE_S
            while not holds():
                assert time.monotonic() < end_s
                turn()

        wait_until(lambda: source.members == 1)
        source.send_batch([bytes(1000)] * 20)
        taken = messages(receiver)
        for _ in range(5):
            message = next(taken)
        if ack == "manual":
            receiver.ack(message)
        wanted = message.sqn - (ack == "auto")
        wait_until(lambda: source.is_stable(wanted))
        acks = source.counters.ack_packets_in
        wait_until(lambda: source.counters.ack_packets_in >= acks + 2)
        assert not source.is_stable(wanted + 1)
        for _ in range(15):
            message = next(taken)
        if ack == "manual":
            receiver.ack(message)
        else:
            assert receiver.recv(0) is None
        wait_until(lambda: source.is_stable(19))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> RunLoop:
    """Return a function that runs a coroutine in one of the loops."""
    return runner_of(request.param)


@pytest.mark.parametrize("ack", ["auto", "manual"])
def test_asyncio_acks_what_was_taken(run: RunLoop, place: Place, ack: Ack) -> None:
    topology = acked(place)

    async def main() -> None:
        async with (
            pgm.open_receiver(topology, node="desk-1", ack=ack) as receiver,
            pgm.open_source(topology, node="source") as source,
        ):
            await source.joined(1)
            assert source.members == 1
            await source.send_batch([bytes(1000)] * 20)
            items = aiter(receiver)
            for _ in range(6):  # and Opened
                item = await anext(items)
            assert isinstance(item, Message)
            if ack == "manual":
                receiver.ack(item)
            wanted = item.sqn - (ack == "auto")
            await source.stable(wanted)
            acks = source.counters.ack_packets_in
            await asyncio_until(lambda: source.counters.ack_packets_in >= acks + 2)
            assert not source.is_stable(wanted + 1)
            for _ in range(15):
                item = await anext(items)
            if ack == "manual":
                receiver.ack(item)
            else:
                assert await receiver.next_batch(0) is None
            await source.stable()

    run(main())


# Positions alone

TSI = b"12345678"


def entry(first: int, count: int) -> WholeMessages:
    return WholeMessages(TSI, Run(first, count, np.zeros(count * 32, np.uint8), 0, 32, 24))


def lost(first: int, count: int) -> Lost:
    return Lost(TSI, first, count, LossCause.OVERRUN)


def test_position_of_unordered_streams_waits_for_holes() -> None:
    position = AckPosition(is_ordered=False, taken=9, seen=9)
    position.take(12, 14)
    position.take(16, 16)
    assert position.taken == 9
    position.take(10, 11)
    assert position.taken == 14
    position.take(15, 15)
    assert position.taken == 16


def test_lost_packets_count_when_the_next_item_is_taken() -> None:
    positions = AckPositions("auto", (), 10, JointAcks())
    positions.begin(Opened(TSI, 5, "", 7500), None)
    assert positions.acked(TSI, 4, 100) == 4
    positions.begin(lost(5, 3), None)
    assert positions.acked(TSI, 4, 100) == 4
    assert positions.come_back(deque()) == TSI
    assert positions.acked(TSI, 4, 100) == 7
    assert positions.acked(TSI, 4, 6) == 6  # never more than was delivered


def test_lost_packets_need_no_ack_by_hand() -> None:
    positions = AckPositions("manual", (), 10, JointAcks())
    positions.begin(Opened(TSI, 5, "", 7500), None)
    positions.begin(lost(5, 3), None)
    positions.give(lost(5, 3), deque())
    assert positions.acked(TSI, 4, 100) == 7
    message = Message(b"", 8, TSI)
    positions.come_back(deque())
    positions.begin(entry(8, 1), None)
    positions.give(message, deque())
    positions.come_back(deque())
    positions.begin(lost(9, 2), None)
    positions.give(lost(9, 2), deque())
    assert positions.acked(TSI, 4, 100) == 7
    positions.cover(message)
    assert positions.acked(TSI, 4, 100) == 10


def test_incomplete_message_of_a_decoder_is_not_taken() -> None:
    positions = AckPositions("auto", (), 10, JointAcks())
    positions.begin(Opened(TSI, 0, "", 7500), None)
    positions.begin(entry(0, 4), held_from=2)
    positions.come_back(deque())
    assert positions.acked(TSI, -1, 3) == 1
    positions.begin(entry(4, 1), held_from=None)
    positions.come_back(deque())
    assert positions.acked(TSI, -1, 4) == 4


def test_held_packets_are_at_most_as_many_as_given() -> None:
    positions = AckPositions("manual", (), 10, JointAcks())
    positions.begin(Opened(TSI, 0, "", 7500), None)
    batch = Batch(TSI, 0, np.zeros((100, 8), np.uint8))
    positions.cover(batch, before=60, most=100)
    assert positions.acked(TSI, -1, 99) == 59
    positions.cover(batch, before=60, most=10)
    assert positions.acked(TSI, -1, 99) == 89


def test_session_of_a_silent_source_goes_on() -> None:
    positions = AckPositions("auto", (), 10, JointAcks())
    positions.begin(Opened(TSI, 0, "", 7500), None)
    positions.begin(lost(0, 5), None)
    positions.come_back(deque())
    positions.begin(pgm.Closed(TSI, 5, CloseCause.SILENT), None)
    positions.begin(Opened(TSI, 5, "", 7500, resumed=True), None)
    assert positions.acked(TSI, -1, 9) == 4


def test_ended_session_is_forgotten_before_an_open_one() -> None:
    positions = AckPositions("auto", (), 2, JointAcks())
    first, second, third = (bytes([*TSI[:7], number]) for number in range(3))
    positions.begin(Opened(first, 0, "", 7500), None)
    positions.begin(Opened(second, 0, "", 7500), None)
    positions.begin(pgm.Closed(second, 0, CloseCause.FIN), None)
    positions.begin(Opened(third, 0, "", 7500), None)
    assert [positions.next_of(tsi) for tsi in (first, second, third)] == [0, None, 0]
