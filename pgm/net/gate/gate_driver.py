"""Trio driver whose core other threads call, while the loop waits for I/O (`pgm.net.gate.loop_gate`).

Data leaves in the calling thread. All that concerns tasks is posted to the loop: an earlier deadline, data that a link
refused, and notices. The loop wakes once for all of it.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from pgm.core.events import ForApplication
from pgm.core.interface import Core
from pgm.errors import UsageError
from pgm.net.driver.deadline_timer import DeadlineTimer
from pgm.net.driver.effects import DEADLINES_IN_A_ROW, LATE_NS, Application
from pgm.net.driver.rest_settings import ReadSettings
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.gate.loop_gate import LoopGate


class GateTimer(DeadlineTimer):
    """Timer that threads inside the gate move, too."""

    def __init__(self, gate: LoopGate) -> None:
        super().__init__()
        self._gate = gate

    def wake(self) -> None:
        """End the sleep, or prevent it."""
        if self._gate.is_in_loop:
            super().wake()
        elif self.until_ns:
            self.until_ns = 0  # the task reads the deadline when it wakes, so no further change needs a wake-up
            self._gate.post(super().wake)

    def move(self, deadline_ns: int, now_ns: int) -> None:
        """Change the time at which the task wakes; in another thread, let the task do it."""
        if self._gate.is_in_loop:
            super().move(deadline_ns, now_ns)
        else:
            self.wake()


class GateDriver(TrioDriver):
    """Driver of `core` in a loop with a gate."""

    def __init__(
        self, core: Core, reads: TrioReads, application: Application, settings: ReadSettings, gate: LoopGate
    ) -> None:
        super().__init__(core, reads, application, settings)
        self._timer = GateTimer(gate)
        self._gate = gate
        self._is_over = self.is_left_to_loop = False
        self._early_bound_ns = -1  # the last one of `expect_by`, which was compared with the deadline
        self.run_here = partial(gate.run, self)  # calls a function in the calling thread; None: the loop must do it
        self._happenings: deque[ForApplication] = deque()  # of calls by threads, for handlers in the loop

    def abandon(self) -> None:
        """End the use of a core that a signal handler interrupted in the middle of its work.

        No signal handler runs in the loop's thread: an error there is the application's.
        """
        if self._gate.is_in_loop:
            return
        self._fail(
            UsageError(
                "a signal handler raised inside a call of this source, whose work is half done",
                remedy="open it again; let signal handlers set a flag and raise nothing",
            )
        )

    def _fail(self, error: Exception) -> None:
        self._is_over = self.is_left_to_loop = True
        self._failure = self._failure or error
        self._timer.wake()

    def leave(self) -> None:
        """Leave the links."""
        self._is_over = self.is_left_to_loop = True
        self._timer = DeadlineTimer()  # of no task: the application may take left items in any thread
        super().leave()

    def expect_by(self, at_ns: int) -> None:
        """Note that the core was called, and has nothing to do before the given time.

        Single packets postpone heartbeats, so that bound may be far before the deadline, and stays the same for many
        packets. A wake-up for each of them would take more time than their sending.
        """
        if at_ns < self._timer.until_ns and (at_ns != self._early_bound_ns or not at_ns):  # 0 is no bound
            self._early_bound_ns = at_ns
            self.reschedule()

    def push(self) -> None:
        """Send accepted data: at once in another thread, soon in the loop's."""
        if not self._gate.is_in_loop:
            for _ in range(DEADLINES_IN_A_ROW):
                now_ns = self.now_ns()
                is_late = now_ns - self._timer.due_ns >= LATE_NS  # the loop reads its sockets first
                if self.core.deadline_ns > now_ns or self.is_held_up or is_late:
                    break
                self.perform(self.core.handle_deadline(now_ns))
        self.reschedule()

    def _hand_over(self, effect: ForApplication) -> None:
        if self._gate.is_in_loop:
            self._hand_over_all()
            super()._hand_over(effect)
        else:
            self._happenings.append(effect)
            self.is_left_to_loop = True  # until the handler has returned, as it may change the source
            self._gate.post(self._hand_over_posted)

    def _hand_over_all(self) -> None:
        while self._happenings:
            super()._hand_over(self._happenings.popleft())

    def _hand_over_posted(self) -> None:
        try:
            self._hand_over_all()
            self.is_left_to_loop = self._is_over
        except Exception as error:  # from a handler of notices: it ends this endpoint only
            self._fail(error)
