"""Waits and tasks of asyncio, with the behaviour of trio's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs

from pgm.net.driver.nurseries import without_lone_groups


@attrs.frozen
class _StartReport:
    """Report of a task that it has started."""

    reported: asyncio.Future[None]

    def started(self) -> None:
        """Report the start."""
        end_wait(self.reported)


class AsyncioTasks:
    """Tasks of a task group, with the calls of a nursery."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Start a task, and wait for its `task_status.started()`. Raises the task's exception until then."""
        reported = asyncio.get_running_loop().create_future()
        task = self._create(_until_started, reported, function, args)
        try:
            await reported
        except BaseException:
            task.cancel()
            raise

    def start_soon(self, function: Callable[..., Awaitable[Any]], /, *args: Any) -> None:
        """Start a task."""
        self._create(function, *args)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def _create(self, function: Callable[..., Awaitable[Any]], *args: Any) -> asyncio.Task[None]:
        task = self._group.create_task(_run(function, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class AsyncioLoop:
    """Event loop of asyncio, or any other with its interface."""

    sleep = staticmethod(asyncio.sleep)

    @asynccontextmanager
    async def open_tasks(self) -> AsyncIterator[AsyncioTasks]:
        """Open a task group."""
        async with without_lone_groups(asyncio.TaskGroup()) as group:
            yield AsyncioTasks(group)

    @asynccontextmanager
    async def open_background(self) -> AsyncIterator[AsyncioTasks]:
        """Open a task group whose tasks are cancelled at the end of its block."""
        async with self.open_tasks() as tasks:
            yield tasks
            tasks.cancel()

    async def readable(self, sock: socket.socket | int) -> None:
        """Wait until a socket or descriptor is readable; only one task may wait."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        loop.add_reader(sock, end_wait, waiter)
        try:
            await waiter
        finally:
            loop.remove_reader(sock)

    async def writable(self, sock: socket.socket) -> None:
        """Wait until a socket is writable; only one task may wait."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        loop.add_writer(sock, end_wait, waiter)
        try:
            await waiter
        finally:
            loop.remove_writer(sock)

    async def within(self, seconds: float, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a call, and cancel it after `seconds`."""
        try:
            async with asyncio.timeout(seconds) as limit:
                await function(*args)
        except TimeoutError:
            if not limit.expired():
                raise


def end_wait(waiter: asyncio.Future[None]) -> None:
    """End the wait for a future, unless it has ended."""
    if not waiter.done():
        waiter.set_result(None)


async def _run(function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
    await function(*args)


async def _until_started(
    reported: asyncio.Future[None], function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
) -> None:
    """Run a task. Its exception goes to the task that waits for the start, or else to the task group."""
    try:
        await function(*args, task_status=_StartReport(reported))
    except Exception as error:
        if reported.done():
            raise
        reported.set_exception(error)
