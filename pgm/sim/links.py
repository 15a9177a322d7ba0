"""Link of a node to a segment, in one direction.

A link has delay, rate, queue, loss, duplication, reordering and outages. A link carries trains. For an untouched train
the link only returns the arrival time, so that all nodes of a segment can share one object. Otherwise the link returns
copies without the lost packets.

Losses are drawn ahead in blocks by a generator of each link. An untouched train then costs one comparison, and no link
influences another.
"""

from __future__ import annotations

import attrs
import numpy as np

from pgm.impairments import Impairment, Injector, Lost, seeded
from pgm.units import KIB, MICROSECOND, NEVER, SECOND
from pgm.wire.train import Train

Arrival = tuple[int, Train]  # arrival time, train


@attrs.frozen
class LinkSetup:
    """Properties of one direction of an attachment. Times in ns, rate in octets/s (0: no limit), queue in octets."""

    delay: int = 50 * MICROSECOND
    jitter: int = 0  # additional delay of at most this, drawn per train; trains keep their order
    rate: int = 0
    queue: int = 256 * KIB  # octets that wait for the rate; packets beyond are dropped
    impairment: Impairment = Impairment()
    # Losses take every packet for at most this long, ns; then their burst ends. The length of a burst is drawn in
    # packets: on a link with one packet a second a burst of 30 packets lasts as long as an outage of 30 seconds.
    burst_ivl: int = NEVER


class SimulatedLink:
    """One direction of one attachment, with counts of lost and changed packets."""

    def __init__(self, setup: LinkSetup, seed: str) -> None:
        self.setup = setup
        self.is_cut = False  # no packet passes: a partition, or total loss
        self.packets = 0
        self.lost = 0
        # since when drawn losses have taken every packet; NEVER: the last packet had another fate
        self.silenced_ns = NEVER
        self.overflowed = 0
        self.duplicated = 0
        self.reordered = 0
        impairment = setup.impairment
        self._losses = None if impairment.is_lossless else Injector(impairment, f"{seed}:loss")
        self._duplicate_draws = (
            Injector(Impairment(loss=impairment.duplicate), f"{seed}:twice") if impairment.duplicate else None
        )
        self._late_draws = Injector(Impairment(loss=impairment.reorder), f"{seed}:late") if impairment.reorder else None
        self._rng = seeded(seed, "jitter")
        self._is_steady = not setup.jitter and not setup.rate
        self._delay = setup.delay
        self._busy_until_ns = 0
        self._newest_ns = 0  # arrival time of the newest train

    def has_room(self, octets: int, now_ns: int) -> bool:
        """Return whether a train of `octets` fits the queue. A longer train fits the empty queue."""
        setup = self.setup
        if not setup.rate or self._busy_until_ns <= now_ns:
            return True
        return self._waiting_octets(now_ns) + octets <= setup.queue

    def room_at_ns(self, octets: int) -> int:
        """Return the time at which `has_room` becomes true, ns."""
        spare = max(0, self.setup.queue - octets)
        return self._busy_until_ns - spare * SECOND // max(1, self.setup.rate)

    def _waiting_octets(self, now_ns: int) -> int:
        return max(0, self._busy_until_ns - now_ns) * self.setup.rate // SECOND

    def pass_whole(self, train: Train, now_ns: int) -> int:
        """Return the arrival of a train that passes untouched, ns; -1 if it may be changed: call `carry`."""
        if not self._is_steady or self.is_cut or self._duplicate_draws is not None or self._late_draws is not None:
            return -1
        losses = self._losses
        if losses is not None and not losses.spares(train.count):
            return -1
        self.silenced_ns = NEVER
        return now_ns + self._delay

    def carry(self, train: Train, now_ns: int) -> list[Arrival]:
        """Return the arrivals of a train, in order of sending."""
        self.packets += train.count
        if self.is_cut:
            self.lost += train.count
            self.silenced_ns = NEVER
            return []
        queued = self._queue(train, now_ns)
        if queued is None:
            self.silenced_ns = NEVER
            return []
        left_ns, queued_train = queued
        if now_ns - self.silenced_ns >= self.setup.burst_ivl and self._losses is not None:
            self._losses.end_burst()
        survived = self._lose(queued_train)
        if survived is None:
            self.silenced_ns = min(self.silenced_ns, now_ns)
            return []
        self.silenced_ns = NEVER
        at_ns = max(self._newest_ns, left_ns + self._delay + self._jitter())
        self._newest_ns = at_ns
        return self._shuffle(survived, at_ns)

    def _queue(self, train: Train, now_ns: int) -> Arrival | None:
        """Return when a train has left the queue, and the part that fitted."""
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
        """Return the arrivals of a train, with duplicates, and with late packets apart."""
        arrivals: list[Arrival] = []
        late = self._late_draws.draw(train.count) if self._late_draws is not None else None
        twice = self._duplicate_draws.draw(train.count) if self._duplicate_draws is not None else None
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
            single = train.without(np.arange(train.count) != index)
            assert single is not None
            singles.append((at_ns + 1 + self._rng.randint(reorder_ivl // 2, reorder_ivl), single))
        return singles
