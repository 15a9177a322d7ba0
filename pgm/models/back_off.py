"""NAKs of nodes that lack the same packet, with random back-offs of at most T and silence a time c after the first.

A node that hears of a NAK within its back-off stays silent. All that draw less than c after the smallest draw send a NAK.
The truncated exponential back-off of RFC 5401 has the distribution F(t) = (e^(L t/T) - 1) / (e^L - 1). L is ln(group) + 1,
with an estimate of the number of nodes. Most nodes then draw times near T, and few draw short ones.
"""

from __future__ import annotations

import math


def rate_of(group: float) -> float:
    """Return L = ln(group) + 1, the parameter of the exponential back-off for an estimated number of nodes."""
    return math.log(max(1.0, group)) + 1


def uniform_naks(nodes: float, silence: float) -> float:
    """Return the mean NAKs with uniform back-off: E[N] = 1 + n c/T - (c/T)^n.

    `nodes` lack the packet. `silence` is c/T: the time until a NAK silences others, as a share of the largest back-off.
    """
    if nodes <= 0:
        return 0.0
    silence = min(1.0, max(0.0, silence))
    return float(1 + nodes * silence - silence**nodes)


def exponential_naks(nodes: float, silence: float, group: float | None = None) -> float:
    """Return the mean NAKs with truncated exponential back-off (RFC 5401).

    The density of a draw at t + c is e^(L c/T) times that at t. The integral over the smallest draw is thus closed:
    E[N] = n F(c) + e^(L c/T) (1 - (1 - F(T - c))^n). `group` is the estimate behind L, and `nodes` if absent.
    """
    if nodes <= 0:
        return 0.0
    silence = min(1.0, max(0.0, silence))
    rate = rate_of(nodes if group is None else group)
    whole = math.expm1(rate)
    at_once = nodes * math.expm1(rate * silence) / whole
    none_sooner = math.exp(nodes * math.log1p(-late)) if (late := math.expm1(rate * (1 - silence)) / whole) < 1 else 0.0
    return at_once + math.exp(rate * silence) * (1 - none_sooner)
