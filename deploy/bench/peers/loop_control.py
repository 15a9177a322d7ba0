"""Waiting in an event loop for commands of the benchmark and for messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deploy.bench.peers.control import STDIN, Control
from deploy.bench.peers.messages import MessageTally, SessionTallies
from deploy.bench.peers.repair_watch import OneBurst
from pgm.net.driver.event_loops import current_loop
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import Message

_LOOK_S = 0.02  # between two checks for commands


async def next_word(control: Control) -> str:
    """Return the next word, or "" at the end of standard input."""
    loop = current_loop()
    while not (word := control.word()) and not control.is_over:
        await loop.readable(STDIN)
    return word


async def until_word(control: Control, wanted: str) -> None:
    """Wait for the word `wanted`, or for the end of standard input."""
    while await next_word(control) != wanted and not control.is_over:
        pass


async def until_over(control: Control) -> None:
    """Wait for the end of standard input."""
    while not control.is_over:
        await next_word(control)


async def take_each(receiver: Receiver, tally: MessageTally) -> None:
    """Take messages one by one."""
    async for item in receiver:
        if isinstance(item, Message):
            tally.add_one(item.payload)


async def until_complete(
    control: Control, job: Mapping[str, Any], tally: MessageTally | SessionTallies, burst: OneBurst | None = None
) -> None:
    """Wait until all expected messages arrived, or until `quiet_s` of silence.

    Says "hears" after the first probe. Starts the burst of losses at the word "lose".
    """
    loop, expected, heard = current_loop(), None, False
    seen, since = -1, time.monotonic()
    while not control.is_over:
        if not heard and tally.probes:
            heard = True
            control.say("hears")
        word = control.word()
        if word.startswith("expect"):
            expected = int(word.split()[1])
        elif burst is not None and word.startswith("lose"):
            burst.begin(int(word.split()[1]))
            control.say("loses")
        if tally.messages != seen:
            seen, since = tally.messages, time.monotonic()
            if isinstance(tally, MessageTally) and job["each"]:
                tally.stamp()
        if expected is not None and (tally.messages >= expected or time.monotonic() - since > job["quiet_s"]):
            return
        await loop.sleep(_LOOK_S)
