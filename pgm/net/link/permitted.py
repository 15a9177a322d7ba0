"""Senders that the topology permits, by data port: for the cores, and for the kernel filters of the sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from pgm.core.late_join.states import state_port
from pgm.core.session.key_records import key_port
from pgm.core.session.proofs import proof_port
from pgm.core.session.source_filter import AllowedSources
from pgm.net.sockets.packet_filter import SenderLists
from pgm.topology.node_plan import NodePlan, StreamPlan

V = TypeVar("V")

# Data ports of the companions of a stream, from the stream's. States have companions of their own.
PortOf = Callable[[int], int]
PROVED: tuple[PortOf, ...] = (proof_port, key_port)
WITH_STATES: tuple[PortOf, ...] = (state_port,)
COMPANIONS: tuple[PortOf, ...] = (
    *PROVED,
    *WITH_STATES,
    lambda port: proof_port(state_port(port)),
    lambda port: key_port(state_port(port)),
)


def with_companions(by_port: Mapping[int, V]) -> dict[int, V]:
    """Return values by data port that hold for states, proofs and key records of the streams, too."""
    others = {of(port): value for port, value in by_port.items() for of in COMPANIONS}
    return {**others, **by_port}


def allowed_sources(plan: NodePlan, streams: Sequence[StreamPlan]) -> AllowedSources:
    """Return the allowed senders of each stream: those of its list, and the elements that answer this node."""
    near = (*plan.parents, *plan.keepers, *plan.siblings, *plan.partners, *chain.from_iterable(plan.repairers))
    return with_companions(
        {stream.data_port: stream.allowed.union(near) for stream in streams if stream.allowed is not None}
    )


def sender_lists(plan: NodePlan) -> SenderLists:
    """Return the addresses that may send to a node: sources, and the nodes with keys of authenticated streams."""
    members = {
        stream.data_port: frozenset(stream.known_keys) for stream in plan.streams if stream.known_keys is not None
    }
    return SenderLists(allowed_sources(plan, plan.streams), with_companions(members))
