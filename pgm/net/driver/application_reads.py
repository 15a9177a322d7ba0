"""Reads by the task that waits for messages: one pass of the scheduler from the socket to the application instead of two.

While an application waits in a receiver it leads: it sleeps on the socket that brings its data, and reads it. The driver's
task for that socket rests meanwhile, and looks `GIVE_BACK_S` after the application went whether it is still away: then it
takes over. To wake it at once would cost a pass of the scheduler for each message. Both may be awake at a time, which costs
a read in vain. Before it sleeps it looks for what comes next for a moment, where that pays (`pgm.net.driver.adaptive_polling`) and after
others had their turn.

trio allows one waiter for each descriptor, so the application waits on a duplicate. Nothing is awaited between a read and
what it brought being queued, so a cancelled wait loses nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

import trio

from pgm.net.driver.adaptive_polling import AdaptivePolling
from pgm.units import KIB, MIB

# How long an application may be away before others read for it: as long as a receiver may rest between reads.
GIVE_BACK_S = 0.002
# Reads in a row that find something, and octets of them, before other tasks get their turn: timers must not wait for long.
_READS_IN_A_ROW = 32
_OCTETS_IN_A_ROW = 2 * MIB
# After a row that brought so much, what is behind a packet is looked for at once.
_MUCH_OCTETS = 64 * KIB
# A row that brought more is no answer by itself, and what follows it shares a read if nobody is in a hurry.
_LITTLE_OCTETS = 4 * KIB


class ApplicationReader:
    """Who reads one socket: the application while it waits, else the driver's task."""

    def __init__(
        self, sock: socket.socket, read: Callable[[bool], int], rest_s: Callable[[], float], look_ivl: int
    ) -> None:
        """`read` takes what waits, alone or with what is behind it, and says how many octets it was; `rest_s` how long to sleep whatever comes.

        `look_ivl` is the parameter `rx_look_ivl`, in ns.
        """
        self.sock = sock
        self.looks = AdaptivePolling(look_ivl)
        self._read = read
        self._rest_s = rest_s
        self._is_closed = False
        self._twin = os.dup(sock.fileno())
        self._rest: trio.CancelScope | None = None  # of the driver's task, which sleeps until it ends
        self._reads = 0
        self._octets = 0
        self.is_taken = False
        self._is_woken = False  # since it was taken

    def close(self) -> None:
        """Wake who waits; nobody may come again."""
        self._is_closed = True
        trio.lowlevel.notify_closing(self._twin)
        os.close(self._twin)

    async def wait(self) -> None:
        """Read, or sleep until there is something to be read and read that, or until `wake`. Which of these it was the caller finds out."""
        may_go_on = self._reads < _READS_IN_A_ROW and self._octets < _OCTETS_IN_A_ROW
        if may_go_on and (octets := self._read(self._reads > 1)):
            self._reads += 1
            self._octets += octets
            return
        is_much, is_little = self._octets >= _MUCH_OCTETS, self._octets <= _LITTLE_OCTETS
        self._reads, self._octets, self.is_taken, self._is_woken = 0, 0, True, False
        # Behind a row that was long enough more may wait, and whoever is late must not rest.
        rest_s = self._rest_s() if may_go_on else 0.0
        try:
            if rest_s:
                await trio.sleep(rest_s)
            elif is_little and self.looks.ivl and await self._look():
                return
            else:
                begun_ns = time.monotonic_ns()
                await trio.lowlevel.wait_readable(self._twin)
                self.looks.woke(time.monotonic_ns() - begun_ns)
        except trio.ClosedResourceError:
            return  # something came another way
        finally:
            self.is_taken = False
            rest = self._rest
            if rest is not None:
                self._rest = None
                rest.deadline = trio.current_time() + GIVE_BACK_S
        if self._is_closed:
            return
        # After a pause a packet comes alone: what looks for more behind it would only make it late. After a rest much has come.
        gathers = is_much or rest_s > 0
        self._octets = self._read(gathers)
        if self._octets:
            self._reads = 2 if gathers else 1

    async def catch_up(self) -> int:
        """Read once while the application has not taken all that is queued: what waits behind that would outgrow the socket's buffer. Returns how many octets came."""
        octets = self._read(True)
        self._reads += 1
        self._octets += octets
        if self._reads >= _READS_IN_A_ROW or self._octets >= _OCTETS_IN_A_ROW:
            self._reads = self._octets = 0
            await trio.lowlevel.checkpoint()
        return octets

    async def _look(self) -> bool:
        """Let others have their turn, then look for what comes; says whether there is something, or has come another way."""
        begun_ns = now_ns = time.monotonic_ns()
        until_ns = begun_ns + self.looks.ivl
        await trio.lowlevel.checkpoint()
        while not self._is_closed and not self._is_woken:
            octets = self._read(False)
            now_ns = time.monotonic_ns()
            if octets:
                self._reads, self._octets = 1, octets
                break
            if now_ns >= until_ns:
                self.looks.polled(now_ns - begun_ns, found=False)
                return False
        self.looks.polled(now_ns - begun_ns, found=True)
        return True

    def wake(self) -> None:
        """What the application waits for has come another way."""
        if self.is_taken:
            self._is_woken = True
            trio.lowlevel.notify_closing(self._twin)

    async def until_given(self) -> None:
        """Sleep while the application leads. For the one task of the driver that reads this socket."""
        while self.is_taken:
            with trio.CancelScope() as self._rest:
                await trio.sleep_forever()
