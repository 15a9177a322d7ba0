"""Receiver for applications: an async iterator over messages, losses, openings and closings."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import chain
from typing import Any, Generic, TypeVar, overload

from pgm.core.effects import Lost, NoSnapshot
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.window.reassembly import WholeMessages
from pgm.errors import UsageError
from pgm.messages.objects import CBOR, Codec
from pgm.messages.structures import require_structure
from pgm.messages.subjects import Subscription
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.durable.past import PastMessages
from pgm.net.durable.position import Position
from pgm.net.endpoint.ack_positions import AckPositions
from pgm.net.endpoint.base import D, ReceiverView, Waits
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.policies import Policies, SnapshotError
from pgm.net.endpoint.queue_item import QueueContent, QueueItem
from pgm.net.endpoint.resumption import Resumption
from pgm.net.framing.codec import StreamDecoders
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Message, StreamMark, Unpacker, batch_of
from pgm.net.framing.objects import ObjectItem, object_of
from pgm.units import NEVER, SECOND
from pgm.wire.formats import Tsi

T = TypeVar("T")


class ReceiverEndpoint(ReceiverView[D]):
    """Receiver of streams on any surface: `waits` is all that differs between surfaces."""

    def __init__(
        self,
        core: ReceiverCore,
        driver: D,
        queue: Inbox | Resumption,
        waits: Waits,
        decoders: StreamDecoders,
        policies: Policies,
        positions: AckPositions,
    ) -> None:
        super().__init__(core, driver)
        self._resumption = queue if isinstance(queue, Resumption) else None
        self._inbox = inbox = queue.inbox if isinstance(queue, Resumption) else queue
        self.single = inbox.singles
        self._waits = waits
        self._decoders = decoders
        self.is_plain = decoders.is_plain
        self._policies = policies
        self._ready: deque[BatchItem | Message] = deque()  # items of one queue entry
        self._positions = positions
        self.unpacker = positions.unpacker

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """Add a subscription: take messages whose subject matches, too.

        A pattern of subjects, such as `/nasdaq/*` or `/nasdaq/...`, is for streams with batches. With ZeroMQ's framing
        the pattern is the octets with which the first part begins. Returns the argument for `unsubscribe`; `tag` is the
        caller's. Raises `UsageError` for an invalid pattern, and if no stream has subjects.
        """
        return self._decoders.subscribe(pattern, tag)

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription, from the next message on. A pattern subscribed twice must be removed twice.

        Raises `UsageError` if the subscription does not exist, and if no stream has subjects.
        """
        self._decoders.unsubscribe(which)
        self.put_back(self.unpacker.take_rest())
        kept = [item if isinstance(item, Message) else self._decoders.wanted(item) for item in self._ready]
        self._ready = deque(item for item in kept if item is not None)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a message's subject matches."""
        return self._decoders.matching(subject)

    def put_back(self, item: BatchItem | Message | None) -> None:
        """Put an item back at the front of the queue; None is ignored."""
        self._positions.put_back(item, self._ready)

    def ack(self, item: ObjectItem | BatchItem | Message) -> None:
        """Acknowledge an item and everything before it: the application has processed them.

        For a receiver with `ack="manual"`. The source counts the packets of the item as stable once every member has
        acknowledged them. In a stream that is not ordered an ack covers its item alone. Losses, openings and closings
        need no ack. Raises `UsageError` for a receiver with `ack="auto"`, and for a stream without acknowledgements.
        """
        if not self._positions.is_manual:
            raise UsageError(
                "this receiver acknowledges an item when the next one is taken", remedy='open it with ack="manual"'
            )
        if self._core.lacks_acks(item.tsi):
            raise UsageError(
                "the source of this item does not wait for acks", remedy='write flow = "acked" at the stream'
            )
        self.cover((item,))

    def cover(self, items: Iterable[ObjectItem | BatchItem | Message], held: tuple[Tsi, int] | None = None) -> None:
        """Acknowledge items where the source waits for that; not those from sqn `held` on in that session.

        The source waits for acks with a full window, so at most half a window is held.
        """
        for item in items:
            is_held = held is not None and item.tsi == held[0]
            before = held[1] if held is not None and is_held else NEVER
            self._positions.cover(item, before, self._core.ack_window(item.tsi) // 2 if is_held else 0)
            self._moved(item.tsi)

    def ack_by_hand(self) -> None:
        """Stop acks of items that were taken: the caller gathers items, and acknowledges them by `cover`."""
        self._positions.is_manual = True

    def finish(self) -> None:
        """Note that the application needs no further item, and has processed those that it has."""
        if self._resumption is not None:
            self._resumption.places.finish(self._ready[0] if self._ready else None)
        self._come_back()

    def _come_back(self) -> None:
        tsi = self._positions.come_back(self._ready)
        if tsi is not None:
            self._moved(tsi)

    def _moved(self, tsi: Tsi) -> None:
        """Tell the core that the application has moved, which may make an ack due."""
        if self._positions.has_members:
            self._driver.call(self._core.taken, tsi, self._driver.now_ns())

    async def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """Return the next batch, loss, opening or closing. None once closed, or if none came within `timeout_s`."""
        rest = self.unpacker.take_rest()
        if rest is not None:
            return rest
        item = await self.next_item(timeout_s)
        return batch_of(item) if isinstance(item, Message) else item

    async def next_item(self, timeout_s: float | None = None) -> BatchItem | Message | None:
        """Wait for the next item, behind that of the unpacker; a single message comes without a batch around it.

        The timeout is for waiting: queued items come in any case. None once closed, or after the timeout.
        """
        await self._waits.pause(yields=False)
        inbox, waits, resumption = self._inbox, self._waits, self._resumption
        self.single.prepare()
        until_ns, is_over = NEVER if timeout_s is None else -1, False
        while (item := self.pop(drains=is_over)) is None:
            if is_over or inbox.is_closed:
                return None
            if until_ns < 0:
                until_ns = time.monotonic_ns() + round(timeout_s * SECOND) if timeout_s else 0
            elif until_ns != NEVER and time.monotonic_ns() >= until_ns:
                is_over = True  # and no further turn follows
                continue
            is_waiting = resumption is not None and resumption.entries.is_waiting
            if inbox and not is_waiting:
                before = self.counters.received_octets
                await waits.catch_up()
                inbox.had_turn(self.counters.received_octets - before)
                continue
            check_ns = inbox.begin_wait()
            if resumption is not None and is_waiting:
                check_ns = min(check_ns, time.monotonic_ns() + resumption.poll_ivl)
            await waits.wait(min(until_ns, check_ns))
            if check_ns != NEVER:
                inbox.drop_stalled()
        return item

    def pop(self, *, drains: bool = False) -> BatchItem | Message | None:
        """Return the next item that waits; None if none does, or if the sockets must have a turn first."""
        ready, single, resumption = self._ready, self.single, self._resumption
        entries = self._inbox if resumption is None else resumption.entries
        if self._positions.has_entry:
            self._come_back()
        if resumption is not None:
            resumption.note()
        while not ready:
            message = single.message
            if message is not None:
                single.message = None
                return message  # policies are about losses
            queued = entries.pop(drains=drains or self._inbox.is_closed)
            if resumption is not None and (freed := resumption.entries.free()):
                self._driver.call(self._core.grant, freed)
            if queued is None:
                return None
            self._driver.require_usable()  # a handler of notices may have closed it
            if isinstance(queued.found, NoSnapshot):
                raise SnapshotError(queued.found)
            self._take(queued)
            if not ready:
                self._come_back()  # nothing of the entry is for the application
        item = self._positions.give(ready.popleft(), ready)
        if resumption is not None:
            resumption.places.give(item)
        return self._policies.checked(item)

    def _take(self, queued: QueueItem) -> None:
        content = queued.found
        assert not isinstance(content, NoSnapshot)
        if queued.frees_octets:
            try:
                self._driver.call(self._core.grant, queued.frees_octets)
            except BaseException:  # from a notice's handler, or a signal's
                self._inbox.put_back(content)
                raise
        if self.is_plain and isinstance(content, WholeMessages) and content.run.count == 1:
            self._ready.append(Message(content.run.alone(), content.run.first, content.tsi))  # without a batch's cost
            self._positions.begin(content, None)
            return
        items = self._items_of(content)
        self._ready.extend(items if self._resumption is None else self._resumption.places.counted(items))
        self._positions.begin(content, self._decoders.begun(content.tsi))

    def _items_of(self, content: QueueContent) -> Iterable[BatchItem]:
        """Return the items of messages that an entry of the queue yields."""
        if isinstance(content, PastMessages):
            taken = chain.from_iterable(self._decoders.take(item) for item in content.items)
            return filter(None, map(self._decoders.wanted, taken))
        return self._decoders.take(content if isinstance(content, (Lost, StreamMark)) else batch_of(content))

    @property
    def position(self) -> Position | None:
        """Return the position behind the item that the application got last; None before the first opening.

        An application stores `str(position)` in the transaction of the item, and gives it to `start=`: every message is then
        processed once. Raises `UsageError` for a receiver without `durable=`, or positions in `start=`.
        """
        if self._resumption is None:
            raise UsageError(
                "this receiver counts no positions",
                remedy="open it with start=[], or with the stored positions in start=",
            )
        return self._resumption.places.after_given(self._ready[0] if self._ready else None)

    def batches(self) -> AsyncIterator[BatchItem]:
        """Iterate over batches, in stream order with losses, openings and closings."""
        return _CallIterator(self.next_batch)

    def objects(self, codec: Codec = CBOR, *, type: Any = None) -> AsyncIterator[ObjectItem]:  # noqa: A002
        """Iterate over the values of messages, in stream order with losses, openings and closings.

        With `type` each value becomes an object of that type, by cattrs. Raises `UsageError` for an impossible type.
        """
        require_structure(type)

        async def step() -> ObjectItem | None:
            item = await self._next_message()
            return None if item is None else object_of(item, codec, type, self.counters)

        return _CallIterator(step)

    def __aiter__(self) -> AsyncIterator[Item]:
        return _MessageIterator(self.unpacker, self._next_message)

    async def _next_message(self) -> Item | None:
        message = self.unpacker.next()
        while message is None:
            item = await self.next_item()
            if not isinstance(item, AnyBatch):
                return item
            message = self.unpacker.open(item)
        return message


class Receiver(ReceiverEndpoint[NodeDriver]):
    """Receiver of streams, opened by `pgm.open_receiver`. Only one task at a time may iterate over it.

    When the application falls behind by `inbox_bytes`, delivery stops and repair continues. Data that then exceeds the
    receive window is reported as `Lost` with cause OVERRUN.
    """


class _CallIterator(Generic[T]):
    """Results of a call, up to the first None. No generator: a loop that stops early leaves nothing to close."""

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
