"""Reads by the task that waits for messages: one pass of the scheduler from the socket to the application instead of two.

While an application waits in a receiver it leads: it sleeps on the socket that brings its data, and reads it. The driver's
task for that socket rests meanwhile, and looks `GIVE_BACK_S` after the application went whether it is still away: then it
takes over. To wake it at once would cost a pass of the scheduler for each message. Both may be awake at a time, which costs
a read in vain.

trio allows one waiter for each descriptor, so the application waits on a duplicate. Nothing is awaited between a read and
what it brought being queued, so a cancelled wait loses nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import trio

from pgm.units import KIB, MIB

# How long an application may be away before others read for it: as long as a receiver may rest between reads.
GIVE_BACK_S = 0.002
# Reads in a row that find something, and octets of them, before other tasks get their turn: timers must not wait for long.
_READS_IN_A_ROW = 32
_OCTETS_IN_A_ROW = 2 * MIB
# After a row that brought so much, what is behind a packet is looked for at once.
_MUCH_OCTETS = 64 * KIB


class Lead:
    """Who reads one socket: the application while it waits, else the driver's task."""

    def __init__(self, sock: socket.socket, read: Callable[[bool], int], rest_s: Callable[[], float]) -> None:
        """`read` takes what waits, alone or with what is behind it, and says how many octets it was; `rest_s` how long to sleep whatever comes."""
        self.sock = sock
        self._read = read
        self._rest_s = rest_s
        self._is_closed = False
        self._twin = os.dup(sock.fileno())
        self._rest: trio.CancelScope | None = None  # of the driver's task, which sleeps until it ends
        self._reads = 0
        self._octets = 0
        self.is_taken = False

    def close(self) -> None:
        """Wake who waits; nobody may come again."""
        self._is_closed = True
        trio.lowlevel.notify_closing(self._twin)
        os.close(self._twin)

    async def wait(self) -> None:
        """Read, or sleep until there is something to be read and read that, or until `wake`. Which of these it was the caller finds out."""
        if (
            self._reads < _READS_IN_A_ROW
            and self._octets < _OCTETS_IN_A_ROW
            and (octets := self._read(self._reads > 1))
        ):
            self._reads += 1
            self._octets += octets
            return
        is_much = self._octets >= _MUCH_OCTETS
        self._reads, self._octets, self.is_taken = 0, 0, True
        rest_s = self._rest_s()
        try:
            if rest_s:
                await trio.sleep(rest_s)
            else:
                await trio.lowlevel.wait_readable(self._twin)
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

    def wake(self) -> None:
        """What the application waits for has come another way."""
        if self.is_taken:
            trio.lowlevel.notify_closing(self._twin)

    async def until_given(self) -> None:
        """Sleep while the application leads. For the one task of the driver that reads this socket."""
        while self.is_taken:
            with trio.CancelScope() as self._rest:
                await trio.sleep_forever()
