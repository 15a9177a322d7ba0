"""pgm's ends with many sources in one process: one node, a session for each source, one receiver of all."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import trio

from deploy.bench.peers.control import PROBE_IVL_S, Control, run_end
from deploy.bench.peers.loop_control import until_complete, until_over, until_word
from deploy.bench.peers.messages import MessageMaker, SessionTallies
from deploy.bench.peers.ours.common import counted, receiver_opening, source_opening
from deploy.bench.peers.ours.event_loop import send_all
from pgm.core.counters import Counters
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.framing.items import Batch

_SHARED = ("txw_max_rte", "txw_bytes", "warm_bytes")  # between the sources, which together have those of one source


async def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages from every source."""
    opening = source_opening(job)
    opening |= {key: opening[key] // job["streams"] for key in _SHARED}
    async with AsyncExitStack() as stack:
        sources = [await stack.enter_async_context(open_source(**opening)) for _ in range(job["streams"])]
        makers = [MessageMaker(job["size"]) for _ in sources]
        control.say("ready")
        while control.word() != "go":
            if control.is_over:
                return
            for source, maker in zip(sources, makers, strict=True):
                await source.send_batch(maker.probe())
            await trio.sleep(PROBE_IVL_S)
        times: list[float] = []

        async def send_one(source: Source, maker: MessageMaker) -> None:
            times.append(await send_all(source, maker, job))

        async with trio.open_nursery() as nursery:
            for source, maker in zip(sources, makers, strict=True):
                nursery.start_soon(send_one, source, maker)
        total = Counters.total(source.counters for source in sources)
        control.say("sent", messages=sum(maker.made for maker in makers), seconds=max(times), **counted(total))
        await until_word(control, "report")
        control.say("repairs")
        await until_over(control)


async def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive until all messages arrived, or until `quiet_s` of silence."""
    async with open_receiver(**receiver_opening(job)) as receiver:
        tallies = SessionTallies(job["size"], job["streams"])
        control.say("ready")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_take, receiver, tallies)
            await until_complete(control, job, tallies)
            nursery.cancel_scope.cancel()
        control.say("result", **tallies.result(), **counted(receiver.counters))
        await until_over(control)


async def _take(receiver: Receiver, tallies: SessionTallies) -> None:
    async for item in receiver.batches():
        if isinstance(item, Batch):
            tallies.add(item.tsi, item.payloads)


if __name__ == "__main__":
    run_end({"send": send, "recv": recv})
