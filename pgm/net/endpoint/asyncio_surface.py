"""Surface under asyncio: tasks sleep until the driver wakes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator
from weakref import WeakKeyDictionary

from pgm.core.interface import Core
from pgm.net.driver.asyncio_driver import AsyncioDriver
from pgm.net.driver.asyncio_loop import end_wait
from pgm.net.driver.asyncio_reads import AsyncioReads
from pgm.net.driver.effects import Application
from pgm.net.driver.rest_settings import ReadSettings
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.open_nodes import OpenNodes
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND


class _Turn:
    """One turn of the loop for other tasks."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _NoTurn:
    """Nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # type: ignore[return-value] # asyncio needs no generator


_TURN, _NO_TURN = _Turn(), _NoTurn()


class AsyncioWaits:
    """Waits of the tasks of one endpoint."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """End the wait of all tasks."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                end_wait(waiter)

    def pause(self, *, yields: bool) -> Awaitable[None]:
        """Begin a wait, or end one. With `yields` other tasks have their turn, and a cancelled task ends."""
        return _TURN if yields else _NO_TURN

    async def wait(self, until_ns: int) -> None:
        """Wait for `wake`, or until `until_ns`."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = None
        if until_ns != NEVER:
            wait_s = max(0, until_ns - time.monotonic_ns()) / SECOND
            timer = self._loop.call_later(wait_s, end_wait, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def catch_up(self) -> None:
        """Let the driver read."""
        await _TURN


_NODES: WeakKeyDictionary[asyncio.AbstractEventLoop, OpenNodes[AsyncioReads]] = WeakKeyDictionary()


class AsyncioSurface:
    """Surface under asyncio."""

    is_called_by_threads = False

    def __init__(self) -> None:
        self.waits = AsyncioWaits()

    @property
    def nodes(self) -> OpenNodes[AsyncioReads]:
        """Return the open nodes of the running loop."""
        return _NODES.setdefault(asyncio.get_running_loop(), OpenNodes(AsyncioReads))

    def drive(self, core: Core, reads: AsyncioReads, application: Application, settings: ReadSettings) -> AsyncioDriver:
        """Make the driver."""
        return AsyncioDriver(core, reads, application, settings)

    def read_in_waits(self, inbox: Inbox, parameters: Parameters) -> None:
        """Leave all reads to the loop: a callback costs no pass of a scheduler."""

    def close(self) -> None:
        """Do nothing: only callbacks of the loop read."""
