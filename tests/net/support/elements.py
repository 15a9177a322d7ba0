"""Tree in this process: every node with its own sockets, drivers side by side in one trio run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs

import aggregator.process
import pgm
import repairer.process
from pgm.core.effects import NOTHING, Effect, Effects, Notice
from pgm.core.interface import Core
from pgm.core.structures.arena import Arena
from pgm.net.driver.rest_settings import element_read_settings
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.endpoint.open import driven
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.keys.control_keys import with_codes
from pgm.net.keys.stream_signatures import signers_of
from pgm.net.link.node_links import open_links
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_node

_BUILD = {Role.AGGREGATOR: aggregator.process.build, Role.REPAIRER: repairer.process.build}


@attrs.define
class Notices:
    """Application side of an element that keeps the texts for the log."""

    said: list[Notice] = attrs.field(factory=list)

    def take(self, effect: Effect) -> None:
        if isinstance(effect, Notice):
            self.said.append(effect)

    def after(self) -> Effects:
        return NOTHING


@attrs.define
class Tree:
    """Running nodes by name."""

    drivers: dict[str, TrioDriver]
    sources: dict[str, Source]
    receivers: dict[str, Receiver]

    def core(self, node: str) -> Core:
        return self.drivers[node].core


@asynccontextmanager
async def running(topology: Topology, *nodes: str, is_alone: bool = False) -> AsyncIterator[Tree]:
    """Open nodes in this order; close them in reverse.

    With `is_alone` elements sleep as if each had its own process.
    """
    tree = Tree({}, {}, {})
    async with AsyncExitStack() as stack:
        for node in nodes:
            plan = plan_node(topology, node)
            if plan.role is Role.SOURCE:
                tree.sources[node] = await stack.enter_async_context(pgm.open_source(plan))
                tree.drivers[node] = tree.sources[node].driver
            elif plan.role is Role.RECEIVER:
                tree.receivers[node] = await stack.enter_async_context(pgm.open_receiver(plan))
                tree.drivers[node] = tree.receivers[node].driver
            else:
                links = open_links(plan, Arena())
                core = _BUILD[plan.role](
                    plan,
                    [link.segment for link in links],
                    signers=with_codes(signers_of(plan.streams), plan, plan.streams),
                )
                driver = TrioDriver(core, TrioReads(links), Notices(), element_read_settings(plan.parameters))
                if is_alone:
                    driver.claim_process()
                await stack.enter_async_context(driven(driver))
                tree.drivers[node] = driver
        yield tree
