"""Child process that saves one large state, while its parent goes on with the node.

The child is a fork: its memory is that of the parent at this instant, and pages that the parent changes are copied by the
kernel. The child only saves, writes and ends. It runs no handler of the parent, and closes no socket of it for others.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from pgm.tape.segments import TapeSegment, write_state

_DONE, _FAILED = 0, 1


class StateProcess:
    """At most one child at a time. A child that still runs when the next state is due delays that state."""

    def __init__(self) -> None:
        self._child = 0
        self._segment: TapeSegment | None = None
        self.octets = 0  # of the last state that a child has written
        self.has_failed = False  # whether the last child has written none

    def save(self, segment: TapeSegment, save: Callable[[], list[bytes | memoryview]], most_octets: int) -> None:
        """Save and write a state in a child. A state of more octets is not written."""
        self.reap(waits=True)
        self._segment = segment
        child = os.fork()
        if child:
            self._child = child
            return
        code = _FAILED
        try:
            with contextlib.suppress(ValueError):  # outside of the main thread, where no handler runs
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)  # a terminal signals all processes, and the state is wanted
            pieces = save()
            if sum(map(len, pieces)) <= most_octets:
                write_state(segment, pieces)
                code = _DONE
        finally:
            os._exit(code)

    def reap(self, *, waits: bool = False) -> None:
        """Take leave of a child that has ended, or wait for it."""
        if not self._child:
            return
        try:
            child, _ = os.waitpid(self._child, 0 if waits else os.WNOHANG)
        except ChildProcessError:  # somebody else has waited for all children
            child = self._child
        if not child:
            return
        self._child = 0
        self.has_failed = self._segment is None or not self._segment.has_state
        if self._segment is not None and not self.has_failed:
            self.octets = self._segment.state_path.stat().st_size
