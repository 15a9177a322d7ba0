"""What one asker may have of the repairs that a node can send: somebody may ask for thousands of packets in one NAK.

Repairs have a rate, `rdata_share` of `txw_max_rte`. In each interval of `brake_burst_ivl` those who ask share what it carries in
that time; who is alone may have all of it. Of parity, which is asked for by count, what goes beyond a share is left out and counted;
the timers of the asker repeat it. Repairs of packets beyond it come after those of others.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Nla


class FairShare:
    """The shares of one responder."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._counters = counters
        self._ivl = parameters.brake_burst_ivl
        self._octets = int(parameters.rdata_share * parameters.txw_max_rte) * self._ivl // SECOND
        self._limit = parameters.max_children
        self._spent: dict[Nla, int] = {}  # octets in this interval
        self._askers_before = 0  # in the interval before it
        self._interval = -1

    def grant(self, asker: Nla, packets: int, stride: int, now_ns: int) -> int:
        """How many of so many packets of `stride` octets an asker may have; one at least, once in an interval."""
        self._turn(now_ns)
        spent = self._spent.get(asker)
        if spent is None and len(self._spent) >= self._limit:
            self._counters.parity_packets_braked += packets
            return 0
        askers = max(len(self._spent) + (spent is None), self._askers_before)
        room = (self._octets // askers - (spent or 0)) // stride
        granted = min(packets, max(room, spent is None))
        self._spent[asker] = (spent or 0) + granted * stride
        self._counters.parity_packets_braked += packets - granted
        return granted

    def is_beyond(self, asker: Nla, octets: int, now_ns: int) -> bool:
        """Note what an asker wants; says whether that is more than its share by now."""
        self._turn(now_ns)
        spent = self._spent.get(asker, 0) + octets
        if len(self._spent) < self._limit or asker in self._spent:
            self._spent[asker] = spent
        return spent > self._octets // max(len(self._spent), self._askers_before)

    def _turn(self, now_ns: int) -> None:
        interval = now_ns // self._ivl
        if interval != self._interval:
            self._askers_before = len(self._spent) if interval == self._interval + 1 else 0
            self._interval = interval
            self._spent.clear()
