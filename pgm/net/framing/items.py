"""Items that a receiver hands to the application, in stream order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import length_hint

import attrs
import numpy as np

from pgm.core.effects import Closed, Lost, Opened
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

    def __len__(self) -> int:
        return len(self.messages)

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

    @property
    def has_rest(self) -> bool:
        """Return whether a batch is open."""
        return self._batch is not None

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
            self._batch = None
            return None
        self._converted = min(first + _OBJECTS_AT_ONCE, len(batch))
        self.messages = iter(_messages_of(batch, first, self._converted))
        return next(self.messages)

    def take_rest(self) -> AnyBatch | None:
        """Return the messages of the batch that were not taken, and close it; None if there are none."""
        batch = self._batch
        if batch is None:
            return None
        taken = self._converted - length_hint(self.messages)
        self._batch, self.messages = None, iter(())
        if taken >= len(batch):
            return None
        if isinstance(batch, PackedBatch):
            return batch.part(taken, len(batch))
        if isinstance(batch, MultipartBatch):
            return attrs.evolve(batch, messages=batch.messages[taken:], sqns=batch.sqns[taken:])
        return attrs.evolve(batch, first_sqn=batch.first_sqn + taken, payloads=batch.payloads[taken:])


def _messages_of(batch: AnyBatch, first: int, end: int) -> list[Message]:
    """Return messages `first` to `end - 1` as objects, by C-level loops (`map`): small messages take most time here."""
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


AnyBatch = Batch | MultipartBatch | PackedBatch
Item = Message | Lost | Opened | Closed
BatchItem = AnyBatch | Lost | Opened | Closed


def batch_of(content: WholeMessages | LargeMessage | Message) -> Batch:
    """Return a result of reassembly, or a single message, as a batch."""
    if isinstance(content, Message):
        return Batch(
            content.tsi, content.sqn, np.frombuffer(content.payload, np.uint8).reshape(1, len(content.payload))
        )
    if isinstance(content, LargeMessage):
        return Batch(content.tsi, content.first, np.frombuffer(content.payload, np.uint8).reshape(1, -1), content.count)
    return Batch(content.tsi, content.run.first, content.payloads)
