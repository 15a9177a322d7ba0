"""Sources and receivers for ordinary threads: the calls of an endpoint, each run to its end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from pgm.core.window.transmit_window import Payload
from pgm.messages.arguments import Names, Payloads
from pgm.messages.objects import CBOR, Codec
from pgm.messages.structures import require_structure
from pgm.messages.subjects import Subscription
from pgm.net.durable.position import Position
from pgm.net.endpoint.base import D, ReceiverView, SourceView
from pgm.net.endpoint.receiver import ReceiverEndpoint
from pgm.net.endpoint.source import SourceEndpoint
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Message, batch_of
from pgm.net.framing.objects import ObjectItem, object_of
from pgm.topology.model import Topology

P = ParamSpec("P")
R = TypeVar("R")


class Runner(Protocol):
    """Way of a thread to run the calls of an endpoint."""

    def run(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that may wait, and return its result."""

    def run_now(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that does not wait, and return its result."""


class ThreadSource(SourceView[D]):
    """Source for ordinary threads. `pgm.Source` documents the calls."""

    def __init__(self, endpoint: SourceEndpoint[D], runner: Runner) -> None:
        super().__init__(*endpoint.internals)
        self._endpoint = endpoint
        self._runner = runner

    def _read(self, function: Callable[[], R]) -> R:
        return self._runner.run_now(function)

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False) -> int:
        """Send one message and wait for room. Return the sqn of its first packet."""
        return self._runner.run(self._endpoint.send, payload, subject=subject, to=to, flush=flush)

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room now. Return the sqn of its first packet, or None without room."""
        return self._runner.run_now(self._endpoint.try_send, payload, subject=subject, to=to, flush=flush)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts in ZeroMQ's framing. Return the sqn of its first packet."""
        return self._runner.run(self._endpoint.send_parts, parts)

    def send_object(
        self,
        value: Any,
        *,
        codec: Codec = CBOR,
        subject: str | None = None,
        to: str | None = None,
        flush: bool = False,
    ) -> int:
        """Send a value as one message, encoded by `codec`, and wait for room."""
        return self.send(codec.encode(value), subject=subject, to=to, flush=flush)

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None, flush: bool = False) -> int:
        """Send many messages in one call, and wait for room. Return the first sqn."""
        return self._runner.run(self._endpoint.send_batch, payloads, subject=subject, to=to, flush=flush)

    def flush(self) -> None:
        """Wait until all accepted messages have been sent."""
        self._runner.run(self._endpoint.flush)

    def stable(self, sqn: int | None = None) -> None:
        """Wait until every member of an acknowledged stream has all packets up to `sqn`, or all accepted messages."""
        self._runner.run(self._endpoint.stable, sqn)

    def joined(self, members: int) -> None:
        """Wait until at least `members` receivers acknowledge."""
        self._runner.run(self._endpoint.joined, members)

    def abort(self, error: int = 0) -> None:
        """Cut the stream short, and serve repairs. `pgm.Source.abort` documents `error`."""
        self._runner.run(self._endpoint.abort, error)

    def close(self) -> None:
        """Send all accepted data, and announce the end. Serve repairs until no NAK came for `fin_quiet_ivl`."""
        self._runner.run(self._endpoint.aclose)

    def set_rate(self, rate: str | int) -> None:
        """Limit data and repairs to this rate from now on. `pgm.Source.set_rate` documents the values."""
        self._runner.run_now(self._endpoint.set_rate, rate)

    def change_readers(self, topology: str | Path | Topology) -> int:
        """Seal all later messages by a new secret, for the readers of a topology file: `pgm.Source.change_readers`."""
        return self._runner.run_now(self._endpoint.change_readers, topology)

    def advance_trail(self, sqn: int) -> None:
        """Drop all messages before the message whose first packet is `sqn` from the window."""
        self._runner.run_now(self._endpoint.advance_trail, sqn)

    def close_window(self) -> None:
        """Drop all messages sent so far from the window, and inform the receivers at once."""
        self._runner.run_now(self._endpoint.close_window)


class ThreadReceiver(ReceiverView[D]):
    """Receiver for ordinary threads: an iterable of messages, or of batches by `batches()`."""

    def __init__(self, endpoint: ReceiverEndpoint[D], runner: Runner) -> None:
        super().__init__(*endpoint.internals)
        self._endpoint = endpoint
        self._runner = runner
        self._unpacker = endpoint.unpacker

    def _read(self, function: Callable[[], R]) -> R:
        return self._runner.run_now(function)

    def _next(self, timeout_s: float | None) -> BatchItem | Message | None:
        """Wait for the next item of the endpoint."""
        return self._runner.run(self._endpoint.next_item, timeout_s)

    def recv(self, timeout_s: float | None = None) -> Item | None:
        """Return the next message, loss, opening or closing, or None after `timeout_s` seconds."""
        message = self._unpacker.next() if self._unpacker.has_rest else None
        while message is None:
            item = self._next(timeout_s)
            if type(item) is Message or not isinstance(item, AnyBatch):  # the quick test first
                return item
            message = self._unpacker.open(item)
        return message

    def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """Return the next batch, loss, opening or closing, or None after `timeout_s` seconds."""
        item = self._unpacker.take_rest() or self._next(timeout_s)
        return batch_of(item) if isinstance(item, Message) else item

    @property
    def position(self) -> Position | None:
        """Return the position behind the item that the application got last. `pgm.Receiver.position` documents it."""
        return self._endpoint.position

    def ack(self, item: ObjectItem | BatchItem | Message) -> None:
        """Acknowledge an item and everything before it. `pgm.Receiver.ack` documents the call."""
        self._runner.run_now(self._endpoint.ack, item)

    def __iter__(self) -> Iterator[Item]:
        while (item := self.recv()) is not None:
            yield item

    def batches(self) -> Iterator[BatchItem]:
        """Iterate over batches of messages, losses, openings and closings in stream order."""
        while (item := self.next_batch()) is not None:
            yield item

    def objects(self, codec: Codec = CBOR, *, type: Any = None) -> Iterator[ObjectItem]:  # noqa: A002
        """Iterate over the values of messages, in stream order with losses, openings and closings.

        With `type` each value becomes an object of that type, by cattrs. Raises `UsageError` for an impossible type.
        """
        require_structure(type)
        return (object_of(item, codec, type, self.counters) for item in self)

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """Also deliver messages whose subject, or first part in ZeroMQ's framing, matches `pattern`."""
        endpoint: Any = self._endpoint  # the overloads of its method do not take a union
        subscription: Subscription | None = self._runner.run_now(endpoint.subscribe, pattern, tag)
        return subscription

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription from the next message on. Call this only in the thread that iterates."""
        self._runner.run_now(self._endpoint.unsubscribe, which)

    def matching(self, subject: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that a message's subject matches."""
        return self._endpoint.matching(subject)
