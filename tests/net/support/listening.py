"""Applications of the tests: receive everything until the streams end, within a time limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from pgm import Batch, CloseCause, Closed, Lost, Message, Opened
from pgm.core.counters import Counters
from pgm.messages.zmtp import Parts
from pgm.net.endpoint.receiver import Receiver
from pgm.net.framing.items import BatchItem

PATIENCE_S = 30.0
_LOOK_S = 0.001  # between two looks at what tells nobody of itself


async def until(holds: Callable[[], object]) -> None:
    """Wait for a condition without an event, such as the value of a counter."""
    with trio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(_LOOK_S)


@attrs.define
class Taken:
    """Everything that one receiver's application got."""

    payloads: dict[bytes, list[bytes]] = attrs.field(factory=dict)  # by TSI
    events: list[Lost | Opened | Closed] = attrs.field(factory=list)
    counters: Counters = attrs.field(factory=Counters)

    def take(self, item: BatchItem) -> None:
        if isinstance(item, Batch):
            self.payloads.setdefault(item.tsi, []).extend(item)
        else:
            self.events.append(item)

    @property
    def messages(self) -> list[bytes]:
        """Return the messages of the only session, or none."""
        assert len(self.payloads) <= 1, "several sessions"
        return next(iter(self.payloads.values()), [])

    @property
    def opened(self) -> list[Opened]:
        return [one for one in self.events if isinstance(one, Opened)]

    @property
    def lost(self) -> list[Lost]:
        return [one for one in self.events if isinstance(one, Lost)]

    @property
    def closed(self) -> list[Closed]:
        return [one for one in self.events if isinstance(one, Closed)]

    @property
    def causes(self) -> list[CloseCause]:
        return [one.cause for one in self.closed]


async def take_all(receiver: Receiver, streams: int = 1, taken: Taken | None = None) -> Taken:
    """Receive items until `streams` streams have ended."""
    taken = Taken() if taken is None else taken
    taken.counters = receiver.counters
    with trio.move_on_after(PATIENCE_S) as patience:
        async for item in receiver.batches():
            taken.take(item)
            if len([one for one in taken.causes if one is not CloseCause.SILENT]) >= streams:
                break
    assert not patience.cancelled_caught, f"it never ended: {taken.events}, {taken.counters.snapshot()}"
    return taken


@asynccontextmanager
async def taking(*receivers: Receiver, streams: int = 1) -> AsyncIterator[list[Taken]]:
    """Receive with several receivers while the block runs; at its end all have everything."""
    found = [Taken() for _ in receivers]
    async with trio.open_nursery() as nursery:
        for receiver, taken in zip(receivers, found, strict=True):
            nursery.start_soon(take_all, receiver, streams, taken)
        yield found


@attrs.define
class Got:
    """Messages that an application has received, one by one."""

    messages: list[Message] = attrs.field(factory=list)
    events: list[Lost | Opened | Closed] = attrs.field(factory=list)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    @property
    def parts(self) -> list[Parts]:
        return [message.parts for message in self.messages]

    @property
    def lost(self) -> list[Lost]:
        return [one for one in self.events if isinstance(one, Lost)]


async def take_messages(receiver: Receiver, got: Got) -> None:
    """Receive messages until the stream ends."""
    with trio.fail_after(PATIENCE_S):
        async for item in receiver:
            if isinstance(item, Message):
                got.messages.append(item)
                continue
            got.events.append(item)
            if isinstance(item, Closed):
                return
