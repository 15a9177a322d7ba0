"""Flow as TCP sends it, through a shared link: a reference for fairness.

The flow is Reno with selective acks: slow start, then one packet more for each round trip. A loss halves the window,
and a timeout reduces it to one packet. The flow always has data to send. Its packets use the queue of the link. Acks
return by a path without limits.
"""

from __future__ import annotations

import functools

import numpy as np

from pgm.sim.links import SimulatedLink
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.train import Train

_DUPLICATES = 3
_MIN_RTO_NS = SECOND // 2


class TcpFlow:
    """One flow through `link`; `back_ns` is the delay of acks."""

    def __init__(
        self, world: World, link: SimulatedLink, *, packet: int = 1400, back_ns: int, starts_ns: int = 0
    ) -> None:
        self._world = world
        self._link = link
        self._train = Train.of(np.zeros(packet, np.uint8), packet)
        self._back_ns = back_ns
        self.window = 2.0
        self._ssthresh = 64.0
        self._next = 0
        self._in_flight: dict[int, int] = {}  # packet -> acks of later packets
        self._recovery_end = -1
        self._progress_ns = 0
        self._rtt_ns = 0
        self.delivered: list[int] = []  # arrival time of each packet, ns
        world.at(starts_ns, self._send)

    def _send(self) -> None:
        world = self._world
        while len(self._in_flight) < int(self.window):
            if not self._in_flight:
                self._progress_ns = world.now_ns
                world.at(world.now_ns + _MIN_RTO_NS, self._on_timeout)
            sqn, self._next = self._next, self._next + 1
            self._in_flight[sqn] = 0
            for at_ns, _ in self._link.carry(self._train, world.now_ns):
                world.at(at_ns, functools.partial(self._on_arrival, sqn, world.now_ns))

    def _on_arrival(self, sqn: int, sent_ns: int) -> None:
        self.delivered.append(self._world.now_ns)
        self._world.at(self._world.now_ns + self._back_ns, functools.partial(self._on_ack, sqn, sent_ns))

    def _on_ack(self, sqn: int, sent_ns: int) -> None:
        now_ns = self._world.now_ns
        if self._in_flight.pop(sqn, None) is None:
            return
        rtt_ns = now_ns - sent_ns
        self._rtt_ns = rtt_ns if not self._rtt_ns else (7 * self._rtt_ns + rtt_ns) // 8
        self._progress_ns = now_ns
        self.window += 1.0 if self.window < self._ssthresh else 1 / self.window
        for older in [sqn_in_flight for sqn_in_flight in self._in_flight if sqn_in_flight < sqn]:
            self._in_flight[older] += 1
            if self._in_flight[older] >= _DUPLICATES:
                self._on_loss(older)
        self._send()

    def _on_loss(self, sqn: int) -> None:
        del self._in_flight[sqn]
        if sqn >= self._recovery_end:
            self.window = self._ssthresh = max(2.0, self.window / 2)
            self._recovery_end = self._next

    def _on_timeout(self) -> None:
        """Handle the timer of the retransmission timeout."""
        overdue_ns = self._progress_ns + max(_MIN_RTO_NS, 4 * self._rtt_ns)
        if self._in_flight and self._world.now_ns >= overdue_ns:
            self._ssthresh, self.window = max(2.0, self.window / 2), 1.0
            self._in_flight.clear()
            self._send()
        elif self._in_flight:
            self._world.at(overdue_ns, self._on_timeout)
