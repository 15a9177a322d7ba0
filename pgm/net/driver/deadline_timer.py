"""Sleep of a driver's deadline task, which other tasks move or end."""

from __future__ import annotations

import trio

from pgm.units import NEVER, SECOND


class DeadlineTimer:
    """Timer of one deadline task. `until_ns` is the time at which the task wakes.

    `due_ns` is the same, or the time of the call that moved it into the past.
    """

    def __init__(self) -> None:
        self.until_ns = 0
        self.due_ns = NEVER
        self._woken = trio.Event()
        self._sleep: trio.CancelScope | None = None

    @property
    def is_woken(self) -> bool:
        """Return whether the task was woken, and has not slept since."""
        return self._woken.is_set()

    def wake(self) -> None:
        """End the sleep, or prevent it."""
        self._woken.set()

    def move(self, deadline_ns: int, now_ns: int) -> None:
        """Change the time at which the task wakes. A wake-up for the change would cost a pass of the scheduler."""
        self.until_ns, self.due_ns = deadline_ns, max(deadline_ns, now_ns)
        wait_ns = deadline_ns - now_ns
        if self._sleep is None or wait_ns <= 0:
            self._woken.set()
        else:
            self._sleep.deadline = trio.current_time() + wait_ns / SECOND

    async def sleep(self, deadline_ns: int, now_ns: int) -> None:
        """Sleep until the deadline, or until woken; only the deadline task may call this."""
        self._woken = trio.Event()
        self.until_ns = self.due_ns = deadline_ns
        with trio.move_on_after((deadline_ns - now_ns) / SECOND) as self._sleep:
            await self._woken.wait()
        self._sleep = None
