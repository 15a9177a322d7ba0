"""Pauses of a process that does nothing else meanwhile: it sleeps in one system call instead of a pass of the scheduler.

A pass that wakes by a timer costs some 150 us of CPU in caches that others have filled, as much as a train and more. Elements
have no application, so all that may want them is known: their other sockets, which end a pause, and their deadline.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable

from pgm.units import MILLISECOND

# Pauses before other tasks get their turn, which are those that answer operators.
_IN_A_ROW = 8


class ProcessSleep:
    """The pauses of one socket's reader, while `others` are watched."""

    def __init__(self, others: Iterable[socket.socket]) -> None:
        self._poll = select.poll()
        for sock in others:
            self._poll.register(sock, select.POLLIN)
        self._made = 0

    def pause(self, length_ns: int) -> bool:
        """Sleep for so long; False, perhaps after a part of that, where others are to have their turn now."""
        self._made = (self._made + 1) % _IN_A_ROW
        return self._made > 0 and not self._poll.poll(length_ns / MILLISECOND)
