"""Packets sent with parity in groups, until all nodes can decode (Nonnenmacher, Biersack, Towsley 1997).

Any k packets of a group restore its k data packets. So one parity packet replaces a different loss at each node.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pgm.models.sends import LEAST_TERM, checked_losses


def parity_packets_per_group(
    losses: npt.ArrayLike, counts: npt.ArrayLike = 1, *, group: int, unasked: int = 0
) -> float:
    """Return the mean number of parity packets for a group, those sent `unasked` included.

    Each node needs `group` packets out of all that are sent. The excess L of a node is negative binomial:
    P(L <= m) = sum over j <= m of C(k + j - 1, j) p^j (1 - p)^k. The largest excess of all nodes is the number of parity
    packets. `losses` and `counts` are those of `sends_per_packet`.
    """
    found = checked_losses(losses)
    numbers = np.broadcast_to(np.asarray(counts, float), found.shape)
    found, numbers = found[numbers > 0], numbers[numbers > 0]
    if (found >= 1).any():
        return math.inf
    share = (1 - found) ** group  # P(L = j)
    within, total, number = share.copy(), float(unasked), 0
    while True:
        with np.errstate(divide="ignore"):
            term = -math.expm1(float((numbers * np.log(np.minimum(within, 1.0))).sum()))
        if term < LEAST_TERM or bool((share <= 1e-17).all() and number > group):
            return total
        if number >= unasked:
            total += term
        number += 1
        share = share * found * (group + number - 1) / number
        within = within + share


def sends_with_parity(losses: npt.ArrayLike, counts: npt.ArrayLike = 1, *, group: int, unasked: int = 0) -> float:
    """Return the mean packets sent for a packet of data with integrated parity: E = (k + E[L]) / k."""
    return (group + parity_packets_per_group(losses, counts, group=group, unasked=unasked)) / group
