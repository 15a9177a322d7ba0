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
