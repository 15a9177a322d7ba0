"""Waits of the trio surface: tasks sleep until the driver wakes them, or read the socket themselves."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.gate.loop_gate import LoopGate
from pgm.units import NEVER, SECOND


class TrioWaits:
    """Waits of the tasks of one endpoint. A receiver's task reads by `reader`, if there is one."""

    def __init__(self) -> None:
        self._waiters = trio.lowlevel.ParkingLot()
        self.reader: ApplicationReader | None = None

    def wake(self) -> None:
        """End the wait of all tasks."""
        if self._waiters:
            self._waiters.unpark_all()
        elif self.reader is not None:
            self.reader.wake()

    def pause(self, *, yields: bool) -> Awaitable[None]:
        """Raise `trio.Cancelled` if the task is cancelled. With `yields` other tasks have their turn."""
        return (trio.lowlevel.checkpoint if yields else trio.lowlevel.checkpoint_if_cancelled)()

    def wait(self, until_ns: int) -> Awaitable[None]:
        """Wait for `wake`, for data, or until `until_ns`."""
        reader = self.reader
        sleep = self._waiters.park if reader is None or reader.is_waiting else reader.wait
        return sleep() if until_ns == NEVER else self._sleep_until(until_ns, sleep)

    async def _sleep_until(self, until_ns: int, sleep: Callable[[], Awaitable[None]]) -> None:
        with trio.move_on_after(max(0, until_ns - time.monotonic_ns()) / SECOND):
            await sleep()

    async def catch_up(self) -> None:
        """Read the sockets once, or let the driver's tasks do it."""
        if self.reader is None:
            await trio.lowlevel.checkpoint()
        else:
            await self.reader.catch_up()

    def close(self) -> None:
        """Allow no further read by a waiting task."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None


class GateWaits(TrioWaits):
    """Waits of one endpoint in a loop with a gate; other threads end them, too."""

    def __init__(self, gate: LoopGate) -> None:
        super().__init__()
        self._gate = gate

    def wake(self) -> None:
        """End the wait of all tasks."""
        if self._gate.is_in_loop:
            super().wake()
        elif self._waiters:
            self._gate.post(super().wake)
