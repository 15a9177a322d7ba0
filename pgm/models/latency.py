"""Time from the loss of a packet to its repair: detection, back-off, round trip, and further rounds."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from pgm.errors import UsageError
from pgm.models.sends import Floats, checked_losses

_STEPS = 200  # of a back-off
_LEAST_SHARE = 1e-7  # of packets that need so many rounds that these are left out


@attrs.frozen
class RepairPath:
    """Times between a node and the sender of its repairs, in seconds.

    A round is a back-off, a NAK and its repair. The repair of a round is lost with probability `loss`, and the next round
    begins `retry_s` after the end of the back-off. The smallest back-off of all `askers` counts.
    """

    detection_s: float  # from the loss to the begin of the back-off: a later packet, and reorder_ivl
    back_off_s: float  # the largest: nak_bo_ivl
    round_trip_s: float  # from the NAK to the repair, with the time that the sender holds the repair
    retry_s: float = 0.0  # nak_rdata_ivl, as long as the node measured nothing better
    loss: float = 0.0
    askers: float = 1.0  # nodes that lack the packet, on average


def latency_quantiles(path: RepairPath, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the latencies in seconds below which these shares of repairs arrive: 0.5 is the median.

    Raises `UsageError` if no repair ever arrives.
    """
    times, chances = _distribution(path)
    order = np.argsort(times)
    below = np.cumsum(chances[order])
    places = np.searchsorted(below, np.asarray(shares, float) * below[-1])
    return tuple(float(times[order][min(int(place), len(order) - 1)]) for place in places)


def mean_latency(path: RepairPath) -> float:
    """Return the mean latency in seconds: D + RTT + T / (n + 1) + p / (1 - p) (retry + T / (n + 1))."""
    _check(path)
    wait = path.back_off_s / (path.askers + 1)
    return path.detection_s + path.round_trip_s + wait + path.loss / (1 - path.loss) * (path.retry_s + wait)


def _check(path: RepairPath) -> None:
    checked_losses(path.loss)
    if path.loss > 0.99:
        raise UsageError(f"loss = {path.loss:.1%}: repairs need hundreds of rounds", remedy="give a loss up to 99 %")


def _distribution(path: RepairPath) -> tuple[Floats, Floats]:
    """Return latencies, and the probability of each."""
    _check(path)
    edges = np.linspace(0, 1, _STEPS + 1)
    back_off = -np.diff((1 - edges) ** path.askers)  # smallest of the back-offs
    times, chances = [], []
    sums, left, number = back_off, 1.0, 0
    while left > _LEAST_SHARE:
        offset = path.detection_s + path.round_trip_s + number * path.retry_s
        middles = (np.arange(len(sums)) + (number + 1) / 2) / _STEPS
        times.append(offset + path.back_off_s * middles)
        chances.append(left * (1 - path.loss) * sums)
        left, number = left * path.loss, number + 1
        if left > _LEAST_SHARE:
            sums = np.convolve(sums, back_off)
    return np.concatenate(times), np.concatenate(chances)
