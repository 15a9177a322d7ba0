"""Virtual time: an integer of nanoseconds, and a queue of events.

Events run by time. Events of one instant have an order that no cut of the tree changes: the instant at which an event was
scheduled, the name of the node that scheduled it, and the order of that node's own calls. Trains leave a segment after
all other events of their instant. The same seed gives the same run on any machine. A run costs only the events that
happen.
"""

from __future__ import annotations

import heapq

from pgm.sim.network import Action
from pgm.units import NEVER


class Scheduler:
    """Queue of events in virtual time."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0  # events that have run
        self._heap: list[tuple[int, bool, int, str, int, Action]] = []
        self._order = 0

    def at(self, time_ns: int, action: Action, node: str = "") -> None:
        """Schedule an action of `node` at an instant, after the node's actions already scheduled for the same instant."""
        self.at_since(time_ns, action, node, self.now_ns)

    def at_since(self, time_ns: int, action: Action, node: str, since_ns: int) -> None:
        """Schedule an action as if the call had come at `since_ns`."""
        self._order += 1
        heapq.heappush(self._heap, (time_ns, False, since_ns, node, self._order, action))

    def after_all(self, time_ns: int, action: Action, node: str) -> None:
        """Schedule an action after all other events of an instant, in order of names and then of calls."""
        self._order += 1
        heapq.heappush(self._heap, (time_ns, True, 0, node, self._order, action))

    @property
    def next_ns(self) -> int:
        """Return the time of the next event; NEVER without one."""
        return self._heap[0][0] if self._heap else NEVER

    def run_until(self, until_ns: int) -> None:
        """Run all events up to and at an instant."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            event = heapq.heappop(heap)
            self.now_ns = event[0]
            self.events += 1
            event[-1]()
        self.now_ns = max(self.now_ns, until_ns)
