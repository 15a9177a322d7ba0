"""pgm's ends on the trio driver for messages that share packets."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from typing import Any

import trio

from deploy.bench.peers.control import PROBE_IVL_S, Control
from deploy.bench.peers.messages import MessageMaker, MessageTally
from deploy.bench.peers.ours.batched import PATTERN, batched_parameters, batched_target, subjects_of
from deploy.bench.peers.ours.common import counted, receiver_parameters, window_of
from deploy.bench.peers.trio_control import take_each, until_complete, until_over
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.packed_batch import PackedBatch


async def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages of ten subjects in turn."""
    opening = batched_target(job, "sender", is_source=True)
    async with open_source(**opening, **batched_parameters(job)) as source:
        maker = MessageMaker(job["size"])
        subjects = subjects_of(maker.rows)
        control.say("ready")
        while control.word() != "go":
            if control.is_over:
                return
            await source.send_batch(probe := maker.probe(), subject=subjects_of(probe), flush=True)
            await trio.sleep(PROBE_IVL_S)
        begun_ns = time.monotonic_ns()
        until_ns = begun_ns + round(job["seconds"] * 1e9)
        while maker.made < job["messages"] or (not job["messages"] and time.monotonic_ns() < until_ns):
            await source.send_batch(maker.next(), subject=subjects)
        await source.flush()
        seconds = (time.monotonic_ns() - begun_ns) / 1e9
        kept = window_of(source.driver.core)
        control.say("sent", messages=maker.made, seconds=seconds, **kept, **counted(source.counters))
        await until_over(control)


async def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive by a wildcard subscription until all messages arrived.

    `quiet_s` of silence ends the reception as well.
    """
    opening = batched_target(job, "receiver", is_source=False)
    async with open_receiver(**opening, subjects=[PATTERN], **receiver_parameters(job)) as receiver:
        tally = MessageTally(job["size"])
        gc.freeze()  # a full collection would stop the reading for longer than the socket's buffer lasts
        control.say("ready")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_each if job["each"] else _take_batches, receiver, tally)
            await until_complete(control, job, tally)
            nursery.cancel_scope.cancel()
        control.say("result", **tally.result(), **counted(receiver.counters))
        await until_over(control)


async def _take_batches(receiver: Receiver, tally: MessageTally) -> None:
    async for item in receiver.batches():
        if isinstance(item, PackedBatch):
            tally.add(item.payloads)


_ENDS = {"send": send, "recv": recv}


def main() -> None:
    """Run the end that the first argument names."""
    trio.run(_ENDS[sys.argv[1]], Control(), Control.job())


if __name__ == "__main__":
    main()
