"""Items that a receiver hands to the application, in stream order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import length_hint

import attrs
import numpy as np

from pgm.core.effects import Closed, Conflict, Forged, Lost, Opened, Snapshot
from pgm.core.source_names import FromSession
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.messages.zmtp import Parts
from pgm.net.framing.packed_batch import PackedBatch
from pgm.wire.formats import Tsi
from pgm.wire.train import Octets


@attrs.define(unsafe_hash=True)  # not frozen: construction of a frozen one takes three times as long
class Message(FromSession):
    """One message. `sqn` is the 64-bit number of its first packet; the payload is a copy.

    With ZeroMQ's framing a message may have several parts, and a packet several messages. The payload is the
    concatenation of all parts.
    """

    payload: bytes
    sqn: int
    tsi: Tsi
    _parts: Parts = ()  # only if there are several
    subject: str | None = None  # of streams with batches

    @property
    def parts(self) -> Parts:
        """Return the parts as they were sent; one part without ZeroMQ's framing."""
        return self._parts or (self.payload,)


@attrs.define(eq=False)
class PartMessage(Message):
    """Message of a receiver with `ack="manual"` whose packets are more than one, or shared with other messages."""

    last: int = -1  # the newest sqn that an ack of it covers


@attrs.frozen(eq=False)
class Batch(FromSession):
    """Consecutive messages of equal size, without an object for each.

    `payloads` is a (count, size) view of receive memory. That memory is not reused while the view exists, so an
    application that keeps the batch calls `copy()`.
    """

    tsi: Tsi
    first_sqn: int
    payloads: Octets
    packets_each: int = 1  # packets of each message
    last: int = -1  # with ack="manual": the newest sqn that an ack of the batch covers

    def __len__(self) -> int:
        return int(self.payloads.shape[0])

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the messages, each as its own byte string."""
        octets, size = self.payloads.tobytes(), self.payloads.shape[1]
        for at in range(0, len(octets), size or 1):
            yield octets[at : at + size]
        if not size:
            yield from (b"" for _ in range(len(self)))

    def copy(self) -> Batch:
        """Return a copy of the batch in memory of its own."""
        return attrs.evolve(self, payloads=self.payloads.copy())


@attrs.frozen(eq=False)
class MultipartBatch(FromSession):
    """Successive messages in ZeroMQ's framing: `messages` has the parts of each, `sqns` that of its first packet."""

    tsi: Tsi
    messages: Sequence[Parts]
    sqns: Sequence[int]
    last: int = -1  # as in a Batch
    index: int = 0  # messages of its first packet before the batch, where the receiver counts them

    def __len__(self) -> int:
        return len(self.messages)

    def place(self, number: int) -> tuple[int, int]:
        """Return the sqn of one message's packet, and the place of the message in it."""
        sqn = self.sqns[number]
        first = bisect_left(self.sqns, sqn)
        return sqn, number - first + (0 if first else self.index)

    def behind(self, taken: int, index: int) -> MultipartBatch:
        """Return the batch without its first `taken` messages. `index` messages of its first packet lie before it."""
        counted = attrs.evolve(self, index=index)
        if not taken:
            return counted
        index = counted.place(taken)[1]
        return attrs.evolve(self, messages=self.messages[taken:], sqns=self.sqns[taken:], index=index)

    def __iter__(self) -> Iterator[Parts]:
        """Iterate over the messages, each as a tuple of its parts."""
        return iter(self.messages)


_OBJECTS_AT_ONCE = 512  # messages that become objects together: fewer cost more each, more delay the first one


class Unpacker:
    """Iterator over a batch, message by message. A loop that stops early can continue at the same message."""

    def __init__(self) -> None:
        self._batch: AnyBatch | None = None
        self._converted = 0  # messages of the batch that became objects
        self.messages: Iterator[Message] = iter(())  # the objects that the application has not taken yet
        # The batch, the end of its objects, and those not taken. One value, because another thread may read it.
        self._begun: tuple[AnyBatch, int, Iterator[Message]] | None = None

    @property
    def has_rest(self) -> bool:
        """Return whether a batch is open."""
        return self._batch is not None

    @property
    def begun_sqn(self) -> int | None:
        """Return the sqn of the message that the application was given last, or of an earlier one; None without a batch."""
        if self._begun is None:
            return None
        batch, end, messages = self._begun
        return sqn_at(batch, max(0, end - length_hint(messages) - 1))

    def given_place(self) -> tuple[Tsi, int, int] | None:
        """Return session, sqn and place in the packet of the message that was given last, or of an earlier one."""
        if self._begun is None:
            return None
        batch, end, messages = self._begun
        return batch.tsi, *place_in(batch, max(0, end - length_hint(messages) - 1))

    def next_place(self) -> tuple[int, int] | None:
        """Return sqn and place in the packet of the next message of the batch; None without one."""
        if self._begun is None:
            return None
        batch, end, messages = self._begun
        taken = end - length_hint(messages)
        return place_in(batch, taken) if taken < len(batch) else None

    def open(self, batch: AnyBatch) -> Message | None:
        """Open a batch. Return its first message."""
        self._batch, self._converted = batch, 0
        return self._convert()

    def next(self) -> Message | None:
        """Return the next message of the batch; None after its last."""
        message = next(self.messages, None)
        return self._convert() if message is None else message

    def _convert(self) -> Message | None:
        batch, first = self._batch, self._converted
        if batch is None or first >= len(batch):
            self._batch = self._begun = None
            return None
        self._converted = min(first + _OBJECTS_AT_ONCE, len(batch))
        self.messages = iter(_messages_of(batch, first, self._converted))
        self._begun = batch, self._converted, self.messages
        return next(self.messages)

    def take_rest(self) -> AnyBatch | None:
        """Return the messages of the batch that were not taken, and close it; None if there are none."""
        batch = self._batch
        if batch is None:
            return None
        taken = self._converted - length_hint(self.messages)
        self._batch, self._begun, self.messages = None, None, iter(())
        if taken >= len(batch):
            return None
        if isinstance(batch, (PackedBatch, MultipartBatch)):
            return batch.behind(taken, batch.index)
        return attrs.evolve(batch, first_sqn=batch.first_sqn + taken, payloads=batch.payloads[taken:])


def _messages_of(batch: AnyBatch, first: int, end: int) -> list[Message]:
    """Return messages `first` to `end - 1` as objects, by C-level loops (`map`): small messages take most time here."""
    if batch.last >= 0 and not _has_packet_each(batch):
        return _parts_of(batch, first, end)
    if isinstance(batch, PackedBatch):
        part = batch if end - first == len(batch) else batch.part(first, end)
        more = repeat(batch.tsi), repeat(()), part.subjects_of_all()
        return list(map(Message, part.columns.payloads(), part.sqns.tolist(), *more))
    if isinstance(batch, MultipartBatch):
        messages = []
        for parts, sqn in zip(batch.messages[first:end], batch.sqns[first:end], strict=True):
            several = len(parts) > 1
            messages.append(Message(b"".join(parts) if several else parts[0], sqn, batch.tsi, parts if several else ()))
        return messages
    payloads = attrs.evolve(batch, payloads=batch.payloads[first:end])
    return list(map(Message, payloads, range(batch.first_sqn + first, batch.first_sqn + end), repeat(batch.tsi)))


def _has_packet_each(batch: AnyBatch) -> bool:
    """Return whether an ack of a message covers its sqn and no other."""
    return isinstance(batch, Batch) and batch.packets_each == 1 and batch.last == batch.first_sqn + len(batch) - 1


def _parts_of(batch: AnyBatch, first: int, end: int) -> list[Message]:
    """Return messages `first` to `end - 1` as objects that know what an ack of them covers."""
    messages = _messages_of(attrs.evolve(batch, last=-1), first, end)
    after = sqn_at(batch, end) if end < len(batch) else batch.last + 1
    begins = [message.sqn for message in messages[1:]] + [after]
    return [
        PartMessage(message.payload, message.sqn, message.tsi, message._parts, message.subject, begin - 1)  # noqa: SLF001
        for message, begin in zip(messages, begins, strict=True)
    ]


def sqn_at(batch: AnyBatch, place: int) -> int:
    """Return the sqn of the first packet of one message of a batch."""
    if isinstance(batch, Batch):
        return batch.first_sqn + place * batch.packets_each
    return batch.sqn_at(place) if isinstance(batch, PackedBatch) else batch.sqns[place]


def place_in(batch: AnyBatch, number: int) -> tuple[int, int]:
    """Return the sqn of one message of a batch, and its place in the packet."""
    return (sqn_at(batch, number), 0) if isinstance(batch, Batch) else batch.place(number)


def first_sqn_of(item: BatchItem | Message) -> int:
    """Return the sqn at which an item begins."""
    if isinstance(item, Message):
        return item.sqn
    if isinstance(item, (Lost, Conflict, Forged, Opened)):
        return item.first
    if isinstance(item, Snapshot):
        return item.position
    return item.next_sqn if isinstance(item, Closed) else sqn_at(item, 0)


def span_of(item: BatchItem | Message) -> tuple[int, int]:
    """Return the first and the last sqn that an ack of an item covers; none for a mark in the stream."""
    first = first_sqn_of(item)
    if isinstance(item, Message):
        return first, item.last if isinstance(item, PartMessage) else first
    if isinstance(item, StreamMark):
        return first, first - 1
    if isinstance(item, Lost):
        return first, first + item.count - 1
    if item.last >= 0:
        return first, item.last
    return first, sqn_at(item, len(item)) - 1 if isinstance(item, Batch) else sqn_at(item, len(item) - 1) - 1


def with_last(item: BatchItem | Message, last: int) -> BatchItem | Message:
    """Return a batch whose ack covers everything up to `last`; return another item unchanged."""
    return attrs.evolve(item, last=last) if isinstance(item, AnyBatch) else item


AnyBatch = Batch | MultipartBatch | PackedBatch
StreamMark = Conflict | Forged | Opened | Closed | Snapshot  # items that take no place in the stream
Item = Message | Lost | StreamMark
BatchItem = AnyBatch | Lost | StreamMark


def batch_of(content: WholeMessages | LargeMessage | Message) -> Batch:
    """Return a result of reassembly, or a single message, as a batch."""
    if isinstance(content, Message):
        return Batch(
            content.tsi, content.sqn, np.frombuffer(content.payload, np.uint8).reshape(1, len(content.payload))
        )
    if isinstance(content, LargeMessage):
        return Batch(content.tsi, content.first, np.frombuffer(content.payload, np.uint8).reshape(1, -1), content.count)
    return Batch(content.tsi, content.run.first, content.payloads)
