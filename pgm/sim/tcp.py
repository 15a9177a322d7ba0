"""A flow as TCP sends it, through a link that others share: what congestion control has to be fair to.

Reno with selective acks: slow start, one packet a round trip then, half after a loss, one after a time-out. It always has
something to send. Its packets take their turn in the queue of the link; acks come back by a way that has room.
"""

from __future__ import annotations

import functools

import numpy as np

from pgm.sim.links import SimulatedLink
from pgm.sim.world import World
from pgm.units import SECOND
from pgm.wire.train import Train

_DUPLICATES = 3
_LEAST_RTO_NS = SECOND // 2


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
        self._in_flight: dict[int, int] = {}  # packet -> acks of later ones
        self._recovers_until = -1
        self._progress_ns = 0
        self._rtt_ns = 0
        self.delivered: list[int] = []  # when each packet came through, ns
        world.at(starts_ns, self._send)

    def _send(self) -> None:
        world = self._world
        while len(self._in_flight) < int(self.window):
            if not self._in_flight:
                self._progress_ns = world.now_ns
                world.at(world.now_ns + _LEAST_RTO_NS, self._check)
            sqn, self._next = self._next, self._next + 1
            self._in_flight[sqn] = 0
            for at_ns, _ in self._link.carry(self._train, world.now_ns):
                world.at(at_ns, functools.partial(self._arrived, sqn, world.now_ns))

    def _arrived(self, sqn: int, sent_ns: int) -> None:
        self.delivered.append(self._world.now_ns)
        self._world.at(self._world.now_ns + self._back_ns, functools.partial(self._acked, sqn, sent_ns))

    def _acked(self, sqn: int, sent_ns: int) -> None:
        now_ns = self._world.now_ns
        if self._in_flight.pop(sqn, None) is None:
            return
        rtt_ns = now_ns - sent_ns
        self._rtt_ns = rtt_ns if not self._rtt_ns else (7 * self._rtt_ns + rtt_ns) // 8
        self._progress_ns = now_ns
        self.window += 1.0 if self.window < self._ssthresh else 1 / self.window
        for older in [one for one in self._in_flight if one < sqn]:
            self._in_flight[older] += 1
            if self._in_flight[older] >= _DUPLICATES:
                self._lost(older)
        self._send()

    def _lost(self, sqn: int) -> None:
        del self._in_flight[sqn]
        if sqn >= self._recovers_until:
            self.window = self._ssthresh = max(2.0, self.window / 2)
            self._recovers_until = self._next

    def _check(self) -> None:
        """The time-out."""
        overdue_ns = self._progress_ns + max(_LEAST_RTO_NS, 4 * self._rtt_ns)
        if self._in_flight and self._world.now_ns >= overdue_ns:
            self._ssthresh, self.window = max(2.0, self.window / 2), 1.0
            self._in_flight.clear()
            self._send()
        elif self._in_flight:
            self._world.at(overdue_ns, self._check)
