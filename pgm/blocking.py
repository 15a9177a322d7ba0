"""Sources and receivers without trio: the same names, for ordinary threads.

    with pgm.blocking.open_receiver("tree.toml", node="desk-7") as receiver:
        for item in receiver:
            ...

Each handle runs the protocol in a background thread of its own, so repairs go on while the application is
busy or asleep. With `busy_poll=True` it runs in the calling thread instead, which spins while it waits: the shortest
way from socket to application, for a core of its own (`pgm.net.endpoint.busy_poll`).
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
    """Keeps an async context manager open in a trio thread, and runs calls in it."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[H]]) -> None:
        self._opener = opener
        self._opened = threading.Event()
        self.error: BaseException | None = None  # by which it ended
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
                    raise _CutShort
        except _CutShort:
            pass

    def call(self, function: Callable[..., Awaitable[R]], *args: object) -> R:
        """Run a call in the trio thread and wait for it. Raises what that has ended by, `UsageError` if it was closed."""
        assert self._token is not None
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            self._thread.join()
            if self.error is not None:
                raise self.error from None
            raise UsageError("this source or receiver is closed", remedy="use it inside its with block") from None

    def close(self, *, fails: bool) -> None:
        """Leave the context manager, by an exception if the caller's block failed, and wait for it."""
        if self._token is not None and self._stop is not None and self._thread.is_alive():
            self._fails = fails
            self._token.run_sync_soon(self._stop.set)
        self._thread.join()
        if self.error is not None and not fails:
            raise self.error


class _CutShort(Exception):
    """The caller's block ended by an exception."""


@contextmanager
def _in_background(opener: Callable[[], AbstractAsyncContextManager[H]]) -> Iterator[tuple[_Background[H], H]]:
    """Open something in a trio thread for the length of a block; it ends as the block does."""
    background = _Background(opener)
    handle = background.start()
    try:
        yield background, handle
    except BaseException:
        background.close(fails=True)
        raise
    background.close(fails=False)


class Source:
    """A source for ordinary threads; see `pgm.Source` for what the calls do."""

    def __init__(self, background: _Background[_source.Source], inner: _source.Source) -> None:
        self._background = background
        self._inner = inner

    @property
    def tsi(self) -> Tsi:
        """The session's TSI."""
        return self._inner.tsi

    @property
    def next_sqn(self) -> int:
        """The sqn of the next message, after `flush`."""
        return self._inner.next_sqn

    @property
    def counters(self) -> Counters:
        """What this source has counted so far."""
        return self._inner.counters

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False) -> int:
        """Send one message; waits for room. Returns the sqn of its first packet."""
        return self._background.call(partial(self._inner.send, payload, subject=subject, to=to, flush=flush))

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room for it now; returns the sqn of its first packet, or None without room."""

        async def try_now() -> int | None:
            return self._inner.try_send(payload, subject=subject, to=to, flush=flush)

        return self._background.call(try_now)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts, with ZeroMQ's framing; waits for room. Returns the sqn of its first packet."""
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
        """Send a value as one message, in CBOR unless `codec` says otherwise; waits for room."""
        return self.send(codec.encode(value), subject=subject, to=to, flush=flush)

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None, flush: bool = False) -> int:
        """Send many messages in one call; waits for room. Returns the first sqn."""
        return self._background.call(partial(self._inner.send_batch, payloads, subject=subject, to=to, flush=flush))

    def flush(self) -> None:
        """Wait until everything accepted has been sent."""
        self._background.call(self._inner.flush)

    def stable(self, sqn: int | None = None) -> None:
        """Wait until every member of an acknowledged stream has everything up to `sqn`; all that was accepted if None."""
        self._background.call(self._inner.stable, sqn)

    @property
    def rate(self) -> int:
        """Octets a second at which it sends at most."""
        return self._inner.rate

    def set_rate(self, rate: str | int) -> None:
        """From now on send at this rate at most, repairs included, as `pgm.Source.set_rate` has it."""
        self._background.call(self._set_rate, rate)

    async def _set_rate(self, rate: str | int) -> None:
        self._inner.set_rate(rate)

    def advance_trail(self, sqn: int) -> None:
        """Let go of everything before the message whose first packet is `sqn`."""
        self._background.call(self._advance_trail, sqn)

    async def _advance_trail(self, sqn: int) -> None:
        self._inner.advance_trail(sqn)

    def close_window(self) -> None:
        """Let go of everything sent so far, and tell the receivers at once."""
        self._background.call(self._close_window)

    async def _close_window(self) -> None:
        self._inner.close_window()


class Receiver:
    """A receiver for ordinary threads: iterate over it, or over `batches()`."""

    def __init__(self, background: _Background[_receiver.Receiver], inner: _receiver.Receiver) -> None:
        self._background = background
        self._inner = inner
        self._unpacker = Unpacker()
        # What was found last and not yet handed out, or why there is nothing: also for a call whose caller was interrupted.
        self._found: BatchItem | None = None
        self._failure: Exception | None = None
        self._asking: trio.CancelScope | None = None  # of a call that is under way

    @property
    def counters(self) -> Counters:
        """What this receiver has counted so far."""
        return self._inner.counters

    def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """The next batch, loss, opening or closing; None when nothing came within `timeout_s`."""
        rest = self._unpacker.take_rest()
        if rest is not None:
            return rest
        try:
            self._background.call(self._ask, timeout_s)
        except BaseException as error:
            # What a handler of notices raised while the application was away: what had come before that comes first.
            if error is not self._background.error or (left := trio.run(self._inner.next_batch)) is None:
                raise
            return left
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        found, self._found = self._found, None
        return found

    async def _ask(self, timeout_s: float | None) -> None:
        """Find what comes next. A signal's handler may raise in the thread that waits for this, which goes on here and must lose nothing."""
        while self._asking is not None:
            self._asking.cancel()
            await trio.lowlevel.checkpoint()
        if self._found is not None or self._failure is not None:
            return
        with trio.CancelScope() as self._asking:
            try:
                self._found = await self._inner.next_batch(timeout_s)
            except Exception as error:
                self._failure = error
            finally:
                self._asking = None

    def batches(self) -> Iterator[BatchItem]:
        """Many messages at a time, in stream order with what befell the stream."""
        while (item := self.next_batch()) is not None:
            yield item

    @overload
    def subscribe(self, pattern: str, tag: Any = None) -> Subscription: ...

    @overload
    def subscribe(self, pattern: bytes) -> None: ...

    def subscribe(self, pattern: str | bytes, tag: Any = None) -> Subscription | None:
        """Take messages whose subject matches this, too; with ZeroMQ's framing, whose first part begins with it."""
        return self._background.call(self._subscribe, pattern, tag)

    async def _subscribe(self, pattern: Any, tag: Any) -> Subscription | None:
        found: Subscription | None = self._inner.subscribe(pattern, tag)
        return found

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Take them no more, from the next message on. For the thread that iterates."""
        self._background.call(self._unsubscribe, which)

    async def _unsubscribe(self, which: str | bytes | Subscription) -> None:
        found, self._found = self._found, None
        self._inner.put_back(found)
        self._inner.put_back(self._unpacker.take_rest())
        self._inner.unsubscribe(which)

    def objects(self, codec: Codec = CBOR) -> Iterator[ObjectItem]:
        """Messages as the values that they carry, in stream order with what befell the stream."""
        return (object_of(item, codec, self.counters) for item in self)

    def __iter__(self) -> Iterator[Item]:
        while (item := self.recv()) is not None:
            yield item

    def recv(self, timeout_s: float | None = None) -> Item | None:
        """The next message, loss, opening or closing; None when nothing came within `timeout_s`."""
        message = self._unpacker.next()
        while message is None:
            found = self.next_batch(timeout_s)
            if not isinstance(found, AnyBatch):
                return found
            message = self._unpacker.open(found)
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
    """Open a source; the block's end sends what is left and serves repairs until nobody asks any more.

    With `busy_poll` it belongs to the thread that opened it, which `cpu` pins to a processor. Otherwise as `pgm.open_source`.
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
    """Open a receiver of one stream, or of all streams of the node; `subscribe` and `subjects` as in `pgm.open_receiver`.

    With `busy_poll` it belongs to the thread that opened it, which `cpu` pins to a processor.
    """
    return busy_handles.open_receiver(target, **options) if busy_poll else _open_receiver(target, **options)


@contextmanager
def _open_receiver(target: Target, **options: Any) -> Iterator[Receiver]:
    _refuse_cpu(options)
    with _in_background(lambda: _open.open_receiver(target, **options)) as (background, inner):
        yield Receiver(background, inner)


def _refuse_cpu(options: dict[str, Any]) -> None:
    if "cpu" in options:
        raise UsageError(
            "a processor can be chosen for busy polling only", remedy="say busy_poll=True, or leave cpu away"
        )
