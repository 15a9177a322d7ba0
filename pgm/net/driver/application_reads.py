"""Reads by the waiting application: one pass of the scheduler for a message, not two.

While an application waits in a receiver, it sleeps on the socket of its data and reads that socket itself. The driver's
task for that socket rests meanwhile. `GIVE_BACK_S` after the application stops waiting, the driver's task checks
whether the application waits again, and if not, reads the socket. An immediate wake-up of that task would cost a pass
of the scheduler for each message. Both may be awake at the same time, which costs a read of an empty socket. Before the
application sleeps, it polls the socket briefly if that pays (`pgm.net.driver.adaptive_polling`), after other tasks had
their turn.

trio allows one waiter for each descriptor, so the application waits on a duplicate. Nothing is awaited between a read
and the queueing of its data, so a cancelled wait loses nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import trio

from pgm.net.driver.adaptive_polling import AdaptivePolling
from pgm.net.sockets.inputs import Input
from pgm.units import KIB, MIB

# Time without a waiting application before the driver reads: as long as a receiver may rest between reads.
GIVE_BACK_S = 0.002
# Successful reads in a row, and octets of them, before other tasks get their turn: timers must not wait for long.
_READS_IN_A_ROW = 32
_OCTETS_IN_A_ROW = 2 * MIB
# After a row of at least this many octets, the next read gathers at once.
_MUCH_OCTETS = 64 * KIB
# A row of more octets is no single answer, so polling does not follow it: later packets can share a read.
_LITTLE_OCTETS = 4 * KIB


class ApplicationReader:
    """Reader of one socket for the application while it waits; the driver's task reads it otherwise."""

    def __init__(self, sock: Input, read: Callable[[bool], int], rest_s: Callable[[], float], poll_ivl: int) -> None:
        """Duplicate the descriptor of `sock` for the waits.

        `read` reads the socket, gathering packets if its argument is true, and returns the octets. `rest_s` returns how
        long to sleep in any case, in seconds. `poll_ivl` is the parameter `rx_poll_ivl`, in ns.
        """
        self.sock = sock
        self.polling = AdaptivePolling(poll_ivl)
        self._read = read
        self._rest_s = rest_s
        self._is_closed = False
        self._duplicate = os.dup(sock.fileno())
        self._driver_sleep: trio.CancelScope | None = None  # of the driver's task for this socket
        self._reads = 0
        self._octets = 0
        self.is_waiting = False
        self._is_woken = False  # since the wait began

    def close(self) -> None:
        """Wake the waiting application, and allow no further wait."""
        self._is_closed = True
        trio.lowlevel.notify_closing(self._duplicate)
        os.close(self._duplicate)

    async def wait(self) -> None:
        """Read, or sleep until the socket is readable and read, or until `wake`; the caller finds out which."""
        may_go_on = self._reads < _READS_IN_A_ROW and self._octets < _OCTETS_IN_A_ROW
        if may_go_on and (octets := self._read(self._reads > 1)):
            self._reads += 1
            self._octets += octets
            return
        is_much, is_little = self._octets >= _MUCH_OCTETS, self._octets <= _LITTLE_OCTETS
        self._reads, self._octets, self.is_waiting, self._is_woken = 0, 0, True, False
        # More packets may wait behind a long row, and a late reader must not rest.
        rest_s = self._rest_s() if may_go_on else 0.0
        try:
            if rest_s:
                await trio.sleep(rest_s)
            elif is_little and self.polling.ivl and await self._poll():
                return
            else:
                start_ns = time.monotonic_ns()
                await trio.lowlevel.wait_readable(self._duplicate)
                self.polling.woke(time.monotonic_ns() - start_ns)
        except trio.ClosedResourceError:
            return  # `wake` or `close`
        finally:
            self.is_waiting = False
            driver_sleep = self._driver_sleep
            if driver_sleep is not None:
                self._driver_sleep = None
                driver_sleep.deadline = trio.current_time() + GIVE_BACK_S
        if self._is_closed:
            return
        # After a pause a packet comes alone, and gathering would only delay it. After a rest many packets wait.
        gathers = is_much or rest_s > 0
        self._octets = self._read(gathers)
        if self._octets:
            self._reads = 2 if gathers else 1

    async def catch_up(self) -> int:
        """Read once, lest the socket's buffer overflow, if messages wait for the application. Return the octets."""
        octets = self._read(True)
        self._reads += 1
        self._octets += octets
        if self._reads >= _READS_IN_A_ROW or self._octets >= _OCTETS_IN_A_ROW:
            self._reads = self._octets = 0
            await trio.lowlevel.checkpoint()
        return octets

    async def _poll(self) -> bool:
        """Let other tasks have their turn, then poll the socket. Return whether data came, here or elsewhere."""
        start_ns = now_ns = time.monotonic_ns()
        until_ns = start_ns + self.polling.ivl
        await trio.lowlevel.checkpoint()
        while not self._is_closed and not self._is_woken:
            octets = self._read(False)
            now_ns = time.monotonic_ns()
            if octets:
                self._reads, self._octets = 1, octets
                break
            if now_ns >= until_ns:
                self.polling.polled(now_ns - start_ns, found=False)
                return False
        self.polling.polled(now_ns - start_ns, found=True)
        return True

    def wake(self) -> None:
        """End the wait: data for the application came from elsewhere."""
        if self.is_waiting:
            self._is_woken = True
            trio.lowlevel.notify_closing(self._duplicate)

    async def wait_for_turn(self) -> None:
        """Sleep while the application reads; for the one task of the driver that reads this socket."""
        while self.is_waiting:
            with trio.CancelScope() as self._driver_sleep:
                await trio.sleep_forever()
