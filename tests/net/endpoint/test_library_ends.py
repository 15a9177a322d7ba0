"""Ends of the library's blocks, loops and calls, over real multicast on loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

import pgm
from pgm import Batch, CloseCause, Message
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S, taking
from tests.net.support.opened import bound_socket, messages_of_sizes, open_files
from tests.net.support.places import Place, one_segment


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
            assert len(open_files()) == len(files) + 7  # three each, and the source's socket to its group
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


async def test_a_send_after_the_block_says_so(place: Place) -> None:
    topology = loads(one_segment(place))
    async with pgm.open_source(topology, node="source") as source:
        await source.send(b"x")
    with pytest.raises(pgm.UsageError):
        await source.send(b"y")


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


async def test_the_cause_of_an_error_in_the_block_stays(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(pgm.TransportError) as caught, bound_socket(place.address(1), place.port):
        async with pgm.open_source(topology, node="source"):
            pass
    assert isinstance(caught.value.__cause__, OSError)


async def test_groups_of_the_application_pass_as_they_are(place: Place) -> None:
    topology = loads(one_segment(place))
    with pytest.raises(ExceptionGroup) as caught:
        async with pgm.open_receiver(topology, node="desk-1"):
            raise ExceptionGroup("mine", [ValueError("one")])
    assert caught.value.message == "mine"
