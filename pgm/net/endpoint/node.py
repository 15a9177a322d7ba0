"""Nodes with many streams: sources and receivers of one node share its sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar, Unpack

from pgm.net.endpoint.keywords import NodeParameters, NodeReceiverKeywords, NodeSourceKeywords
from pgm.net.endpoint.open import Target, open_receiver, open_source, plans_of
from pgm.net.endpoint.opening import opening
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.endpoint.surfaces import new_surface
from pgm.topology.node_plan import NodePlan, Role

S = TypeVar("S")
R = TypeVar("R")


class SharedNode(Generic[S, R]):
    """Node of this process on any surface: any number of its sources and receivers share its sockets."""

    def __init__(
        self, plans: Mapping[Role, NodePlan], open_source: Callable[..., S], open_receiver: Callable[..., R]
    ) -> None:
        """Open endpoints by the plans of their roles; a node that only receives has one plan."""
        self._plans = plans
        self._open_source = open_source
        self._open_receiver = open_receiver

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self._plans[Role.RECEIVER].name

    def source(self, stream: str | None = None, **options: Unpack[NodeSourceKeywords]) -> S:
        """Open a source of a stream; `options` are those of `open_source`. Two sources of one stream are two sessions."""
        return self._open_source(sockets_plan(self._plans), stream=stream, **options)

    def receiver(self, stream: str | None = None, **options: Unpack[NodeReceiverKeywords]) -> R:
        """Open a receiver; `options` are those of `open_receiver`.

        At a source's node it takes any stream of the file, also from the node's own sources.
        """
        return self._open_receiver(self._plans[Role.RECEIVER], stream=stream, **options)


def sockets_plan(plans: Mapping[Role, NodePlan]) -> NodePlan:
    """Return the plan by which a node's sockets open: its role is that of the file."""
    return plans.get(Role.SOURCE, plans[Role.RECEIVER])


class Node(SharedNode[AbstractAsyncContextManager[Source], AbstractAsyncContextManager[Receiver]]):
    """Node of this process, opened by `pgm.open_node`: any number of its sources and receivers share its sockets."""


@opening
async def open_node(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    seed: str | None = None,
    **parameters: Unpack[NodeParameters],
) -> AsyncIterator[Node]:
    """Open the sockets of a node, for any number of its sources and receivers.

    Example: `async with pgm.open_node("tree.toml", node="exchange") as node, node.source("prices") as prices`.

    With an address in place of a file, `name` is the name of the node. Parameters apply to all endpoints. A node that is a receiver in the file has no sources. Raises `TopologyError`,
    `UsageError`, `TransportError`.
    """
    plans = plans_of(target, node, parameters, name)
    with new_surface().nodes.held(sockets_plan(plans), seed):
        yield Node(plans, open_source, open_receiver)
