"""Sends of a packet until all nodes of a link have it, and the NAKs for them.

Every send reaches a node with probability 1 - p, independently of all others. The number of sends is then the largest of
R geometric numbers (Pingali, Towsley, Kurose 1994). One repair serves all nodes that lack the packet.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pgm.errors import UsageError

Floats = npt.NDArray[np.float64]

LEAST_TERM = 1e-12  # of the sums: later terms change no digit that anybody prints


def checked_losses(losses: npt.ArrayLike) -> Floats:
    """Return losses as an array. Raises `UsageError` if one is no share of packets."""
    found = np.atleast_1d(np.asarray(losses, float))
    if not bool(((found >= 0) & (found <= 1)).all()):
        raise UsageError(
            f"loss = {found.tolist()} is no share of packets", remedy="give each loss as a number from 0 to 1"
        )
    return found


def sends_per_packet(losses: npt.ArrayLike, counts: npt.ArrayLike = 1) -> float:
    """Return the mean sends of a packet until all nodes have it: the sum over m >= 0 of 1 - product of (1 - p^m)^count.

    `losses` has the share that nodes lose, and `counts` how many nodes lose that share. Both are numbers, or arrays of
    one shape. The first send is counted. The result is infinite if a node loses all packets.
    """
    return 1 + repairs_per_packet(losses, counts)


def repairs_per_packet(losses: npt.ArrayLike, counts: npt.ArrayLike = 1) -> float:
    """Return the mean repairs of a packet until all nodes have it, as for `sends_per_packet`."""
    found = checked_losses(losses)
    numbers = np.broadcast_to(np.asarray(counts, float), found.shape)
    found, numbers = found[numbers > 0], numbers[numbers > 0]
    if (found >= 1).any():
        return math.inf
    total, missed = 0.0, found.copy()  # probability that a node misses all sends so far
    while (term := -math.expm1(float((numbers * np.log1p(-missed)).sum()))) > LEAST_TERM:
        total += term
        missed *= found
    return total


def naks_without_suppression(losses: npt.ArrayLike, counts: npt.ArrayLike = 1) -> float:
    """Return the mean NAKs for a packet if every node asks for each repair that it lacks: the sum of p / (1 - p)."""
    found = checked_losses(losses)
    if (found >= 1).any():
        return math.inf
    return float((np.asarray(counts, float) * found / (1 - found)).sum())


def naks_with_suppression(losses: npt.ArrayLike, counts: npt.ArrayLike = 1) -> float:
    """Return the mean NAKs for a packet if one node asks for all that lack it: one NAK for each repair."""
    return repairs_per_packet(losses, counts)


def share_at_source(loss: float, receivers: int) -> float:
    """Return the requests of a lone repairer at the source, as a share of the requests of its receivers.

    The repairer and the receivers lose the same share of all packets, independently of each other.
    """
    return repairs_per_packet(loss, 1) / repairs_per_packet(loss, receivers)
