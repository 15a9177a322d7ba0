"""Share of each asker in a node's repairs.

One NAK may request thousands of packets. The rate of repairs is `rdata_share` of `txw_max_rte`. In each interval of
`brake_burst_ivl` the askers share the octets that this rate carries. A single asker may use all of them.

Parity is requested by count. Parity packets beyond a share are refused and counted, and the asker's timers repeat the
request. Single packets beyond a share are repaired after those of other askers. At most one interval of such repairs
waits.

Requests that a relay passes up, and requests of unknown senders, are dropped beyond a share (`take`). The last request
within a share may exceed it, because a share may be smaller than one request.
"""

from __future__ import annotations

from pgm.core.session_context import SessionContext
from pgm.units import SECOND
from pgm.wire.formats import Nla

NEWCOMERS: Nla = "newcomers"  # instead of an address: all askers that are neither named nor proven, as one


class FairShare:
    """Shares of the askers at one node, or of a `part` of its repairs."""

    def __init__(self, context: SessionContext, part: int = 1) -> None:
        self._parameters = parameters = context.parameters
        self._counters = context.counters
        self._ivl = parameters.brake_burst_ivl
        self._part = part
        self._limit = parameters.max_children
        self._spent: dict[Nla, int] = {}  # octets in this interval
        self._before: dict[Nla, int] = {}  # the same of the previous interval
        self._interval = -1

    @property
    def octets(self) -> int:
        """Return the octets of all askers in one interval, at the rate as it is now."""
        parameters = self._parameters
        return int(parameters.rdata_share * parameters.txw_max_rte) * self._ivl // (SECOND * self._part)

    def has_others(self, asker: Nla, now_ns: int) -> bool:
        """Return whether others have asked in this interval or the one before."""
        self._turn(now_ns)
        return len(self._spent) > (asker in self._spent) or len(self._before) > (asker in self._before)

    def grant(self, asker: Nla, packets: int, stride: int, now_ns: int) -> int:
        """Return how many of `packets` an asker may have, each of `stride` octets.

        The first grant of an asker in an interval is at least one packet, unless too many askers are known.
        """
        self._turn(now_ns)
        spent, is_new = self._spent.get(asker, 0), asker not in self._spent
        if is_new and len(self._spent) >= self._limit:
            self._counters.parity_packets_braked += packets
            return 0
        askers = max(len(self._spent) + is_new, len(self._before))
        room = (self.octets // askers - spent) // stride
        granted = min(packets, max(room, is_new))
        self._spent[asker] = spent + granted * stride
        self._counters.parity_packets_braked += packets - granted
        return granted

    def is_beyond(self, asker: Nla, octets: int, now_ns: int) -> bool:
        """Count requested octets. Return whether the asker is now beyond its share."""
        self._turn(now_ns)
        return self._add(asker, octets) > self._equal

    def take(self, asker: Nla, octets: int, now_ns: int) -> bool:
        """Count requested octets if the asker has some of its share left. Return whether it has."""
        self._turn(now_ns)
        if self._spent.get(asker, 0) >= self._equal:
            return False
        self._add(asker, octets)
        return True

    def take_up_to(self, asker: Nla, octets: int, most: int, now_ns: int) -> bool:
        """Count requested octets if the asker has requested less than `most` in this interval. Return whether it had."""
        self._turn(now_ns)
        if self._spent.get(asker, 0) >= most:
            return False
        self._add(asker, octets)
        return True

    def _add(self, asker: Nla, octets: int) -> int:
        spent = self._spent.get(asker, 0) + octets
        if len(self._spent) < self._limit or asker in self._spent:
            self._spent[asker] = spent
        return spent

    @property
    def _equal(self) -> int:
        return self.octets // max(len(self._spent), len(self._before), 1)

    def _turn(self, now_ns: int) -> None:
        interval = now_ns // self._ivl
        if interval == self._interval:
            return
        self._before = self._spent if interval == self._interval + 1 else {}
        self._interval, self._spent = interval, {}
