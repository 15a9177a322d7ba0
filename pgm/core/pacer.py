"""The rate of one sender: token and leaky bucket for everything, a share of its own for repairs (RFC 5.1.2, 5.1.3).

NCFs are never paced (SRC-02).
"""

from __future__ import annotations

from pgm.core.rate import Bucket
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.train import MAX_TRAIN_OCTETS


class Pacer:
    """TXW_MAX_RTE with bucket `txw_burst_ivl`, a peak rate between trains, and `rdata_share` of it for RDATA."""

    def __init__(self, parameters: Parameters) -> None:
        rate = parameters.txw_max_rte
        packet_ns = Bucket(rate, 0).cost_ns(parameters.max_tpdu) + 1
        burst_ns = max(parameters.txw_burst_ivl, packet_ns)
        self._all = Bucket(rate, burst_ns)
        self._peak = Bucket(rate * parameters.txw_peak_ratio, parameters.txw_peak_ivl)
        self._packet = parameters.max_tpdu
        share = max(1, round(rate * parameters.rdata_share))
        self._repairs = Bucket(share, self._repair_burst_ns(share, burst_ns * rate, parameters))
        self._peak_ratio = parameters.txw_peak_ratio
        self.train_octets = self._longest_train(rate)

    def _longest_train(self, rate: int) -> int:
        return max(self._packet, min(MAX_TRAIN_OCTETS, rate * self._all.burst_ns // SECOND))

    def go_at(self, rate: int) -> None:
        """From now on all together go at this rate; the share of repairs stays what it is of TXW_MAX_RTE."""
        self._all.rate, self._peak.rate = rate, rate * self._peak_ratio
        self.train_octets = self._longest_train(rate)

    @staticmethod
    def _repair_burst_ns(share: int, burst: int, parameters: Parameters) -> int:
        """The bucket of the share holds as many octets as that of the whole, up to a second of the share.

        With the same time it would hold a few packets: a process that is served late would lose most of its share.
        """
        return max(min(burst // share, SECOND), Bucket(share, 0).cost_ns(parameters.max_tpdu) + 1)

    @property
    def rate(self) -> int:
        """Octets a second of all together."""
        return self._all.rate

    def data_ready_at(self, octets: int) -> int:
        """When `octets` of ODATA may leave."""
        return max(self._all.ready_at(min(octets, self.train_octets)), self._peak.ready_at(0))

    def repair_ready_at(self, octets: int) -> int:
        """When about `octets` of RDATA may leave: a guess, taken as one packet at least, so that one always fits."""
        guess = max(octets, self._packet)
        return max(self.data_ready_at(guess), self._repairs.ready_at(min(guess, self.repair_octets)))

    def repair_room(self, now_ns: int) -> int:
        """Octets of RDATA that may leave now; what is due may be more than was guessed."""
        return min(self.repair_octets, self._repairs.available(now_ns), self._all.available(now_ns))

    @property
    def repair_octets(self) -> int:
        """The largest train of repairs: what their bucket holds."""
        return min(self.train_octets, max(1, self._repairs.burst_ns * self._repairs.rate // SECOND))

    def data_sent(self, octets: int, now_ns: int) -> None:
        """Charge ODATA or SPMs."""
        self._all.charge(octets, now_ns)
        self._peak.charge(octets, now_ns)

    def repair_sent(self, octets: int, now_ns: int) -> None:
        """Charge RDATA."""
        self.data_sent(octets, now_ns)
        self._repairs.charge(octets, now_ns)
