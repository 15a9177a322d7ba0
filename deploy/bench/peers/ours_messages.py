"""Our ends on the trio driver for messages with subjects that share packets: what `pgm bench messages` measures."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import trio

from deploy.bench.peers.control import PROBE_IVL_S, Control
from deploy.bench.peers.messages import Maker, Tally
from deploy.bench.peers.ours import PING_PORT, counted, receiver_parameters, source_parameters, target, window_of
from deploy.bench.peers.trio_control import take_each, until_complete, until_over
from pgm.net.open import open_receiver, open_source
from pgm.net.packed import PackedBatch
from pgm.net.receiver import Receiver
from pgm.wire.formats import DATA_HEADER_OCTETS

_BATCH_OCTETS = 100  # of a packet, at most, beside its messages: the table of subjects and the heads
SUBJECTS = tuple(f"/market/{number}" for number in range(10))
PATTERN = "/market/*"


def _opening(job: Mapping[str, Any], seat: str, *, is_source: bool) -> dict[str, Any]:
    opening = target(job, seat, 0, PING_PORT, is_source=is_source)
    return {**opening, "target": opening["target"] + "&framing=batch"}


def _source_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    packet = job["max_datagram"]
    each = packet / max(1, (packet - DATA_HEADER_OCTETS - _BATCH_OCTETS) // (job["size"] + 1))
    found = source_parameters(job)
    return {**found, "max_tpdu": packet, "txw_max_rte": round(job["rate"] * each) or found["txw_max_rte"]}


async def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages of ten subjects in turn."""
    async with open_source(**_opening(job, "sender", is_source=True), **_source_parameters(job)) as source:
        maker = Maker(job["size"])
        places = np.arange(maker.count, dtype=np.uint8) % len(SUBJECTS)
        control.say("ready")
        while control.word() != "go":
            if control.is_over:
                return
            await source.send_batch(maker.probe(), subject=SUBJECTS[0], flush=True)
            await trio.sleep(PROBE_IVL_S)
        begun_ns = time.monotonic_ns()
        until_ns = begun_ns + round(job["seconds"] * 1e9)
        while maker.made < job["messages"] or (not job["messages"] and time.monotonic_ns() < until_ns):
            await source.send_batch(maker.next(), subject=(SUBJECTS, places))
        await source.flush()
        seconds = (time.monotonic_ns() - begun_ns) / 1e9
        kept = window_of(source.driver.core)
        control.say("sent", messages=maker.made, seconds=seconds, **kept, **counted(source.counters))
        await until_over(control)


async def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive, by a subscription with a wildcard, until everything is there or nothing comes any more."""
    opening = _opening(job, "receiver", is_source=False)
    async with open_receiver(**opening, subjects=[PATTERN], **receiver_parameters(job)) as receiver:
        tally = Tally(job["size"])
        gc.freeze()  # a full collection would stop the reading for longer than the socket's buffer lasts
        control.say("ready")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_each if job["each"] else _take_batches, receiver, tally)
            await until_complete(control, job, tally)
            nursery.cancel_scope.cancel()
        control.say("result", **tally.result(), **counted(receiver.counters))
        await until_over(control)


async def _take_batches(receiver: Receiver, tally: Tally) -> None:
    async for item in receiver.batches():
        if isinstance(item, PackedBatch):
            tally.add(item.payloads)


_ENDS = {"send": send, "recv": recv}


def main() -> None:
    """Run the end that the first argument names."""
    trio.run(_ENDS[sys.argv[1]], Control(), Control.job())


if __name__ == "__main__":
    main()
