"""Event loops in which a node runs: trio, or asyncio with any of its loops. `current_loop` finds the caller's."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import sniffio
import trio

from pgm.errors import UsageError
from pgm.net.driver.nurseries import open_plain_nursery


class TaskStatus(Protocol):
    """Report of a task that it has started."""

    def started(self) -> None:
        """Report the start."""


class Tasks(Protocol):
    """Tasks that run beside a block. An exception of a task ends the block."""

    async def start(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> Any:
        """Start a task, and wait for its `task_status.started()`. Raises the task's exception until then."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Start a task."""


class EventLoop(Protocol):
    """Waits that every event loop has."""

    def open_tasks(self) -> AbstractAsyncContextManager[Tasks]:
        """Open a block that ends with its tasks. A lone exception leaves the block without a group."""

    def open_background(self) -> AbstractAsyncContextManager[Tasks]:
        """Open a block whose tasks are cancelled at its end. A lone exception leaves the block without a group."""

    async def sleep(self, seconds: float) -> None:
        """Sleep."""

    async def readable(self, sock: socket.socket | int) -> None:
        """Wait until a socket or descriptor is readable."""

    async def writable(self, sock: socket.socket) -> None:
        """Wait until a socket is writable."""

    async def within(self, seconds: float, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a call, and cancel it after `seconds`."""


class TrioLoop:
    """Event loop of trio."""

    sleep = staticmethod(trio.sleep)
    readable = staticmethod(trio.lowlevel.wait_readable)
    writable = staticmethod(trio.lowlevel.wait_writable)
    open_tasks = staticmethod(open_plain_nursery)

    @asynccontextmanager
    async def open_background(self) -> AsyncIterator[Tasks]:
        """Open a nursery that is cancelled at the end of its block."""
        async with open_plain_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()

    async def within(self, seconds: float, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a call, and cancel it after `seconds`."""
        with trio.move_on_after(seconds):
            await function(*args)


def running_library() -> str:
    """Return "trio" or "asyncio". Raises `UsageError` outside of a task of either."""
    try:
        library = sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        library = "none"
    if library not in ("trio", "asyncio"):
        raise UsageError(
            "no event loop of trio or asyncio runs here",
            remedy="use pgm.blocking, which has the same names for programs without an event loop",
        )
    return library


def current_loop() -> EventLoop:
    """Return the event loop of the calling task. Raises `UsageError` outside of one."""
    if running_library() == "trio":
        return TrioLoop()
    from pgm.net.driver.asyncio_loop import AsyncioLoop  # asyncio takes long to import, and trio needs none of it

    return AsyncioLoop()
