"""pgm's ends in an event loop: trio, asyncio or uvloop."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from deploy.bench.peers.control import PROBE_IVL_S, QUIET_S, Control, run_end
from deploy.bench.peers.loop_control import take_each, until_complete, until_over, until_word
from deploy.bench.peers.messages import MessageMaker, MessageTally, pattern
from deploy.bench.peers.ours.common import (
    both_of,
    counted,
    lose,
    receiver_opening,
    receiver_parameters,
    source_opening,
    source_parameters,
    subjects_of,
    window_of,
)
from deploy.bench.peers.repair_watch import OneBurst, ReceiverWatch, SourceWatch
from deploy.bench.peers.round_trips import RoundTrips, TripResult
from pgm.core.effects import Lost
from pgm.net.driver.event_loops import current_loop
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.items import Batch, Message
from pgm.net.framing.packed_batch import PackedBatch


async def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages."""
    async with open_source(**source_opening(job)) as source:
        loop, maker = current_loop(), MessageMaker(job["size"])
        watch = SourceWatch(source.driver.core)
        lose(source.driver.links, job)
        if job["watch"] and job["messages"]:  # a burst, for which the last repair is timed
            source.driver.core = watch
        control.say("ready")
        while control.word() != "go":
            if control.is_over:
                return
            await source.send_batch(probe := maker.probe(), subject=subjects_of(probe, job), flush=True)
            await loop.sleep(PROBE_IVL_S)
        seconds = await send_all(source, maker, job)
        control.say("sent", messages=maker.made, seconds=seconds, **window_of(watch), **counted(source.counters))
        await until_word(control, "report")
        control.say("repairs", **watch.result())
        await until_over(control)


async def send_all(source: Source, maker: MessageMaker, job: Mapping[str, Any]) -> float:
    """Send all messages of the job and return the seconds used."""
    subjects = subjects_of(maker.rows, job)
    begun_ns = time.monotonic_ns()
    until_ns = begun_ns + round(job["seconds"] * 1e9)
    while maker.made < job["messages"] or (not job["messages"] and time.monotonic_ns() < until_ns):
        await source.send_batch(maker.next(), subject=subjects)
    await source.flush()
    return (time.monotonic_ns() - begun_ns) / 1e9


async def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive until all messages arrived, or until `quiet_s` of silence."""
    async with open_receiver(**receiver_opening(job)) as receiver:
        tally = MessageTally(job["size"])
        if job["batched"]:
            gc.freeze()  # a full collection would stop the reading for longer than the socket's buffer lasts
        watch, burst = ReceiverWatch(receiver.driver.core), OneBurst()
        if job["watch"]:
            receiver.driver.core = watch
            if job["messages"]:  # a burst; the injector costs time on every read
                receiver.links[0].injector = burst
        control.say("ready")
        async with current_loop().open_background() as tasks:
            tasks.start_soon(take_each if job["each"] else _take_batches, receiver, tally)
            await until_complete(control, job, tally, burst)
        control.say("result", **tally.result(), **counted(receiver.counters), **watch.result())
        await until_over(control)


async def _take_batches(receiver: Receiver, tally: MessageTally) -> None:
    async for item in receiver.batches():
        if isinstance(item, (Batch, PackedBatch)):
            tally.add(item.payloads)


async def ping(control: Control, job: Mapping[str, Any]) -> None:
    """Send requests and measure the times to their answers."""
    async with _both(job, is_ping=True) as (source, receiver):
        control.say("ready")
        await until_word(control, "go")
        payload = pattern(job["size"]).tobytes()
        trips = RoundTrips(job["seconds"])
        while not trips.are_over:
            trips.begin()
            await source.send(payload)
            answered = await _answer(receiver)
            trips.end(answered)
        control.say("result", **trips.result(), **counted(receiver.counters))
        await until_over(control)


async def _answer(receiver: Receiver) -> TripResult:
    result = TripResult.NO

    async def take() -> None:
        nonlocal result
        async for item in receiver:
            if isinstance(item, (Message, Lost)):
                result = TripResult.YES if isinstance(item, Message) else TripResult.LOST
                return

    await current_loop().within(QUIET_S, take)
    return result


async def pong(control: Control, job: Mapping[str, Any]) -> None:
    """Answer each request."""
    async with _both(job, is_ping=False) as (source, receiver):
        control.say("ready")

        async def answer() -> None:
            async for item in receiver:
                if isinstance(item, Message):
                    await source.send(item.payload)

        async with current_loop().open_background() as tasks:
            tasks.start_soon(answer)
            await until_over(control)


@asynccontextmanager
async def _both(job: Mapping[str, Any], *, is_ping: bool) -> AsyncIterator[tuple[Source, Receiver]]:
    """Open a source and a receiver in one process. The source sends to the group of the other end's receiver."""
    asking, listening = both_of(job, is_ping=is_ping)
    async with (
        open_receiver(**listening, **receiver_parameters(job)) as receiver,
        open_source(**asking, **source_parameters(job)) as source,
    ):
        yield source, receiver


if __name__ == "__main__":
    run_end({"send": send, "recv": recv, "ping": ping, "pong": pong})
