"""Rate of one sender, with a share for repairs (RFC 5.1.2, 5.1.3).

The limit is a token and leaky bucket. Octets are always limited. Packets are limited if `txw_max_pps` is set. Repairs
count against both limits.

NCFs are never paced (SRC-02).
"""

from __future__ import annotations

from pgm.core.pacing.token_bucket import TokenBucket
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.train import MAX_CONVOY_OCTETS, MAX_CONVOY_PACKETS, MAX_TRAIN_OCTETS


class Pacer:
    """Pacer at TXW_MAX_RTE: a bucket of `txw_burst_ivl`, a peak rate between trains, and `rdata_share` for RDATA."""

    def __init__(self, parameters: Parameters) -> None:
        rate = parameters.txw_max_rte
        self._parameters = parameters
        self._slack_ns = min(parameters.txw_slack_ivl, parameters.txw_burst_ivl // 2)
        self._packet = parameters.max_tpdu
        self._all, self._peak, self.repairs = (TokenBucket(*size) for size in self._sizes(rate))
        self._peak_ratio = parameters.txw_peak_ratio
        self._packets = _packet_bucket(parameters)
        self._set_longest_train(rate)

    def _sizes(self, rate: int) -> list[tuple[int, int]]:
        """Return rate and burst (ns) of the buckets for all octets, peaks and repairs."""
        parameters = self._parameters
        packet_ns = TokenBucket(rate, 0).cost_ns(parameters.max_tpdu) + 1
        burst_ns = max(parameters.txw_burst_ivl, packet_ns + self._slack_ns)
        share = max(1, round(rate * parameters.rdata_share))
        return [
            (rate, burst_ns),
            (rate * parameters.txw_peak_ratio, parameters.txw_peak_ivl),
            (share, self._repair_burst_ns(share, burst_ns * rate, parameters)),
        ]

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the total rate, and the share of repairs in it."""
        for bucket, (changed, burst_ns) in zip((self._all, self._peak, self.repairs), self._sizes(rate), strict=True):
            bucket.change(changed, burst_ns, now_ns)
        self._set_longest_train(rate)

    def share_repairs(self, repairs: TokenBucket) -> None:
        """Take RDATA from a bucket that another session of the source has, too."""
        self.repairs = repairs

    def _set_longest_train(self, rate: int) -> None:
        """Set the longest trains that may leave at once, of data and of repairs.

        The limit is the content of the bucket, less the slack. Beyond one train the peak rate is a further limit.
        """
        peak = max(MAX_TRAIN_OCTETS, self._peak.most)
        most = min(MAX_CONVOY_OCTETS, peak, rate * (self._all.burst_ns - self._slack_ns) // SECOND)
        self.train_octets = max(self._packet, most)
        # The largest train of repairs is the content of the repairs' bucket.
        self.repair_octets = min(self.train_octets, max(1, self.repairs.most))
        # The time of a single packet is precomputed, to save a division for each packet.
        self._packet_spare_ns = max(0, self._all.burst_ns - self._all.cost_ns(self._packet))
        self._alone_octets, self._alone_ns, self._alone_peak_ns = 0, 0, 0

    def go_at(self, rate: int) -> None:
        """Set the total rate. The repairs' share of TXW_MAX_RTE stays as it is."""
        self._all.rate, self._peak.rate = rate, rate * self._peak_ratio
        self._set_longest_train(rate)

    @staticmethod
    def _repair_burst_ns(share: int, burst: int, parameters: Parameters) -> int:
        """Return the burst of the repairs' bucket in ns.

        That bucket holds as many octets as the bucket for all octets, up to one second of the share. With the same
        burst time it would hold a few packets, and a process that runs late would lose most of its share.
        """
        return max(min(burst // share, SECOND), TokenBucket(share, 0).cost_ns(parameters.max_tpdu) + 1)

    @property
    def burst_ns(self) -> int:
        """Return the burst that may leave after a pause, as ns at the rate."""
        return self._all.burst_ns

    @property
    def rate(self) -> int:
        """Return the total rate, in octets a second."""
        return self._all.rate

    def data_ready_at(self, octets: int) -> int:
        """Return when `octets` of ODATA may leave."""
        ready = max(self._all.ready_at(min(octets, self.train_octets)), self._peak.ready_at(0))
        packets = self._packets
        if packets is None:
            return ready
        # Half of the bucket at a time, because single packets would cost a call each.
        return max(ready, packets.ready_at(max(1, packets.rate * packets.burst_ns // (2 * SECOND))))

    @property
    def packet_ready_at(self) -> int:
        """Return when a packet of `max_tpdu` octets may leave. Only for a pacer without a limit in packets."""
        return max(self._all.full_at_ns - self._packet_spare_ns, self._peak.full_at_ns - self._peak.burst_ns)

    def packet_sent(self, octets: int, now_ns: int) -> int:
        """Charge one packet, and return the new `packet_ready_at`. Only for a pacer without a limit in packets."""
        if octets != self._alone_octets:
            self._alone_octets = octets
            self._alone_ns, self._alone_peak_ns = self._all.cost_ns(octets), self._peak.cost_ns(octets)
        # `TokenBucket.charge` and `packet_ready_at`, written out for speed on the path of single packets.
        every, peak = self._all, self._peak
        full_ns, peak_ns = every.full_at_ns, peak.full_at_ns
        if full_ns < now_ns:
            full_ns = now_ns
        if peak_ns < now_ns:
            peak_ns = now_ns
        every.full_at_ns = full_ns = full_ns + self._alone_ns
        peak.full_at_ns = peak_ns = peak_ns + self._alone_peak_ns
        return max(full_ns - self._packet_spare_ns, peak_ns - peak.burst_ns)

    def repair_ready_at(self, octets: int) -> int:
        """Return when about `octets` of RDATA, one packet of `max_tpdu` at least, may leave: any packet fits."""
        estimate = max(octets, self._packet)
        return max(self.data_ready_at(estimate), self.repairs.ready_at(min(estimate, self.repair_octets)))

    def packet_room(self, now_ns: int) -> int:
        """Return how many packets may leave now, in one train."""
        if self._packets is None:
            return MAX_CONVOY_PACKETS
        return min(MAX_CONVOY_PACKETS, max(1, self._packets.available(now_ns)))

    def repair_room(self, now_ns: int) -> int:
        """Return how many octets of RDATA may leave now. Due repairs may exceed the estimate of `repair_ready_at`."""
        return min(self.repair_octets, self.repairs.available(now_ns), self._all.available(now_ns))

    def data_sent(self, octets: int, now_ns: int, packets: int = 1) -> None:
        """Charge ODATA or SPMs."""
        self._all.charge(octets, now_ns)
        self._peak.charge(octets, now_ns)
        if self._packets is not None:
            self._packets.charge(packets, now_ns)

    def repair_sent(self, octets: int, now_ns: int, packets: int = 1) -> None:
        """Charge RDATA."""
        self.data_sent(octets, now_ns, packets)
        self.repairs.charge(octets, now_ns)


def _packet_bucket(parameters: Parameters) -> TokenBucket | None:
    """Return the bucket of the limit in packets; None without a limit. The bucket holds at least one packet."""
    rate = parameters.txw_max_pps
    return TokenBucket(rate, max(parameters.txw_burst_ivl, TokenBucket(rate, 0).cost_ns(1))) if rate else None
