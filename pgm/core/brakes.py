"""Storm brakes: budgets per child and per session, on by default (RFC 5.2, 7.6, 10, 13.4).

A budget that is used up drops and counts; the timers of whoever asked repeat the request.
"""

from __future__ import annotations

from collections import OrderedDict

from pgm.core.counters import Counters
from pgm.core.rate import Bucket
from pgm.parameters import Parameters
from pgm.wire.formats import Nla


class Brakes:
    """The budgets of one session at a parent."""

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._parameters = parameters
        self._counters = counters
        self._naks = self._bucket(parameters.session_nak_rte)
        self._ncfs = self._bucket(parameters.session_ncf_rte)
        self._spmr_free_at_ns = 0
        self._children: OrderedDict[Nla, Bucket] = OrderedDict()

    def _bucket(self, rate: int) -> Bucket:
        return Bucket(rate, self._parameters.brake_burst_ivl)

    def admit_nak(self, child: Nla, now_ns: int) -> bool:
        """Whether a NAK of this child is taken in."""
        bucket = self._children.get(child)
        if bucket is None:
            bucket = self._children[child] = self._bucket(self._parameters.child_nak_rte)
            if len(self._children) > self._parameters.max_children:
                self._children.popitem(last=False)
        self._children.move_to_end(child)
        if bucket.take(1, now_ns) and self._naks.take(1, now_ns):
            return True
        self._counters.nak_packets_braked += 1
        return False

    def admit_ncf(self, now_ns: int) -> bool:
        """Whether an NCF may leave."""
        if self._ncfs.take(1, now_ns):
            return True
        self._counters.ncf_packets_braked += 1
        return False

    def admit_spmr(self, now_ns: int) -> bool:
        """Whether an SPMR is answered: once in IHB_MIN (SRC-26)."""
        if now_ns >= self._spmr_free_at_ns:
            self._spmr_free_at_ns = now_ns + self._parameters.ihb_min
            return True
        self._counters.spmr_packets_braked += 1
        return False
