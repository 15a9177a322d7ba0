"""Process with one source or one receiver of an address that many processes share.

    python -m tests.net.support.address_worker source trio pgm://... LOSS RATE    sends until its input ends
    python -m tests.net.support.address_worker receiver trio pgm://... LOSS       receives until its input ends

Each line of the output is a JSON object. A message is the process of the source and a number.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import attrs
import trio

import pgm
import pgm.blocking
from pgm.impairments import Impairment, Injector
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.topology.node_plan import NodePlan, Role

DRIVERS = ("trio", "asyncio", "busy-poll")
BODY = b"." * 200
FEWEST = 20  # messages of a source, also of one that is told to end at once
_TURN_S = 0.002  # between two polls of a busy-poll source, which leaves the processor to other processes here


@attrs.define
class Tally:
    """Messages of one source that one receiver got."""

    first: int
    next: int
    missing: int = 0
    disorder: int = 0

    @staticmethod
    def of(texts: Iterable[bytes]) -> dict[str, Tally]:
        """Return the tallies of messages, by source."""
        tallies: dict[str, Tally] = {}
        for text in texts:
            Tally.note(tallies, text)
        return tallies

    @staticmethod
    def note(tallies: dict[str, Tally], text: bytes) -> None:
        """Note one message."""
        source, number = text.split()[:2]
        at = int(number)
        tally = tallies.setdefault(source.decode(), Tally(at, at))
        if at < tally.next:
            tally.disorder += 1
        else:
            tally.missing += at - tally.next
            tally.next = at + 1


def say(**news: Any) -> None:
    """Print a line for the parent."""
    print(json.dumps(news), flush=True)


def watch(link: Link) -> None:
    """Tell when this process becomes the owner of the address."""
    [shared] = link.sockets.shared
    inner, was_owner = shared.on_company, [False]

    def told() -> None:
        inner()
        if shared.owner_pid == os.getpid() and not was_owner[0]:
            was_owner[0] = True
            say(owner=os.getpid(), at=time.monotonic())

    shared.on_company = told
    told()


def has_ended() -> bool:
    """Return whether the parent has closed the input."""
    return bool(select.select([0], [], [], 0)[0])


def text_of(number: int) -> bytes:
    return b"%d %d " % (os.getpid(), number) + BODY


async def send(
    plan: NodePlan, outgoing: Injector, rate: float, sleep: Callable[[float], Coroutine[Any, Any, None]]
) -> None:
    """Send at a rate under trio or asyncio."""
    async with pgm.open_source(plan) as source:
        link: Link = source.links[0]
        link.outgoing = outgoing
        watch(link)
        say(ready=os.getpid())
        number, begun = 0, time.monotonic()
        while number < FEWEST or not has_ended():
            await source.send(text_of(number))
            number += 1
            rest_s = max(0.0, begun + number / rate - time.monotonic())
            await sleep(rest_s)
    say(sent=number)


def send_polling(plan: NodePlan, outgoing: Injector, rate: float) -> None:
    """Send at a rate with busy polling."""
    with pgm.blocking.open_source(plan, busy_poll=True) as source:
        link: Link = source.links[0]
        link.outgoing = outgoing
        watch(link)
        say(ready=os.getpid())
        number, begun = 0, time.monotonic()
        while number < FEWEST or not has_ended():
            source.send(text_of(number))
            number += 1
            while time.monotonic() < begun + number / rate:
                time.sleep(_TURN_S)
                source.poll()
    say(sent=number)


async def receive(plan: NodePlan) -> None:
    """Receive until the parent closes the input."""
    tallies: dict[str, Tally] = {}
    async with pgm.open_receiver(plan) as receiver, trio.open_nursery() as nursery:

        async def wait_for_end() -> None:
            await trio.lowlevel.wait_readable(0)
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait_for_end)
        say(ready=os.getpid())
        async for item in receiver:
            if isinstance(item, pgm.Message):
                Tally.note(tallies, bytes(item.payload))
    say(got={source: attrs.asdict(tally) for source, tally in tallies.items()})


def main() -> None:
    """Run as the arguments say."""
    role, driver, url, loss, *more = sys.argv[1:]
    impairment = Impairment(loss=float(loss))
    plan = resolve(url, None, Role(role), {})
    plan = attrs.evolve(plan, segments=tuple(attrs.evolve(one, impairment=impairment) for one in plan.segments))
    if role == "receiver":
        trio.run(receive, plan)
        return
    outgoing, rate = Injector(impairment, str(os.getpid())), float(more[0])
    if driver == "busy-poll":
        send_polling(plan, outgoing, rate)
    elif driver == "asyncio":
        asyncio.run(send(plan, outgoing, rate, asyncio.sleep))
    else:
        trio.run(send, plan, outgoing, rate, trio.sleep)


if __name__ == "__main__":
    main()
