"""Rate of a congestion-controlled source, by the round trip and the loss of its acker (draft-ietf-rmt-bb-pgmcc-03)."""

from __future__ import annotations

import math


def window_rate(rtt_s: float, loss: float) -> float:
    """Return the packets a second of a window that grows by one in a round trip and is halved by each loss.

    Losses are independent. The window saws between W/2 and W with one loss in 3/8 W^2 packets. The rate is thus
    sqrt(3 / (2 p)) / RTT, for a window of several packets and without a limit elsewhere.
    """
    return math.inf if loss <= 0 or rtt_s <= 0 else math.sqrt(1.5 / loss) / rtt_s


def election_rate(rtt_s: float, loss: float) -> float:
    """Return the relative rate by which acker and candidates are compared: 1 / (RTT sqrt(p) (1 + 9 p (1 + 32 p^2))).

    The unit is arbitrary, because the draft (2.4) compares such rates only with each other.
    """
    if loss <= 0 or rtt_s <= 0:
        return math.inf
    return 1 / (rtt_s * math.sqrt(loss) * (1 + 9 * loss * (1 + 32 * loss**2)))
