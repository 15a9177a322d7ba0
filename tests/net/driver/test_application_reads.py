"""Reads by the task that waits for messages: no loss, no duplicate, no reordering.

Other tasks read while that task is away.
"""

from __future__ import annotations

import socket
import time

import pytest
import trio
import trio.testing

import pgm
from pgm import Batch, Message
from pgm.core.effects import CloseCause, Closed, Effect
from pgm.impairments import Impairment, Injector
from pgm.net.driver.application_reads import GIVE_BACK_S, ApplicationReader
from pgm.net.endpoint import source as source_module
from pgm.net.endpoint.inbox import OCTETS_BETWEEN_READS
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.units import KIB, MILLISECOND
from tests.net.support.backlog import BACKLOG, BACKLOG_PACKETS, knock
from tests.net.support.listening import until
from tests.net.support.places import Place

PATIENCE_S = 20.0


async def first_of(receiver: Receiver, source: Source) -> None:
    """Wait until a first message has come."""
    await source.send(b"first")
    async for item in receiver:
        if isinstance(item, Message):
            return


@pytest.fixture
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each message alone, however soon after another; normally a source does so only after a pause."""
    monkeypatch.setattr(source_module, "_ALONE_IVL_NS", 0)


@pytest.mark.usefixtures("nothing_waits")
async def test_single_packets_that_wait_are_taken_in_order(place: Place) -> None:
    sent = [bytes([number]) * (100 + number % 3) for number in range(40)]
    async with pgm.open_receiver(place.url()) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await first_of(receiver, source)
        alone = 0  # of which each has left when its call is over; where an SPM is due a message waits for it
        for message in sent:
            alone += await source.send(message) == source.sessions[0].lead
        got: list[bytes] = []
        with trio.fail_after(PATIENCE_S):
            async for item in receiver:
                assert isinstance(item, Message)
                got.append(item.payload)
                if len(got) == len(sent):
                    break
    assert got == sent
    assert alone > len(sent) // 2


async def test_a_wait_that_is_cancelled_loses_nothing(place: Place) -> None:
    sent = [b"%d" % number for number in range(200)]
    got: list[bytes] = []
    async with (
        pgm.open_receiver(place.url()) as receiver,
        pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source,
        trio.open_nursery() as nursery,
    ):
        await first_of(receiver, source)

        async def send() -> None:
            for message in sent:
                await source.send(message)
                await trio.sleep(0.0007)

        nursery.start_soon(send)
        waits = 0
        with trio.fail_after(PATIENCE_S):
            while len(got) < len(sent):
                item = await receiver.next_batch(0.0005)
                waits += item is None
                if isinstance(item, Batch):
                    got += item
    assert got == sent
    assert waits > 20


async def test_application_reader_idle_leaves_reads_to_the_driver(place: Place) -> None:
    """Application and driver read alternately, many times."""
    async with pgm.open_receiver(place.url()) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await first_of(receiver, source)
        for number in range(5):
            taken = receiver.counters.received_packets
            await source.send(b"to who waits")
            item = await receiver.next_batch(PATIENCE_S)
            assert isinstance(item, Batch)
            assert list(item) == [b"to who waits"]
            for _ in range(3):
                await source.send(b"while away")
            await until(lambda wanted=taken + 4: receiver.counters.received_packets >= wanted)
            got: list[bytes] = []
            while len(got) < 3:
                item = await receiver.next_batch(PATIENCE_S)
                assert isinstance(item, Batch), number
                got += item
            assert got == [b"while away"] * 3


async def test_application_reader_waiting_sees_the_end(place: Place) -> None:
    """The receiver is closed while a task waits in it."""
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        async with pgm.open_receiver(place.url()) as receiver:

            async def wait() -> None:
                assert await receiver.next_batch() is None
                ended.set()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(PATIENCE_S):
            await ended.wait()


class Steps(trio.abc.Instrument):
    """Counter of the runs of the task that drains a socket."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += "_listen" in task.name


async def test_the_drivers_task_sleeps_while_messages_come_one_by_one(place: Place) -> None:
    """The driver's task checks now and then whether the application still waits, not at each message."""
    sent = [b"%d" % number for number in range(300)]
    got: list[bytes] = []
    async with pgm.open_receiver(place.url()) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await first_of(receiver, source)

        async def take() -> None:
            async for item in receiver:
                assert isinstance(item, Message)
                got.append(item.payload)
                if len(got) == len(sent):
                    return

        steps, began = Steps(), trio.current_time()
        trio.lowlevel.add_instrument(steps)
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                for message in sent:
                    await trio.testing.wait_all_tasks_blocked()
                    await source.send(message)
        trio.lowlevel.remove_instrument(steps)
        took_s = trio.current_time() - began
    assert got == sent
    assert 0 < steps.count <= 20 + 3 * took_s / GIVE_BACK_S


async def test_application_reader_item_by_another_way_ends_the_wait(place: Place) -> None:
    """Otherwise the application would wait for the next packet."""
    async with pgm.open_receiver(place.url(), rx_poll_ivl="10ms") as receiver:
        assert receiver.driver.application_reader is not None
        for sqn in range(20):  # trio draws the order of tasks
            closed = Closed(bytes(8), sqn, CloseCause.FIN)
            receiver.driver.application_reader.polling.woke(0)
            assert receiver.driver.application_reader.polling.ivl
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(receiver.next_batch)
                    nursery.start_soon(perform_soon, receiver, closed)


async def test_application_reader_serves_deadlines_in_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NAK leaves between two reads, although no other task gets its turn."""
    soon = {"nak_bo_ivl": "1ms", "reorder_ivl": "0ms", "rx_bulk_ivl": "0ms"}
    async with (
        pgm.open_receiver(place.url(), **soon) as receiver,
        pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source,
    ):
        await first_of(receiver, source)
        link = receiver.links[0]
        link.injector = Injector(Impairment(loss=1.0), "all")
        await source.send(b"lost")
        await until(lambda: receiver.counters.injected_losses)
        link.injector = None
        for later_ns in (0, 10 * MILLISECOND):  # then the back-off is over
            await source.send(b"behind it")
            monkeypatch.setattr(receiver.driver, "now_ns", lambda ahead_ns=later_ns: time.monotonic_ns() + ahead_ns)
            assert receiver.driver.read_for(lambda _packet, _peer: False, gathers=True)
        assert receiver.counters.nak_packets == 1
        item = await receiver.next_batch(PATIENCE_S)
        assert isinstance(item, Batch)
        assert list(item)[:1] == [b"lost"]


async def perform_soon(receiver: Receiver, effect: Effect) -> None:
    """Give an application an item that no packet brought."""
    receiver.driver.perform((effect,))


class Turns:
    """Task that counts its own turns."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.count += 1


@pytest.mark.usefixtures("nothing_waits")
async def test_other_tasks_have_their_turn_while_answers_are_looked_for(place: Place) -> None:
    """Each wait is at least one pass of the scheduler, although no task sleeps."""
    turns, got = Turns(), 0
    url = place.url(fin_quiet_ivl="50ms")
    async with pgm.open_receiver(url, rx_poll_ivl="10ms") as receiver, pgm.open_source(url) as source:
        await first_of(receiver, source)
        lead = receiver.driver.application_reader
        assert lead is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.take)
            await trio.lowlevel.checkpoint()
            turns.count = 0
            with trio.fail_after(PATIENCE_S):
                for _ in range(50):
                    await source.send(b"answer")
                    got += isinstance(await receiver.next_batch(), Batch)
                    lead.polling.woke(0)
                    with trio.move_on_after(0.001):
                        await receiver.next_batch()
            nursery.cancel_scope.cancel()
    assert got == 50
    assert turns.count >= 50


async def test_a_look_loses_and_doubles_nothing(place: Place) -> None:
    """Messages come while others have their turn, during the poll, and after the poll has ended."""
    sent = [b"%d" % number for number in range(300)]
    got: list[bytes] = []
    url = place.url(fin_quiet_ivl="50ms")
    async with pgm.open_receiver(url, rx_poll_ivl="300us") as receiver, pgm.open_source(url) as source:
        await first_of(receiver, source)
        lead = receiver.driver.application_reader
        assert lead is not None

        async def send() -> None:
            for number, message in enumerate(sent):
                await source.send(message)
                await trio.sleep(0.0002 * (number % 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with trio.fail_after(PATIENCE_S):
                while len(got) < len(sent):
                    lead.polling.woke(0)
                    item = await receiver.next_batch()
                    assert isinstance(item, Batch)
                    got += item
    assert got == sent


async def queue_up(receiver: Receiver, source: Source) -> None:
    """Let the driver read a backlog while no application waits."""
    await first_of(receiver, source)
    for rows in BACKLOG:
        await source.send_batch(rows)
    await source.flush()
    await until(lambda: receiver.counters.received_packets >= 1 + BACKLOG_PACKETS)


async def test_backlog_is_read_while_the_application_drains_it(place: Place) -> None:
    async with pgm.open_receiver(place.url()) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await queue_up(receiver, source)
        knock(receiver)
        assert "truncated" not in receiver.counters.rejects
        octets = 0
        while "truncated" not in receiver.counters.rejects:
            batch = await receiver.next_batch(0)
            assert isinstance(batch, Batch), octets
            octets += batch.payloads.size
        assert octets <= 2 * OCTETS_BETWEEN_READS


async def test_application_reader_backlog_leaves_reads_to_driver_tasks(place: Place) -> None:
    """With rests a receiver's application does not read its socket itself."""
    turns = Turns()
    url = place.url(rx_wake_ivl="1ms")
    async with pgm.open_receiver(url) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await queue_up(receiver, source)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.take)
            octets = 0
            while octets < sum(rows.size for rows in BACKLOG):
                batch = await receiver.next_batch(0)
                assert isinstance(batch, Batch), octets
                octets += batch.payloads.size
            nursery.cancel_scope.cancel()
    assert turns.count >= octets // (2 * OCTETS_BETWEEN_READS)


async def test_application_reader_queued_items_come_without_wait(place: Place) -> None:
    """A timeout of 0 ends at once, and applies to waiting only."""
    async with pgm.open_receiver(place.url()) as receiver, pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        await queue_up(receiver, source)
        got = []
        while (batch := await receiver.next_batch(0)) is not None:
            assert isinstance(batch, Batch)
            got.append(batch)
    assert sum(map(len, got)) == BACKLOG_PACKETS


async def test_application_reader_queue_can_be_taken_after_closing(place: Place) -> None:
    async with pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        async with pgm.open_receiver(place.url()) as receiver:
            await queue_up(receiver, source)
        got = [item async for item in receiver.batches() if isinstance(item, Batch)]
    assert sum(map(len, got)) == BACKLOG_PACKETS


async def test_whole_large_messages_that_wait_are_bounded(place: Place) -> None:
    """Packets of large messages leave the queue during reassembly; complete messages still count against its bound."""
    sent = [bytes([number]) * 100_000 for number in range(60)]
    async with (
        pgm.open_receiver(place.url(inbox_bytes="64KiB")) as receiver,
        pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source,
    ):
        await first_of(receiver, source)
        for message in sent:
            await source.send(message)
        await source.flush()
        await until(lambda: receiver.counters.received_packets >= source.counters.odata_packets)
        assert receiver.counters.queue_most_octets <= 2 * len(sent[0])
        got: list[bytes] = []
        with trio.fail_after(PATIENCE_S):
            while len(got) < len(sent):
                item = await receiver.next_batch()
                assert isinstance(item, Batch)
                got += item
    assert got == sent


async def test_application_reader_late_reads_all_before_it_rests(autojump_clock: trio.testing.MockClock) -> None:
    """A row of reads ends even with more data behind it.

    Other tasks have their turn, but a rest would let the buffer overflow.
    """
    waiting, reads = 41, [0, 0]
    near, far = socket.socketpair(type=socket.SOCK_DGRAM)
    with near, far:
        far.send(b"more")

        def read(_gathers: bool) -> int:
            if sum(reads) == waiting:
                return 0
            reads[autojump_clock.current_time() > began] += 1
            return 512 * KIB

        lead = ApplicationReader(near, read, lambda: 0.002, 0)
        began = autojump_clock.current_time()
        for _ in range(waiting + 1):
            await lead.wait()
        assert reads == [waiting, 0]
        assert autojump_clock.current_time() == began + 0.002, "then it rests"
        lead.close()
