"""Gilbert-Elliott model of a link's losses: random losses and bursts.

The model is that of `pgm.impairments`. Packets are lost independently with share p. A chain of two states also loses
every packet in its bad state. That state covers a share b of the packets, in bursts of mean length L.

The losses of two packets at distance k then have the covariance (1-p)^2 b (1-b) m^k, with m = 1 - 1/(L (1-b)). So
covariances at several distances give b and m, and the total loss gives p. The fit needs only the number of lost pairs,
not the order of single packets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pgm.impairments import Impairment

_SIGMAS = 4.0  # a covariance must exceed chance by this factor to count as bursts
_STEPS = 1000  # values tried for the chain's memory


def gilbert_elliott(packets: int, lost: int, pairs: Mapping[int, int]) -> Impairment:
    """Return the impairment that fits `lost` of `packets`; `pairs[k]` counts lost packets with a lost kth successor."""
    if not packets or not lost:
        return Impairment()
    share = lost / packets
    if share >= 1:
        return Impairment(loss=1.0)
    lags = np.array(sorted(pairs), float)
    covariances = np.array([pairs[int(lag)] / packets for lag in lags]) - share**2
    if covariances[0] < _SIGMAS * share / math.sqrt(packets):
        return Impairment(loss=share)
    # Least squares: each memory m determines the best amplitude; the best pair wins.
    memories = np.arange(1, _STEPS) / _STEPS
    powers = memories[:, None] ** lags
    amplitudes = (powers @ covariances) / (powers**2).sum(axis=1)
    errors = ((covariances - amplitudes[:, None] * powers) ** 2).sum(axis=1)
    best = int(errors.argmin())
    ratio = max(0.0, float(amplitudes[best])) / (1 - share) ** 2
    bursty = min(ratio / (1 + ratio), share)
    length = 1 / max((1 - float(memories[best])) * (1 - bursty), 1e-6)
    chance = max(0.0, 1 - (1 - share) / (1 - bursty))
    return Impairment(loss=chance, burst_loss=bursty, burst_length=max(1.0, length))
