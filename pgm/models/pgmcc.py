"""Rate of a congestion-controlled source, by the round trip and the loss of its acker (draft-ietf-rmt-bb-pgmcc-03)."""

from __future__ import annotations

import math

# 1 / E[(2 X)^(-1/2)] for the sum X of independent exponential draws with means 1, 1/4, 1/16, ...: see `window_rate`.
_INDEPENDENT = 1.3098


def window_rate(rtt_s: float, loss: float) -> float:
    """Return the packets a second of a window that grows by one in a round trip and is halved by each loss.

    Losses are independent. W^2 / 2 grows by 1 with each packet, and a loss divides it by 4. Before a loss it is therefore
    the sum of exponential draws with means 1/p, 1/(4 p), 1/(16 p), and so on. The rate is 1 / (RTT E[1 / W]), which is
    1.31 / (RTT sqrt(p)). Losses at equal distances would give sqrt(3/2) in place of 1.31. Only whole packets are sent, so
    half a packet of the window is idle on average. The formula holds for a window without a limit elsewhere.
    """
    return math.inf if loss <= 0 or rtt_s <= 0 else (_INDEPENDENT / math.sqrt(loss) - 0.5) / rtt_s


def election_rate(rtt_s: float, loss: float) -> float:
    """Return the relative rate by which acker and candidates are compared: 1 / (RTT sqrt(p) (1 + 9 p (1 + 32 p^2))).

    The unit is arbitrary, because the draft (2.4) compares such rates only with each other.
    """
    if loss <= 0 or rtt_s <= 0:
        return math.inf
    return 1 / (rtt_s * math.sqrt(loss) * (1 + 9 * loss * (1 + 32 * loss**2)))
