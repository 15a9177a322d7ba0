"""Receiver for applications: an async iterator over messages, losses, openings and closings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

import trio

from pgm.core.effects import NOTHING, Closed, Lost, Opened
from pgm.core.receiver.receiver import ReceiverCore
from pgm.messages.objects import CBOR, Codec
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.endpoint.base import ReceiverEndpoint
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.policies import REPORTING, Policies
from pgm.net.endpoint.queue_item import QueueItem
from pgm.net.framing.codec import StreamDecoders
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Message, Unpacker, batch_of
from pgm.net.framing.objects import ObjectItem, object_of

T = TypeVar("T")


class Receiver(ReceiverEndpoint[TrioDriver]):
    """Receiver of streams, opened by `pgm.open_receiver`. Only one task at a time may iterate over it.

    When the application falls behind by `inbox_bytes`, delivery stops and repair continues. Data that then exceeds the
    receive window is reported as `Lost` with cause OVERRUN.
    """

    def __init__(
        self,
        core: ReceiverCore,
        inbox: Inbox,
        driver: TrioDriver,
        decoders: StreamDecoders,
        policies: Policies = REPORTING,
    ) -> None:
        super().__init__(core, driver, decoders)
        self._policies = policies
        self._inbox = inbox
        inbox.is_plain = decoders.is_plain

    async def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """Return the next batch, loss, opening or closing.

        None once closed, or if none came within `timeout_s`.
        """
        rest = self._unpacker.take_rest()
        if rest is not None:
            return rest
        item = None
        if timeout_s is None:
            item = await self._next()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
            item = await self._next_queued()
            if item is None:
                with trio.move_on_after(timeout_s):
                    item = await self._next()
        return batch_of(item) if isinstance(item, Message) else item

    async def _next_queued(self) -> BatchItem | Message | None:
        """Return the next item if one is queued, regardless of the timeout; None if none is queued."""
        for _ in range(len(self._inbox)):  # more may come meanwhile, and none may be wanted
            if self._ready:
                break
            queued = await self._inbox.next()
            if isinstance(queued, Message):
                return queued
            assert queued is not None  # the queue was not empty
            self._take(queued)
        return self._policies.checked(self._ready.popleft()) if self._ready else None

    async def _next(self) -> BatchItem | Message | None:
        """Wait for the next item; a single message unconverted; None once closed."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._ready:
            queued = await self._inbox.next()
            if queued is None:
                return None
            if isinstance(queued, Message):
                return queued
            self._take(queued)
        return self._policies.checked(self._ready.popleft())

    def _take(self, queued: QueueItem) -> None:
        if queued.frees_octets:
            effects = self._core.grant(queued.frees_octets)
            if effects is not NOTHING:  # else there was room already, and nothing follows
                try:
                    self._driver.perform_now(effects)
                except BaseException:  # from a notice's handler, or a signal's
                    self._inbox.put_back(queued.found)
                    raise
        content = queued.found
        item = content if isinstance(content, (Lost, Opened, Closed)) else batch_of(content)
        self._ready.extend(self._decoders.take(item))

    def batches(self) -> AsyncIterator[BatchItem]:
        """Iterate over batches, in stream order with losses, openings and closings."""
        return _CallIterator(self.next_batch)

    def objects(self, codec: Codec = CBOR) -> AsyncIterator[ObjectItem]:
        """Iterate over the values of messages, in stream order with losses, openings and closings."""

        async def step() -> ObjectItem | None:
            item = await self._next_item()
            return None if item is None else object_of(item, codec, self.counters)

        return _CallIterator(step)

    def __aiter__(self) -> AsyncIterator[Item]:
        return _MessageIterator(self._unpacker, self._next_item)

    async def _next_item(self) -> Item | None:
        message = self._unpacker.next()
        while message is None:
            item = await self._next()
            if item is None or not isinstance(item, AnyBatch):
                return item
            message = self._unpacker.open(item)
        return message


class _CallIterator(Generic[T]):
    """Iterator over the results of a call, up to the first None.

    It is no generator, so a loop that stops early leaves nothing to close.
    """

    def __init__(self, step: Callable[[], Awaitable[T | None]]) -> None:
        self._step = step

    def __aiter__(self) -> _CallIterator[T]:
        return self

    async def __anext__(self) -> T:
        item = await self._step()
        if item is None:
            raise StopAsyncIteration
        return item


class _MessageIterator:
    """Iterator over messages; takes unpacked messages without a call for each."""

    def __init__(self, unpacker: Unpacker, step: Callable[[], Awaitable[Item | None]]) -> None:
        self._unpacker = unpacker
        self._step = step

    def __aiter__(self) -> _MessageIterator:
        return self

    async def __anext__(self) -> Item:
        message = next(self._unpacker.messages, None)
        if message is not None:
            return message
        item = await self._step()
        if item is None:
            raise StopAsyncIteration
        return item
