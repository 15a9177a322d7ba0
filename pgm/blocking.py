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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

import trio

from pgm.errors import UsageError
from pgm.messages.subjects import Subscription
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.endpoint import busy_poll as busy_handles
from pgm.net.endpoint import open as _open
from pgm.net.endpoint import receiver as _receiver
from pgm.net.endpoint.keywords import ReceiverKeywords, SourceKeywords
from pgm.net.endpoint.open import Target
from pgm.net.endpoint.threads import ThreadReceiver, ThreadSource
from pgm.net.framing.items import BatchItem, Message

P = ParamSpec("P")
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

    def run(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call in the trio thread and wait for its result.

        Raises the exception of the call, the exception that ended the thread, or `UsageError` after a close.
        """
        result: R = self._in_thread(trio.from_thread.run, partial(function, *args, **kwargs))
        return result

    def run_now(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that does not wait in the trio thread. Raises as `run`."""
        result: R = self._in_thread(trio.from_thread.run_sync, partial(function, *args, **kwargs))
        return result

    def _in_thread(self, run: Callable[..., Any], call: Callable[[], Any]) -> Any:
        assert self._token is not None
        try:
            return run(call, trio_token=self._token)
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


class Source(ThreadSource[TrioDriver]):
    """Source for ordinary threads. `pgm.Source` documents the calls."""


class Receiver(ThreadReceiver[TrioDriver]):
    """Receiver for ordinary threads: an iterable of messages, or of batches by `batches()`."""

    def __init__(self, endpoint: _receiver.Receiver, background: _Background[_receiver.Receiver]) -> None:
        super().__init__(endpoint, background)
        self._background = background
        # The last item or exception that has not been returned. A signal may have interrupted the caller that waited for it.
        self._next_item: BatchItem | Message | None = None
        self._failure: Exception | None = None
        self._read_scope: trio.CancelScope | None = None  # of the call in progress

    def _next(self, timeout_s: float | None) -> BatchItem | Message | None:
        try:
            self._background.run(self._read_next, timeout_s)
        except BaseException as error:
            # A handler of notices raised this error while the application was away. Items that arrived earlier come first.
            if error is not self._background.error or (left := trio.run(self._endpoint.next_item)) is None:
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
                self._next_item = await self._endpoint.next_item(timeout_s)
            except Exception as error:
                self._failure = error
            finally:
                self._read_scope = None

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription from the next message on. Call this only in the thread that iterates."""
        self._background.run_now(self._unsubscribe, which)

    def _unsubscribe(self, which: str | bytes | Subscription) -> None:
        item, self._next_item = self._next_item, None
        self._endpoint.put_back(item)
        self._endpoint.unsubscribe(which)


@overload
def open_source(
    target: Target, *, busy_poll: Literal[False] = False, **options: Unpack[SourceKeywords]
) -> AbstractContextManager[Source]: ...


@overload
def open_source(
    target: Target, *, busy_poll: Literal[True], cpu: int | None = None, **options: Unpack[SourceKeywords]
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
        yield Source(inner, background)


@overload
def open_receiver(
    target: Target, *, busy_poll: Literal[False] = False, **options: Unpack[ReceiverKeywords]
) -> AbstractContextManager[Receiver]: ...


@overload
def open_receiver(
    target: Target, *, busy_poll: Literal[True], cpu: int | None = None, **options: Unpack[ReceiverKeywords]
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
        yield Receiver(inner, background)


def _refuse_cpu(options: dict[str, Any]) -> None:
    if "cpu" in options:
        raise UsageError("cpu needs busy polling", remedy="set busy_poll=True, or omit cpu")
