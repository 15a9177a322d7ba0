"""Sources and receivers for ordinary threads, with the names of the trio API.

    with pgm.blocking.open_receiver("tree.toml", node="desk-7") as receiver:
        for item in receiver:
            ...

Each handle runs the protocol in a background thread of its own, so repairs continue while the application is busy or
asleep. With `busy_poll=True` the protocol runs in the calling thread instead, which polls while it waits. This has the
lowest latency from socket to application and needs a processor of its own (`pgm.net.endpoint.busy_poll`).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

import trio

from pgm.core.counters import Counters
from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads
from pgm.messages.objects import CBOR, Codec
from pgm.messages.subjects import Subscription
from pgm.net.endpoint import busy_poll as busy_handles
from pgm.net.endpoint import open as _open
from pgm.net.endpoint import receiver as _receiver
from pgm.net.endpoint import source as _source
from pgm.net.endpoint.open import Target
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Unpacker
from pgm.net.framing.objects import ObjectItem, object_of
from pgm.wire.formats import Tsi

H = TypeVar("H")
R = TypeVar("R")


class _Background(Generic[H]):
    """Background thread of trio that keeps an async context manager open and runs calls in it."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[H]]) -> None:
        self._opener = opener
        self._opened = threading.Event()
        self.error: BaseException | None = None  # the exception that ended the thread
        self._stop: trio.Event | None = None
        self._fails = False
        self._token: trio.lowlevel.TrioToken | None = None
        self.handle: H | None = None
        self._thread = threading.Thread(target=self._run, name="pgm", daemon=True)

    def start(self) -> H:
        self._thread.start()
        self._opened.wait()
        if self.handle is None:
            self._thread.join()
            assert self.error is not None
            raise self.error
        return self.handle

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self.error = error
        self._opened.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        try:
            async with self._opener() as handle:
                self.handle = handle
                self._opened.set()
                await self._stop.wait()
                if self._fails:
                    raise _BlockFailed
        except _BlockFailed:
            pass

    def call(self, function: Callable[..., Awaitable[R]], *args: object) -> R:
        """Run a call in the trio thread and wait for its result.

        Raises the exception of the call, the exception that ended the thread, or `UsageError` after a close.
        """
        assert self._token is not None
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            self._thread.join()
            if self.error is not None:
                raise self.error from None
            raise UsageError("this source or receiver is closed", remedy="use it inside its with block") from None

    def close(self, *, fails: bool) -> None:
        """Leave the context manager and wait for its end. With `fails` the context manager sees an exception."""
        if self._token is not None and self._stop is not None and self._thread.is_alive():
            self._fails = fails
            self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        if self.error is not None and not fails:
            raise self.error


class _BlockFailed(Exception):
    """Signal that the caller's block ended by an exception."""


@contextmanager
def _in_background(opener: Callable[[], AbstractAsyncContextManager[H]]) -> Iterator[tuple[_Background[H], H]]:
    """Keep a context manager open in a trio thread during a block. Both end the same way."""
    background = _Background(opener)
    handle = background.start()
    try:
        yield background, handle
    except BaseException:
        background.close(fails=True)
        raise
    background.close(fails=False)


class Source:
    """Source for ordinary threads. `pgm.Source` documents the calls."""

    def __init__(self, background: _Background[_source.Source], inner: _source.Source) -> None:
        self._background = background
        self._inner = inner

    @property
    def tsi(self) -> Tsi:
        """Return the session's TSI."""
        return self._inner.tsi

    @property
    def next_sqn(self) -> int:
        """Return the sqn of the next message, if `flush` ran before."""
        return self._inner.next_sqn

    @property
    def counters(self) -> Counters:
        """Return the counters of this source."""
        return self._inner.counters

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False) -> int:
        """Send one message and wait for room. Returns the sqn of its first packet."""
        return self._background.call(partial(self._inner.send, payload, subject=subject, to=to, flush=flush))

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room now. Returns the sqn of its first packet, or None without room."""

        async def try_now() -> int | None:
            return self._inner.try_send(payload, subject=subject, to=to, flush=flush)

        return self._background.call(try_now)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts in ZeroMQ's framing, and wait for room.

        Returns the sqn of the first packet of the message.
        """
        return self._background.call(self._inner.send_parts, parts)

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
        """Send many messages in one call, and wait for room. Returns the first sqn."""
        return self._background.call(partial(self._inner.send_batch, payloads, subject=subject, to=to, flush=flush))

    def flush(self) -> None:
        """Wait until all accepted messages have been sent."""
        self._background.call(self._inner.flush)

    def stable(self, sqn: int | None = None) -> None:
        """Wait until every member of an acknowledged stream has all packets up to `sqn`.

        None means all accepted messages.
        """
        self._background.call(self._inner.stable, sqn)

    @property
    def rate(self) -> int:
        """Return the maximum rate of this source in octets a second."""
        return self._inner.rate

    def set_rate(self, rate: str | int) -> None:
        """Limit data and repairs to this rate from now on. `pgm.Source.set_rate` documents the values."""
        self._background.call(self._set_rate, rate)

    async def _set_rate(self, rate: str | int) -> None:
        self._inner.set_rate(rate)

    def advance_trail(self, sqn: int) -> None:
        """Drop all messages before the message whose first packet is `sqn` from the window."""
        self._background.call(self._advance_trail, sqn)

    async def _advance_trail(self, sqn: int) -> None:
        self._inner.advance_trail(sqn)

    def close_window(self) -> None:
        """Drop all messages sent so far from the window, and inform the receivers at once."""
        self._background.call(self._close_window)

    async def _close_window(self) -> None:
        self._inner.close_window()


class Receiver:
    """Receiver for ordinary threads: an iterable of messages, or of batches by `batches()`."""

    def __init__(self, background: _Background[_receiver.Receiver], inner: _receiver.Receiver) -> None:
        self._background = background
        self._inner = inner
        self._unpacker = Unpacker()
        # The last item or exception that has not been returned. A signal may have interrupted the caller that waited for it.
        self._next_item: BatchItem | None = None
        self._failure: Exception | None = None
        self._read_scope: trio.CancelScope | None = None  # of the call in progress

    @property
    def counters(self) -> Counters:
        """Return the counters of this receiver."""
        return self._inner.counters

    def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """Return the next batch, loss, opening or closing, or None after `timeout_s` seconds."""
        rest = self._unpacker.take_rest()
        if rest is not None:
            return rest
        try:
            self._background.call(self._read_next, timeout_s)
        except BaseException as error:
            # A handler of notices raised this error while the application was away. Items that arrived earlier come first.
            if error is not self._background.error or (left := trio.run(self._inner.next_batch)) is None:
                raise
            return left
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        item, self._next_item = self._next_item, None
        return item

    async def _read_next(self, timeout_s: float | None) -> None:
        """Store the next item or exception.

        A signal handler may raise in the thread that waits for this call. The call continues here, and no item may be lost.
        """
        while self._read_scope is not None:
            self._read_scope.cancel()
            await trio.lowlevel.checkpoint()
        if self._next_item is not None or self._failure is not None:
            return
        with trio.CancelScope() as self._read_scope:
            try:
                self._next_item = await self._inner.next_batch(timeout_s)
            except Exception as error:
                self._failure = error
            finally:
                self._read_scope = None

    def batches(self) -> Iterator[BatchItem]:
        """Iterate over batches of messages, losses, openings and closings in stream order."""
        while (item := self.next_batch()) is not None:
            yield item

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """Also deliver messages whose subject matches `pattern`.

        In ZeroMQ's framing `pattern` is a prefix of a message's first part.
        """
        return self._background.call(self._subscribe, pattern, tag)

    async def _subscribe(self, pattern: Any, tag: Any) -> Subscription | None:
        subscription: Subscription | None = self._inner.subscribe(pattern, tag)
        return subscription

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription from the next message on. Call this only in the thread that iterates."""
        self._background.call(self._unsubscribe, which)

    async def _unsubscribe(self, which: str | bytes | Subscription) -> None:
        item, self._next_item = self._next_item, None
        self._inner.put_back(item)
        self._inner.put_back(self._unpacker.take_rest())
        self._inner.unsubscribe(which)

    def objects(self, codec: Codec = CBOR) -> Iterator[ObjectItem]:
        """Iterate over the values of messages, and over losses, openings and closings, in stream order."""
        return (object_of(item, codec, self.counters) for item in self)

    def __iter__(self) -> Iterator[Item]:
        while (item := self.recv()) is not None:
            yield item

    def recv(self, timeout_s: float | None = None) -> Item | None:
        """Return the next message, loss, opening or closing, or None after `timeout_s` seconds."""
        message = self._unpacker.next()
        while message is None:
            item = self.next_batch(timeout_s)
            if not isinstance(item, AnyBatch):
                return item
            message = self._unpacker.open(item)
        return message


@overload
def open_source(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    busy_poll: Literal[False] = False,
    **parameters: Any,
) -> AbstractContextManager[Source]: ...


@overload
def open_source(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    busy_poll: Literal[True],
    cpu: int | None = None,
    **parameters: Any,
) -> AbstractContextManager[busy_handles.BusyPollSource]: ...


def open_source(
    target: Target, *, busy_poll: bool = False, **options: Any
) -> AbstractContextManager[Source] | AbstractContextManager[busy_handles.BusyPollSource]:
    """Open a source. The end of the block sends the remaining messages and serves repairs until the requests stop.

    With `busy_poll` the source belongs to the calling thread, and `cpu` pins that thread to a processor. All else is as in
    `pgm.open_source`.
    """
    return busy_handles.open_source(target, **options) if busy_poll else _open_source(target, **options)


@contextmanager
def _open_source(target: Target, **options: Any) -> Iterator[Source]:
    _refuse_cpu(options)
    with _in_background(lambda: _open.open_source(target, **options)) as (background, inner):
        yield Source(background, inner)


@overload
def open_receiver(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    subscribe: Iterable[bytes] | None = None,
    subjects: Iterable[str] | None = None,
    busy_poll: Literal[False] = False,
    **parameters: Any,
) -> AbstractContextManager[Receiver]: ...


@overload
def open_receiver(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    subscribe: Iterable[bytes] | None = None,
    subjects: Iterable[str] | None = None,
    busy_poll: Literal[True],
    cpu: int | None = None,
    **parameters: Any,
) -> AbstractContextManager[busy_handles.BusyPollReceiver]: ...


def open_receiver(
    target: Target, *, busy_poll: bool = False, **options: Any
) -> AbstractContextManager[Receiver] | AbstractContextManager[busy_handles.BusyPollReceiver]:
    """Open a receiver of one stream, or of all streams of the node.

    `pgm.open_receiver` documents `subscribe` and `subjects`. With `busy_poll` the receiver belongs to the calling thread,
    and `cpu` pins that thread to a processor.
    """
    return busy_handles.open_receiver(target, **options) if busy_poll else _open_receiver(target, **options)


@contextmanager
def _open_receiver(target: Target, **options: Any) -> Iterator[Receiver]:
    _refuse_cpu(options)
    with _in_background(lambda: _open.open_receiver(target, **options)) as (background, inner):
        yield Receiver(background, inner)


def _refuse_cpu(options: dict[str, Any]) -> None:
    if "cpu" in options:
        raise UsageError("cpu needs busy polling", remedy="set busy_poll=True, or omit cpu")
