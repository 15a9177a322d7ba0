"""Policies for losses and slow applications, on real sockets beside a receiver that takes everything."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

import pgm
import pgm.blocking
from pgm import CloseCause, Closed, LossCause, LossError, Lost, Message, UsageError
from pgm.net.endpoint.receiver import Receiver
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S, Taken, taking
from tests.net.support.opened import injector, messages_of_sizes, planned
from tests.net.support.places import Place, one_segment

ROOM = 'inbox_bytes = "64KiB", rxw_bytes = "64MiB"'
COUNT = 1500


async def beside_a_fast_one(place: Place, slow: str) -> tuple[list[bytes], Receiver, Taken, Taken]:
    """Send while one receiver takes nothing.

    Return the messages, that receiver, its items, and the items of a fast one.
    """
    sent = messages_of_sizes([1000] * COUNT)
    async with AsyncExitStack() as stack:
        plan = planned(place, "desk-1", parameters=ROOM)
        lazy = await stack.enter_async_context(pgm.open_receiver(plan, slow=slow))
        other = await stack.enter_async_context(pgm.open_receiver(planned(place, "desk-2")))
        lazy.links[0].injector = injector(0.05)
        (taken,) = await stack.enter_async_context(taking(other))
        source = await stack.enter_async_context(pgm.open_source(planned(place, "source")))
        for at in range(0, len(sent), 50):
            await source.send_batch(sent[at : at + 50])
        await source.aclose()
        (late,) = await stack.enter_async_context(taking(lazy))
    return sent, lazy, late, taken


@pytest.mark.parametrize("slow", ["drop-oldest", "drop-newest", "close", "block"])
async def test_a_slow_application_gets_what_its_policy_says(place: Place, slow: str) -> None:
    sent, lazy, late, fast = await beside_a_fast_one(place, slow)
    assert fast.messages == sent
    assert not fast.lost
    assert lazy.counters.repaired_sqns > 10 or slow == "close"
    room = 64  # messages of 1000 octets
    if slow == "close":
        assert late.causes == [CloseCause.OVERRUN]
        assert len(late.messages) < COUNT
        assert late.messages[:20] == sent[:20]
        survivors = iter(sent)
        assert all(message in survivors for message in late.messages), "out of order"
        assert {one.cause for one in late.lost} <= {LossCause.OVERRUN}
        return
    assert late.causes == [CloseCause.FIN]
    assert len(late.messages) + sum(one.count for one in late.lost) == COUNT
    if slow == "block":  # as much as the receive window holds waits
        assert late.messages == sent
        return
    assert {one.cause for one in late.lost} == {LossCause.OVERRUN}
    assert len(late.messages) <= room
    assert late.messages == (sent[-len(late.messages) :] if slow == "drop-oldest" else sent[: len(late.messages)])
    assert lazy.counters.lost_sqns == 0, "what was dropped had been delivered: repair went on all the time"


def lossy(place: Place) -> pgm.Topology:
    """Return a topology without repairs, so that every loss is final."""
    text = one_segment(place, rate="20Mbit/s")
    return loads(text.replace("[streams.s]\n", '[streams.s]\norder = "unreliable"\n'))


async def test_a_loss_is_raised_where_it_belongs_and_iteration_goes_on(place: Place) -> None:
    sent = messages_of_sizes([500] * 300)
    topology = lossy(place)
    got: list[bytes] = []
    lost = 0
    told: set[tuple[str, LossCause]] = set()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(pgm.open_receiver(topology, node="desk-1", on_loss="raise"))
        receiver.links[0].injector = injector(0.1)
        done = trio.Event()

        async def take() -> None:
            nonlocal lost
            while not done.is_set():
                try:
                    async for item in receiver:
                        assert not isinstance(item, Lost)
                        if isinstance(item, Message):
                            got.append(item.payload)
                        elif isinstance(item, Closed):
                            done.set()
                            break
                except LossError as error:
                    lost += error.lost.count
                    told.add((error.code, error.lost.cause))

        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(take)
        async with pgm.open_source(topology, node="source") as source:
            await source.send_batch(sent)
        with trio.fail_after(PATIENCE_S):
            await done.wait()
    assert lost > 5
    assert told == {("PGM-LOSS", LossCause.UNREPAIRED)}
    assert len(got) + lost == len(sent)


async def test_resync_goes_on_with_the_newest(place: Place) -> None:
    """An application that has fallen behind gets no data that is stale by then."""
    sent = messages_of_sizes([1000] * 12 * COUNT)
    tight = 'inbox_bytes = "64KiB", rxw_bytes = "9MiB"'
    async with AsyncExitStack() as stack:
        plan = planned(place, "desk-1", parameters=tight)
        lazy = await stack.enter_async_context(pgm.open_receiver(plan, on_loss="resync"))
        source = await stack.enter_async_context(pgm.open_source(planned(place, "source")))
        for at in range(0, len(sent), 50):
            await source.send_batch(sent[at : at + 50])
        await source.aclose()
        (late,) = await stack.enter_async_context(taking(lazy))
    assert {one.cause for one in late.lost} == {LossCause.OVERRUN, LossCause.RESYNC}
    assert len(late.messages) + sum(one.count for one in late.lost) == len(sent)
    assert late.causes == [CloseCause.FIN]


@pytest.mark.parametrize("busy_poll", [False, True])
def test_in_ordinary_threads(place: Place, busy_poll: bool) -> None:
    topology = lossy(place)
    lost = got = 0
    with pgm.blocking.open_receiver(topology, node="desk-1", on_loss="raise", busy_poll=busy_poll) as receiver:
        receiver.links[0].injector = injector(0.2)
        with pgm.blocking.open_source(topology, node="source") as source:
            source.send_batch(messages_of_sizes([500] * 100))
            while True:
                try:
                    item = receiver.recv(1.0)
                except LossError as error:
                    lost += error.lost.count
                    continue
                got += isinstance(item, Message)
                if item is None:
                    break
    assert lost
    assert got + lost <= 100


async def test_policies_unknown_policy_is_refused(place: Place) -> None:
    for wrong in ({"on_loss": "panic"}, {"slow": "faster"}):
        with pytest.raises(UsageError, match="is unknown"):
            async with pgm.open_receiver(planned(place, "desk-1"), **wrong):
                pass
