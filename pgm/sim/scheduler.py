"""Virtual time: an integer of nanoseconds, and a queue of events.

Events run by time, then in the order of scheduling. The same seed gives the same run on any machine. A run costs only
the events that happen.
"""

from __future__ import annotations

import heapq

from pgm.sim.network import Action


class Scheduler:
    """Queue of events in virtual time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0  # events that have run
        self._heap: list[tuple[int, int, Action]] = []
        self._order = 0

    def at(self, time_ns: int, action: Action) -> None:
        """Schedule an action at an instant, after the actions already scheduled for the same instant."""
        self._order += 1
        heapq.heappush(self._heap, (time_ns, self._order, action))

    def run_until(self, until_ns: int) -> None:
        """Run all events up to and at an instant."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            self.now_ns, _, action = heapq.heappop(heap)
            self.events += 1
            action()
        self.now_ns = max(self.now_ns, until_ns)
