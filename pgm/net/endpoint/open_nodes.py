"""Nodes that are open in this process, each with the links that all of its endpoints share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import attrs

from pgm.core.structures.arena import Arena
from pgm.errors import UsageError
from pgm.net.endpoint.ack_positions import JointAcks
from pgm.net.link.node_links import NodeLinks, open_links
from pgm.net.link.reader import receiving_arena
from pgm.parameters import ROWS, SOCKET_PARAMETERS, Parameters
from pgm.topology.node_plan import NodePlan, Role

N = TypeVar("N")


@attrs.frozen
class OpenNode(Generic[N]):
    """An open node: its links, what the surface adds to them, the parameters of the sockets, and acks."""

    links: NodeLinks
    reads: N
    parameters: Parameters
    acks: JointAcks = attrs.field(factory=JointAcks)


class OpenNodes(Generic[N]):
    """Open nodes of one event loop, or of one thread that polls."""

    def __init__(self, reads_of: Callable[[NodeLinks], N]) -> None:
        """Make an empty collection. `reads_of` makes what the surface shares between the endpoints of a node."""
        self._reads_of = reads_of
        self._nodes: dict[Hashable, OpenNode[N]] = {}

    @contextmanager
    def held(self, plan: NodePlan, seed: str | None) -> Iterator[OpenNode[N]]:
        """Keep a node open for the length of a block, and as long as it has endpoints.

        Raises `TransportError`, and `UsageError` if the node is open with other parameters of sockets.
        """
        key, is_receiver = _identity(plan), plan.role is Role.RECEIVER
        node = self._nodes.get(key)
        if node is None:
            arena = receiving_arena(plan.parameters) if is_receiver else Arena()
            links = open_links(plan, arena, seed, has_single_consumer=is_receiver, on_closed=lambda: self._forget(key))
            node = self._nodes[key] = OpenNode(links, self._reads_of(links), plan.parameters)
        with node.links.held():
            _require_same_sockets(plan, node.parameters)
            if is_receiver:
                node.links.receive_into(lambda: receiving_arena(plan.parameters))
            yield node

    def _forget(self, key: Hashable) -> None:
        del self._nodes[key]


def _identity(plan: NodePlan) -> Hashable:
    """Return what two openings of the same node have in common."""
    return plan.topology, plan.name, plan.segments


def _require_same_sockets(plan: NodePlan, parameters: Parameters) -> None:
    for name in SOCKET_PARAMETERS:
        now, wanted = getattr(parameters, name), getattr(plan.parameters, name)
        if now != wanted:
            row = ROWS[name]
            raise UsageError(
                f"the sockets of {plan.name} are open with {name} = {row.spell(now)}, not {row.spell(wanted)}",
                remedy=f"give {name} to the endpoint that opens first, or to the node in the file",
            )
