"""Pauses of a process without other work: one system call instead of a pass of the scheduler.

A pass that wakes by a timer costs some 150 us of CPU, because other processes have filled the caches. That is as much
as a train or more. An element has no application, so everything that may need it is known: its other sockets, which end
a pause, and its deadline.
"""

from __future__ import annotations

import select
from collections.abc import Iterable

from pgm.net.sockets.inputs import Input
from pgm.units import MILLISECOND

# Pauses before other tasks get their turn; those tasks answer operators.
_IN_A_ROW = 8


class ProcessSleep:
    """Pauses of one socket's reader, which data on the `others` ends."""

    def __init__(self, others: Iterable[Input]) -> None:
        self._poll = select.poll()
        for sock in others:
            self._poll.register(sock, select.POLLIN)
        self._count = 0

    def pause(self, length_ns: int) -> bool:
        """Sleep for `length_ns`. Return False, perhaps before the end, if other tasks must get their turn now."""
        self._count = (self._count + 1) % _IN_A_ROW
        return self._count > 0 and not self._poll.poll(length_ns / MILLISECOND)
