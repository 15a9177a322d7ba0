"""Trees and bounds of a search."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import attrs

from pgm.parameters import Parameters, ProfileInputs, lan
from pgm.sim.trees import TreeBuilder
from pgm.topology.node_plan import NodePlan
from pgm.units import KIB, MILLISECOND, SECOND

WINDOW = 4  # packets of the transmit window
RECEIVERS = ("left", "right")
SOURCE = "source"
HORIZON_NS = 2 * SECOND  # below all timers of silence and expiry, and above all others


@attrs.frozen
class Bounds:
    """Limits of what the network and the application do in one run."""

    messages: int = 6  # two more than the window holds
    before: int = 0  # messages of these that all nodes have when the search begins
    losses: int = 2  # packets that the network loses
    copies: int = 1  # packets that the network delivers twice
    flights: int = 3  # packets in flight above which no timer runs and no message is sent
    heartbeats: int = 3  # SPMs of the source by its timer
    horizon_ns: int = HORIZON_NS  # timers further ahead do not run


def parameters(**changes: object) -> Parameters:
    """Return the LAN profile with a window of four packets, and few retries."""
    small = {
        "txw_sqns": WINDOW,
        "txw_secs": SECOND,
        "txw_adv_secs": 100 * MILLISECOND,
        "nak_ncf_retries": 2,
        "nak_data_retries": 2,
        "nak_max_ivl": 50 * MILLISECOND,  # as nak_rpt_ivl: waits do not follow measured times
        "ne_nak_rpt_rte": 20,
        "reorder_ivl": 0,
        "nak_rdata_min_ivl": 200 * MILLISECOND,
        "conflict_keep_bytes": 0,
        "rxw_warm_bytes": 0,
        "rxw_bytes": 256 * KIB,
        "cache_bytes": 256 * KIB,
        "relay_cache_bytes": 256 * KIB,
    }
    return Parameters(**{**lan(ProfileInputs()), **small, **changes})


def _relayed(*, keeps_packets: bool) -> TreeBuilder:
    tree = TreeBuilder(parameters())
    tree.source(SOURCE, "core")
    add = tree.repairer if keeps_packets else tree.aggregator
    add("element", "core", "hall", parents=(SOURCE,))
    for name in RECEIVERS:
        tree.receiver(name, "hall", "element")
    return tree


def _on_lan() -> TreeBuilder:
    tree = TreeBuilder(parameters())
    tree.source(SOURCE, "core")
    tree.repairer("element", "core", parents=(SOURCE,))
    for name in RECEIVERS:
        tree.receiver(name, "core", "element", SOURCE)
    return tree


SETUPS: Mapping[str, Callable[[], TreeBuilder]] = {
    "aggregator": functools.partial(_relayed, keeps_packets=False),  # a relay between two segments
    "repairer": functools.partial(_relayed, keeps_packets=True),  # the same with a cache
    "on-lan": _on_lan,  # a repairer on the one segment of all nodes
}


@functools.cache
def plans_of(setup: str) -> Mapping[str, NodePlan]:
    """Return the plan of each node of a set-up."""
    return SETUPS[setup]().plans
