"""Sends and requests on each link of a tree, from the losses of its nodes.

A link has one sender from above, the source or a relay, and nodes that lose its packets independently. A sender that keeps
packets repairs the losses of its link, so a loss below it costs nothing above it. A relay that keeps none needs each
repair from above, for its own losses and for those of the nodes below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np

from pgm.errors import UsageError
from pgm.models.sends import LEAST_TERM, Floats, checked_losses

_MOST_SENDS = 10_000  # of one packet: beyond a path loss of 99.5 %


@attrs.frozen
class ModelNode:
    """Nodes of one kind on a link: receivers, repairers, or relays with a link below each."""

    loss: float  # share of the packets of the link that each of the nodes loses
    count: int = 1
    is_repairer: bool = (
        False  # on-LAN: answers requests of the link, and asks its sender for packets that all repairers lack
    )
    below: ModelLink | None = None  # that each of the nodes relays onto


@attrs.frozen
class ModelLink:
    """Link with its nodes, the sender from above excluded."""

    name: str
    nodes: tuple[ModelNode, ...]
    keeps: bool = True  # the sender repairs losses of this link. False: a relay without packets, that asks upstream


@attrs.frozen
class LinkFigures:
    """Costs of a packet on each of `count` links that are alike."""

    name: str
    count: int
    nodes: int  # on the link, without its sender from above
    sends: float  # by all senders of the link, the first one included
    requests: float  # repairs that the sender from above must provide; with perfect suppression its NAKs too
    naks: float  # at the sender from above, if nodes do not suppress each other's NAKs


def link_figures(top: ModelLink) -> tuple[LinkFigures, ...]:
    """Return the figures of the source's link and of all links below, from the top down.

    Raises `UsageError` if a path loses more than 99.5 % of the packets.
    """
    return tuple(_figures(top, 1, _length(top)))


def _length(top: ModelLink) -> int:
    """Return how many sends to consider, so that the rest of all sums is negligible."""
    worst, total = _worst(top)
    if worst <= 0:
        return 2
    needed = math.log(LEAST_TERM / total) / math.log(worst) if worst < 1 else math.inf
    if needed > _MOST_SENDS:
        raise UsageError(
            f"a path below {top.name!r} loses {worst:.1%} of all packets",
            remedy="a packet needs thousands of sends there: give losses below 99.5 %",
        )
    return math.ceil(needed) + 2


def _worst(link: ModelLink) -> tuple[float, int]:
    """Return the largest loss of a path from the sender of a link, and the number of nodes at and below the link."""
    worst, total = 0.0, 0
    for node in link.nodes:
        [loss] = checked_losses(node.loss)
        below, more = _worst(node.below) if node.below is not None else (0.0, 0)
        worst, total = max(worst, 1 - (1 - loss) * (1 - below)), total + node.count * (1 + more)
    return float(worst), max(1, total)


def _figures(link: ModelLink, count: int, length: int) -> Iterator[LinkFigures]:
    each = [(node.count, supplied(node, length)) for node in link.nodes]
    needed = _served(link, length)
    repairers = sum(node.count for node in link.nodes if node.is_repairer)
    requests = _sum(needed) - 1
    naks = repairers * requests if repairers else sum(number * (_sum(one) - 1) for number, one in each)
    yield LinkFigures(
        name=link.name,
        count=count,
        nodes=sum(number for number, _ in each),
        sends=_sum(_product(each, length)),
        requests=requests,
        naks=naks,
    )
    for node in link.nodes:
        if node.below is not None:
            yield from _figures(node.below, count * node.count, length)


def _sum(within: Floats) -> float:
    return 1 + float((1 - within[1:]).sum())  # the first send is made for any number of nodes


def _product(each: list[tuple[int, Floats]], length: int) -> Floats:
    """Return the product for all nodes, for each number of sends; without nodes it is 1."""
    logs: Floats = np.zeros(length)
    with np.errstate(divide="ignore"):
        for number, one in each:
            if number:
                logs += number * np.log(one)
    return np.asarray(np.exp(logs), float)


def supplied(node: ModelNode, length: int) -> Floats:
    """Return the probability that m sends on the link supply one of these nodes and all below it, for each m."""
    if node.below is None or node.below.keeps:
        return np.asarray(1 - node.loss ** np.arange(length), float)
    inner, found = _served(node.below, length), np.empty(length)
    chances = np.zeros(length)  # of each number of arrivals at the relay after m sends
    chances[0] = 1.0
    for sends in range(length):
        found[sends] = chances @ inner
        chances[1:] = node.loss * chances[1:] + (1 - node.loss) * chances[:-1]
        chances[0] *= node.loss
    return np.minimum(found, 1.0)


def _served(link: ModelLink, length: int) -> Floats:
    """Return the probability that a link needs no further packet of its sender after m sends of it."""
    lacking = [(node.loss, node.count) for node in link.nodes if node.is_repairer]
    if lacking:
        together = math.prod(loss**number for loss, number in lacking)
        return np.asarray(1 - together ** np.arange(length), float)
    return _product([(node.count, supplied(node, length)) for node in link.nodes], length)
