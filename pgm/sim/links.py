"""One direction of one node's place on a segment: delay, rate and queue, loss, duplication, reordering, outages.

A link works on trains. Where nothing happens to a train the link only says when it arrives, so that a
segment can hand one and the same train to all its nodes; otherwise it gives copies without the packets that
were lost. Fates are drawn ahead in blocks by a generator of the link's own: a train that gets through costs a
comparison, and what happens on one link never depends on another.
"""

from __future__ import annotations

import attrs
import numpy as np

from pgm.impairments import Impairment, Injector, Lost, seeded
from pgm.units import KIB, MICROSECOND, NEVER, SECOND
from pgm.wire.train import Train

Arrival = tuple[int, Train]  # when, what


@attrs.frozen
class LinkSetup:
    """What one direction of an attachment is like. Times in ns, rate in octets/s (0: no limit), queue in octets."""

    delay: int = 50 * MICROSECOND
    jitter: int = 0  # at most this much more, drawn per train; trains do not overtake each other by it
    rate: int = 0
    queue: int = 256 * KIB  # what waits for the rate; packets beyond it are dropped
    impairment: Impairment = Impairment()
    # Losses take every packet for at most this long, ns; then their burst ends. The length of a burst is drawn in packets:
    # on a link with one packet a second a burst of 30 packets lasts as long as an outage of 30 seconds.
    burst_ivl: int = NEVER


class SimulatedLink:
    """One direction of one attachment. Counts what it does to packets."""

    def __init__(self, setup: LinkSetup, seed: str) -> None:
        self.setup = setup
        self.is_cut = False  # nothing passes: a partition, or total loss
        self.packets = 0
        self.lost = 0
        self.silenced_ns = NEVER  # since when drawn losses have taken every packet; NEVER: something else was the last
        self.overflowed = 0
        self.duplicated = 0
        self.reordered = 0
        impairment = setup.impairment
        self._losses = None if impairment.is_lossless else Injector(impairment, f"{seed}:loss")
        self._doubles = (
            Injector(Impairment(loss=impairment.duplicate), f"{seed}:twice") if impairment.duplicate else None
        )
        self._laggards = Injector(Impairment(loss=impairment.reorder), f"{seed}:late") if impairment.reorder else None
        self._rng = seeded(seed, "jitter")
        self._is_steady = not setup.jitter and not setup.rate
        self._delay = setup.delay
        self._busy_until_ns = 0
        self._newest_ns = 0  # when the last train arrives

    @property
    def free_at_ns(self) -> int:
        """When what waits for the rate will have left."""
        return self._busy_until_ns

    def has_room(self, octets: int, now_ns: int) -> bool:
        """Whether a train of `octets` fits the queue. A longer one fits the empty queue."""
        setup = self.setup
        if not setup.rate or self._busy_until_ns <= now_ns:
            return True
        return self._waiting_octets(now_ns) + octets <= setup.queue

    def room_at_ns(self, octets: int) -> int:
        """When `has_room` will say yes."""
        spare = max(0, self.setup.queue - octets)
        return self._busy_until_ns - spare * SECOND // max(1, self.setup.rate)

    def _waiting_octets(self, now_ns: int) -> int:
        return max(0, self._busy_until_ns - now_ns) * self.setup.rate // SECOND

    def pass_whole(self, train: Train, now_ns: int) -> int:
        """When a train arrives to which nothing happens, or -1: then ask `carry`."""
        if not self._is_steady or self.is_cut or self._doubles is not None or self._laggards is not None:
            return -1
        losses = self._losses
        if losses is not None and not losses.spares(train.count):
            return -1
        self.silenced_ns = NEVER
        return now_ns + self._delay

    def carry(self, train: Train, now_ns: int) -> list[Arrival]:
        """What arrives of a train, and when, in order of sending."""
        self.packets += train.count
        if self.is_cut:
            self.lost += train.count
            self.silenced_ns = NEVER
            return []
        queued = self._queue(train, now_ns)
        if queued is None:
            self.silenced_ns = NEVER
            return []
        left_ns, whole = queued
        if now_ns - self.silenced_ns >= self.setup.burst_ivl and self._losses is not None:
            self._losses.end_burst()
        survived = self._lose(whole)
        if survived is None:
            self.silenced_ns = min(self.silenced_ns, now_ns)
            return []
        self.silenced_ns = NEVER
        at_ns = max(self._newest_ns, left_ns + self._delay + self._jitter())
        self._newest_ns = at_ns
        return self._shuffle(survived, at_ns)

    def _queue(self, train: Train, now_ns: int) -> Arrival | None:
        """When a train has left the queue, and what of it did not fit."""
        setup = self.setup
        if not setup.rate:
            return now_ns, train
        spare = setup.queue - self._waiting_octets(now_ns)
        if self._busy_until_ns <= now_ns:
            spare = max(spare, train.length)  # an idle line takes any train
        fitting = min(train.count, max(0, spare) // train.stride + (spare >= train.length))
        kept: Train | None = train
        if fitting < train.count:
            self.overflowed += train.count - fitting
            kept = train.without(np.arange(train.count) >= fitting)
        if kept is None:
            return None
        self._busy_until_ns = max(self._busy_until_ns, now_ns) + kept.length * SECOND // setup.rate
        return self._busy_until_ns, kept

    def _lose(self, train: Train) -> Train | None:
        lost = self._losses.draw(train.count) if self._losses is not None else None
        if lost is None:
            return train
        self.lost += int(lost.sum())
        return train.without(lost)

    def _jitter(self) -> int:
        return self._rng.randint(0, self.setup.jitter) if self.setup.jitter else 0

    def _shuffle(self, train: Train, at_ns: int) -> list[Arrival]:
        """Packets that come twice, and packets that leave their train and come later."""
        arrivals: list[Arrival] = []
        late = self._laggards.draw(train.count) if self._laggards is not None else None
        twice = self._doubles.draw(train.count) if self._doubles is not None else None
        if late is not None:
            self.reordered += int(late.sum())
            arrivals += self._singles(train, late, at_ns)
        if twice is not None:
            self.duplicated += int(twice.sum())
            arrivals += self._singles(train, twice, at_ns)
        on_time = train if late is None else train.without(late)
        return [(at_ns, on_time), *arrivals] if on_time is not None else arrivals

    def _singles(self, train: Train, chosen: Lost, at_ns: int) -> list[Arrival]:
        reorder_ivl = self.setup.impairment.reorder_ivl
        singles: list[Arrival] = []
        for index in np.flatnonzero(chosen).tolist():
            one = train.without(np.arange(train.count) != index)
            assert one is not None
            singles.append((at_ns + 1 + self._rng.randint(reorder_ivl // 2, reorder_ivl), one))
        return singles
