"""What a receiver hands to the application, in stream order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from pgm.core.effects import Closed, Lost, Opened
from pgm.core.fragments import LargeMessage, Messages
from pgm.messages.zmtp import Parts
from pgm.net.packed import PackedBatch
from pgm.wire.formats import Tsi
from pgm.wire.train import Octets


@attrs.frozen
class Message:
    """One message. `sqn` is the 64-bit number of its first packet; the payload is a copy.

    With ZeroMQ's framing a message may have several parts, and a packet several messages. The payload is all parts
    in a row.
    """

    payload: bytes
    sqn: int
    tsi: Tsi
    _parts: Parts = ()  # if there are several
    subject: str | None = None  # of streams with batches

    @property
    def parts(self) -> Parts:
        """The parts as they were sent; without ZeroMQ's framing there is one."""
        return self._parts or (self.payload,)


@attrs.frozen(eq=False)
class Batch:
    """Consecutive messages of equal size, without an object for each.

    `payloads` is a (count, size) view of receive memory; keeping it keeps that memory from being reused,
    so an application that holds on to it calls `copy()`.
    """

    tsi: Tsi
    first_sqn: int
    payloads: Octets
    packets_each: int = 1  # packets that each message came in

    def __len__(self) -> int:
        return int(self.payloads.shape[0])

    def __iter__(self) -> Iterator[bytes]:
        """Each message as octets of its own."""
        octets, size = self.payloads.tobytes(), self.payloads.shape[1]
        for at in range(0, len(octets), size or 1):
            yield octets[at : at + size]
        if not size:
            yield from (b"" for _ in range(len(self)))

    def copy(self) -> Batch:
        """The same in memory of its own."""
        return attrs.evolve(self, payloads=self.payloads.copy())


@attrs.frozen(eq=False)
class MultipartBatch:
    """Successive messages of a stream with ZeroMQ's framing: the parts of each, and the sqn of its first packet."""

    tsi: Tsi
    messages: Sequence[Parts]
    sqns: Sequence[int]

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Parts]:
        """Each message as a tuple of its parts."""
        return iter(self.messages)


class Unpacker:
    """Takes a batch apart message by message. A loop that is left early and begun again goes on where it stopped."""

    def __init__(self) -> None:
        self._batch: AnyBatch | None = None
        self._messages: Iterator[Message] = iter(())
        self._taken = 0

    def open(self, batch: AnyBatch) -> Message | None:
        """Begin with a batch; returns its first message."""
        self._batch, self._messages, self._taken = batch, _messages_of(batch), 0
        return self.next()

    def next(self) -> Message | None:
        """The next message of the batch, or None behind its last."""
        message = next(self._messages, None)
        if message is None:
            self._batch = None
        self._taken += 1
        return message

    def take_rest(self) -> AnyBatch | None:
        """What was not taken of the batch: the caller's from here on."""
        batch, taken = self._batch, self._taken
        self._batch, self._messages = None, iter(())
        if batch is None or taken >= len(batch):
            return None
        if isinstance(batch, PackedBatch):
            return batch.part(taken)
        if isinstance(batch, MultipartBatch):
            return attrs.evolve(batch, messages=batch.messages[taken:], sqns=batch.sqns[taken:])
        return attrs.evolve(batch, first_sqn=batch.first_sqn + taken, payloads=batch.payloads[taken:])


def _messages_of(batch: AnyBatch) -> Iterator[Message]:
    if isinstance(batch, PackedBatch):
        tsi = batch.tsi
        for payload, sqn, subject in zip(batch, batch.sqns.tolist(), batch.subjects_of_all(), strict=True):
            yield Message(payload, sqn, tsi, (), subject)
        return
    if isinstance(batch, MultipartBatch):
        for parts, sqn in zip(batch.messages, batch.sqns, strict=True):
            several = len(parts) > 1
            yield Message(b"".join(parts) if several else parts[0], sqn, batch.tsi, parts if several else ())
        return
    for sqn, payload in enumerate(batch, batch.first_sqn):
        yield Message(payload, sqn, batch.tsi)


AnyBatch = Batch | MultipartBatch | PackedBatch
Item = Message | Lost | Opened | Closed
BatchItem = AnyBatch | Lost | Opened | Closed


def batch_of(found: Messages | LargeMessage) -> Batch:
    """What reassembly gave, as a batch."""
    if isinstance(found, LargeMessage):
        return Batch(found.tsi, found.first, np.frombuffer(found.payload, np.uint8).reshape(1, -1), found.count)
    return Batch(found.tsi, found.run.first, found.payloads)
