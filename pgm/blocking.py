"""Sources and receivers for ordinary threads, with the names of the trio API.

    with pgm.blocking.open_receiver("tree.toml", node="desk-7") as receiver:
        for item in receiver:
            ...

Each node runs the protocol in a background thread of its own, so repairs continue while the application is busy or
asleep. All sources and receivers of a node share that thread. With `busy_poll=True` the protocol runs in the calling
thread instead, which polls while it waits. This has the lowest latency from socket to application and needs a processor
of its own (`pgm.net.endpoint.busy_poll`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

import trio

from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads
from pgm.messages.subjects import Subscription
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.endpoint import busy_poll as busy_handles
from pgm.net.endpoint import node as trio_node
from pgm.net.endpoint import open as _open
from pgm.net.endpoint import receiver as _receiver
from pgm.net.endpoint.keywords import NodeKeywords, ReceiverKeywords, SourceKeywords
from pgm.net.endpoint.node import SharedNode, sockets_plan
from pgm.net.endpoint.open import Target, plans_of
from pgm.net.endpoint.source import Source as _SourceOfLoop
from pgm.net.endpoint.surfaces import LOOP_GATE
from pgm.net.endpoint.threads import ThreadReceiver, ThreadSource
from pgm.net.framing.items import BatchItem, Message
from pgm.net.gate.gate_driver import GateDriver
from pgm.net.gate.loop_gate import LoopGate
from pgm.topology.check import load_checked
from pgm.topology.model import Topology
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.url import is_url, plan_url

P = ParamSpec("P")
H = TypeVar("H")
R = TypeVar("R")


class _Loop:
    """Thread with a loop of trio, for all sources and receivers of a node."""

    _of_nodes: ClassVar[dict[Hashable, _Loop]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self.users = 0
        self._has_started = threading.Event()
        self._gate = LoopGate()
        self._gate.begin()
        self._thread = threading.Thread(target=self._run, name="pgm", daemon=True)
        self._thread.start()
        self._has_started.wait()

    @classmethod
    def of(cls, key: Hashable) -> _Loop:
        """Return the running loop of a node, for one more user."""
        with cls._lock:
            loop = cls._of_nodes.get(key) or cls(key)
            cls._of_nodes[key] = loop
            loop.users += 1
            return loop

    def _run(self) -> None:
        trio.run(self._main, instruments=[self._gate])

    async def _main(self) -> None:
        LOOP_GATE.set(self._gate)
        self.token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._has_started.set()
            await self._stop.wait()

    def start_soon(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task in the loop."""
        self.token.run_sync_soon(self._nursery.start_soon, function)

    def leave(self) -> None:
        """End the loop behind its last user, and wait for the end of the thread."""
        with self._lock:
            self.users -= 1
            if self.users:
                return
            del self._of_nodes[self._key]
        self.token.run_sync_soon(self._stop.set)
        self._thread.join()
        self._gate.end()


class _Background(Generic[H]):
    """Task in the loop of a node that keeps an async context manager open, with calls that run there."""

    def __init__(self, key: Hashable, opener: Callable[[], AbstractAsyncContextManager[H]]) -> None:
        self._opener = opener
        self._loop = _Loop.of(key)
        self._opened = threading.Event()
        self._ended = threading.Event()
        self.error: BaseException | None = None  # the exception that ended the task
        self._stop = trio.Event()
        self._fails = False
        self._calls: set[trio.CancelScope] = set()
        self.handle: H | None = None

    def start(self) -> H:
        self._loop.start_soon(self._run)
        self._opened.wait()
        if self.handle is None:
            self._loop.leave()
            assert self.error is not None
            raise self.error
        return self.handle

    async def _run(self) -> None:
        try:
            await self._main()
        except BaseException as error:
            self.error = error
        self._ended.set()
        self._opened.set()
        for call in self._calls:
            call.cancel()

    async def _main(self) -> None:
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
        """Run a call in the loop and wait for its result.

        Raises the exception of the call, the exception that ended the task, or `UsageError` after a close.
        """

        async def call() -> R:
            with trio.CancelScope() as scope:
                self._calls.add(scope)
                try:
                    if not self._ended.is_set():
                        return await function(*args, **kwargs)
                finally:
                    self._calls.discard(scope)
            raise _Ended

        result: R = self._in_loop(trio.from_thread.run, call)
        return result

    def run_now(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that does not wait in the loop. Raises as `run`."""

        def call() -> R:
            if self._ended.is_set():
                raise _Ended
            return function(*args, **kwargs)

        result: R = self._in_loop(trio.from_thread.run_sync, call)
        return result

    def _in_loop(self, run: Callable[..., Any], call: Callable[[], Any]) -> Any:
        try:
            return run(call, trio_token=self._loop.token)
        except (trio.RunFinishedError, trio.Cancelled, _Ended):
            self._ended.wait()
            if self.error is not None:
                raise self.error from None
            raise UsageError("this source or receiver is closed", remedy="use it inside its with block") from None

    def close(self, *, fails: bool) -> None:
        """Leave the context manager and wait for its end. With `fails` the context manager sees an exception."""
        self._fails = fails
        self._loop.token.run_sync_soon(self._stop.set)
        self._ended.wait()
        self._loop.leave()
        if self.error is not None and not fails:
            raise self.error


class _Ended(Exception):
    """Signal that a source or receiver has ended."""


class _BlockFailed(Exception):
    """Signal that the caller's block ended by an exception."""


@contextmanager
def _in_background(
    key: Hashable, opener: Callable[[], AbstractAsyncContextManager[H]]
) -> Iterator[tuple[_Background[H], H]]:
    """Keep a context manager open in the loop of a node during a block. Both end the same way."""
    background = _Background(key, opener)
    handle = background.start()
    try:
        yield background, handle
    except BaseException:
        background.close(fails=True)
        raise
    background.close(fails=False)


class Source(ThreadSource[NodeDriver]):
    """Source for ordinary threads: any thread may send. `pgm.Source` documents the calls.

    A send runs in the calling thread. A send that must wait for room is handed over to the loop.
    """

    def __init__(self, endpoint: _SourceOfLoop, background: _Background[_SourceOfLoop]) -> None:
        super().__init__(endpoint, background)
        driver = endpoint.driver
        assert isinstance(driver, GateDriver)
        self._run_here = driver.run_here

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False) -> int:
        """Send one message and wait for room. Return the sqn of its first packet."""
        sqn = self._run_here(self._endpoint.send_now, payload, subject, to, flush)
        return super().send(payload, subject=subject, to=to, flush=flush) if sqn is None else sqn

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room now. Return the sqn of its first packet, or None without room."""
        sqn = self._run_here(self._endpoint.send_now, payload, subject, to, flush)
        return super().try_send(payload, subject=subject, to=to, flush=flush) if sqn is None else sqn

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts in ZeroMQ's framing. Return the sqn of its first packet."""
        sqn = self._run_here(self._endpoint.try_send_parts, parts)
        return super().send_parts(parts) if sqn is None else sqn

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None, flush: bool = False) -> int:
        """Send many messages in one call, and wait for room. Return the first sqn."""
        sqn = self._run_here(self._endpoint.try_send_batch, payloads, subject, to, flush)
        return super().send_batch(payloads, subject=subject, to=to, flush=flush) if sqn is None else sqn


class Receiver(ThreadReceiver[NodeDriver]):
    """Receiver for ordinary threads: an iterable of messages, or of batches by `batches()`."""

    def __init__(self, endpoint: _receiver.Receiver, background: _Background[_receiver.Receiver]) -> None:
        super().__init__(endpoint, background)
        self._background = background
        # The last item or exception that has not been returned: a signal may have interrupted the waiting caller.
        self._next_item: BatchItem | Message | None = None
        self._failure: Exception | None = None
        self._read_scope: trio.CancelScope | None = None  # of the call in progress

    def _next(self, timeout_s: float | None) -> BatchItem | Message | None:
        try:
            self._background.run(self._read_next, timeout_s)
        except BaseException as error:
            # A handler of notices raised this error while the application was away. Earlier items come first.
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

        A signal handler may raise in the thread that waits for this call. The call continues here, and no item may be
        lost.
        """
        await self._end_read()
        if self._next_item is not None or self._failure is not None:
            return
        with trio.CancelScope() as self._read_scope:
            try:
                self._next_item = await self._endpoint.next_item(timeout_s)
            except Exception as error:
                self._failure = error
            finally:
                self._read_scope = None

    async def _end_read(self) -> None:
        """End a read whose caller has gone."""
        while self._read_scope is not None:
            self._read_scope.cancel()
            await trio.lowlevel.checkpoint()

    def unsubscribe(self, which: str | bytes | Subscription) -> None:
        """Remove a subscription from the next message on. Call this only in the thread that iterates."""
        self._background.run_now(self._unsubscribe, which)

    def _unsubscribe(self, which: str | bytes | Subscription) -> None:
        self._put_back()
        self._endpoint.unsubscribe(which)

    def finish(self) -> None:
        """End the reception: an item that the caller did not get, because of a signal, counts as not taken."""
        self._background.run(self._finish)

    async def _finish(self) -> None:
        await self._end_read()
        self._put_back()

    def _put_back(self) -> None:
        item, self._next_item = self._next_item, None
        self._endpoint.put_back(item)


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

    With `busy_poll` the source belongs to the calling thread, and `cpu` pins that thread to a processor. All else is as
    in `pgm.open_source`.
    """
    return busy_handles.open_source(target, **options) if busy_poll else _open_source(target, **options)


@contextmanager
def _open_source(target: Target, **options: Any) -> Iterator[Source]:
    _refuse_cpu(options)
    target, key = _found(target, Role.SOURCE, options)
    with _in_background(key, lambda: _open.open_source(target, **options)) as (background, inner):
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

    `pgm.open_receiver` documents `subscribe` and `subjects`. With `busy_poll` the receiver belongs to the calling
    thread, and `cpu` pins that thread to a processor.
    """
    return busy_handles.open_receiver(target, **options) if busy_poll else _open_receiver(target, **options)


@contextmanager
def _open_receiver(target: Target, **options: Any) -> Iterator[Receiver]:
    _refuse_cpu(options)
    target, key = _found(target, Role.RECEIVER, options)
    with _in_background(key, lambda: _open.open_receiver(target, **options)) as (background, inner):
        receiver = Receiver(inner, background)
        yield receiver
        receiver.finish()


class Node(SharedNode[AbstractContextManager[Source], AbstractContextManager[Receiver]]):
    """Node of this process for ordinary threads. Its sources and receivers share its sockets, and one thread."""


@overload
def open_node(
    target: Target, *, busy_poll: Literal[False] = False, **options: Unpack[NodeKeywords]
) -> AbstractContextManager[Node]: ...


@overload
def open_node(
    target: Target, *, busy_poll: Literal[True], cpu: int | None = None, **options: Unpack[NodeKeywords]
) -> AbstractContextManager[busy_handles.BusyPollNode]: ...


def open_node(
    target: Target, *, busy_poll: bool = False, **options: Any
) -> AbstractContextManager[Node] | AbstractContextManager[busy_handles.BusyPollNode]:
    """Open the sockets of a node, for any number of its sources and receivers, as `pgm.open_node` does.

    With `busy_poll` the node belongs to the calling thread, and `cpu` pins that thread to a processor.
    """
    return busy_handles.open_node(target, **options) if busy_poll else _open_node(target, **options)


@contextmanager
def _open_node(
    target: Target, *, node: str | None = None, name: str | None = None, seed: str | None = None, **parameters: Any
) -> Iterator[Node]:
    _refuse_cpu(parameters)
    plans = plans_of(target, node, parameters, name)
    own = sockets_plan(plans)
    with _in_background(_key(own), lambda: trio_node.open_node(own, seed=seed)):
        yield Node(plans, open_source, open_receiver)


def _found(target: Target, role: Role, options: Mapping[str, Any]) -> tuple[Target, Hashable]:
    """Return a target, and a key that is equal for all openings of one node. A file is read once."""
    if isinstance(target, NodePlan):
        return target, _key(target)
    if isinstance(target, str) and is_url(target):
        plan = plan_url(target, role)
        return target, (plan.name, plan.segments)
    topology = target if isinstance(target, Topology) else load_checked(Path(target))
    return topology, (topology.name, options.get("node"))


def _key(plan: NodePlan) -> Hashable:
    return plan.topology, plan.name


def _refuse_cpu(options: dict[str, Any]) -> None:
    if "cpu" in options:
        raise UsageError("cpu needs busy polling", remedy="set busy_poll=True, or omit cpu")
