"""Share of each asker in a node's repairs.

One NAK may request thousands of packets. The rate of repairs is `rdata_share` of `txw_max_rte`. In each interval of
`brake_burst_ivl` the askers share the octets that this rate carries. A single asker may use all of them.

Parity is requested by count. Parity packets beyond a share are refused and counted, and the asker's timers repeat the
request. Single packets beyond a share are repaired after those of other askers. At most one interval of such repairs
waits.
"""

from __future__ import annotations

from pgm.core.session_context import SessionContext
from pgm.units import SECOND
from pgm.wire.formats import Nla


class FairShare:
    """Shares of the askers at one responder."""

    def __init__(self, context: SessionContext) -> None:
        parameters = context.parameters
        self._counters = context.counters
        self._ivl = parameters.brake_burst_ivl
        # of all askers in one interval
        self.octets = int(parameters.rdata_share * parameters.txw_max_rte) * self._ivl // SECOND
        self._limit = parameters.max_children
        self._spent: dict[Nla, int] = {}  # octets in this interval
        self._askers_before = 0  # in the previous interval
        self._interval = -1

    def grant(self, asker: Nla, packets: int, stride: int, now_ns: int) -> int:
        """Return how many of `packets` an asker may have, each of `stride` octets.

        The first grant of an asker in an interval is at least one packet, unless too many askers are known.
        """
        self._turn(now_ns)
        spent, is_new = self._spent.get(asker, 0), asker not in self._spent
        if is_new and len(self._spent) >= self._limit:
            self._counters.parity_packets_braked += packets
            return 0
        askers = max(len(self._spent) + is_new, self._askers_before)
        room = (self.octets // askers - spent) // stride
        granted = min(packets, max(room, is_new))
        self._spent[asker] = spent + granted * stride
        self._counters.parity_packets_braked += packets - granted
        return granted

    def is_beyond(self, asker: Nla, octets: int, now_ns: int) -> bool:
        """Count requested octets. Return whether the asker is now beyond its share."""
        self._turn(now_ns)
        spent = self._spent.get(asker, 0) + octets
        if len(self._spent) < self._limit or asker in self._spent:
            self._spent[asker] = spent
        return spent > self.octets // max(len(self._spent), self._askers_before)

    def _turn(self, now_ns: int) -> None:
        interval = now_ns // self._ivl
        if interval != self._interval:
            self._askers_before = len(self._spent) if interval == self._interval + 1 else 0
            self._interval = interval
            self._spent.clear()
