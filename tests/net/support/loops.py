"""Tests under asyncio: one body for each loop, and an application that receives until the streams end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pgm import CloseCause
from pgm.net.endpoint.receiver import Receiver
from tests.net.support.listening import PATIENCE_S, Taken

Run = Callable[[Coroutine[Any, Any, None]], None]


def runner_of(library: str) -> Run:
    """Return a function that runs a coroutine in a loop of the library, within a time limit."""
    run = asyncio.run if library == "asyncio" else pytest.importorskip(library).run

    async def limited(main: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main

    return lambda main: run(limited(main))


async def until(holds: Callable[[], object]) -> None:
    """Wait for a condition without an event, such as the value of a counter."""
    while not holds():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


async def take_until_closed(receiver: Receiver, streams: int, taken: Taken) -> None:
    """Receive items until `streams` streams have ended."""
    taken.counters = receiver.counters
    async for item in receiver.batches():
        taken.take(item)
        if len([one for one in taken.causes if one is not CloseCause.SILENT]) >= streams:
            return


@asynccontextmanager
async def taking(*receivers: Receiver, streams: int = 1) -> AsyncIterator[list[Taken]]:
    """Receive with several receivers while the block runs; at its end all have everything."""
    found = [Taken() for _ in receivers]
    async with asyncio.TaskGroup() as group:
        for receiver, taken in zip(receivers, found, strict=True):
            group.create_task(take_until_closed(receiver, streams, taken))
        yield found
