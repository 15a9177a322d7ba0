"""Simulated tree: nodes, network and applications, built from plans. The tree runs in virtual time."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Collection
from typing import NoReturn

import attrs
import numpy as np

from pgm.core.interface import Core
from pgm.core.segment import Segment
from pgm.impairments import Impairment, seeded
from pgm.sim.addresses import AddressBook
from pgm.sim.applications import ConsumptionRate, NoApplication, ReceiverApplication, SourceApplication, Traffic
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.network import Action, Attachment, Network
from pgm.sim.node import Hooks, NodeContext, NodeObserver, SimulatedNode
from pgm.sim.run_log import RunLog
from pgm.sim.scheduler import Scheduler
from pgm.sim.sent_messages import LedgerNews, SentMessages
from pgm.topology.node_plan import NodePlan, Role, SegmentPlan
from pgm.wire.formats import Tsi

CoreFactory = Callable[[NodePlan, random.Random, Tsi, int], Core]


@attrs.frozen
class Wiring:
    """Both directions of an attachment. By default packets leave at once, and the delay lies on the way in."""

    ingress: LinkSetup = LinkSetup()
    egress: LinkSetup = LinkSetup(delay=0)


class World:
    """Simulated tree.

    Drivers sleep in steps of `timer_slack_ns`: a deadline is served at the next multiple. `repeat` is the command that
    repeats the run, for the text of a failure. The segments `shared` have nodes in other parts of a cut tree.
    """

    def __init__(
        self,
        factory: CoreFactory,
        *,
        seed: int = 0,
        timer_slack_ns: int = 0,
        repeat: str = "",
        shared: Collection[str] = (),
    ) -> None:
        self.seed = seed
        self.timer_slack_ns = timer_slack_ns
        self.scheduler = Scheduler()
        self.log = RunLog(self.scheduler, seed, repeat)
        self.network = Network(self.scheduler, shared)
        self.hooks = Hooks()
        self.ledgers: dict[Tsi, SentMessages] = {}
        self._learnt: set[Tsi] = set()  # sessions of other parts
        self.nodes: dict[str, SimulatedNode] = {}
        self.addresses = AddressBook()
        self.checkers: list[NodeObserver] = []
        self._context = NodeContext(self.scheduler, self.log, self.network, self.hooks, self.ledgers, timer_slack_ns)
        self._factory = factory

    # Building

    def add_checker(self, checker: NodeObserver) -> None:
        """Add an observer. An observer sees only later events, so add it before any node."""
        checker.attach(self)
        self.checkers.append(checker)
        self.hooks.add(checker)

    def add_node(
        self,
        plan: NodePlan,
        *,
        wiring: Wiring | dict[str, Wiring] | None = None,
        traffic: Traffic | None = None,
        appetite: ConsumptionRate | None = None,
        starts_at_ns: int = 0,
    ) -> SimulatedNode:
        """Add a node to the tree and start it; a source sends its first stream.

        `wiring` may differ by segment. The plan's impairment applies unless the wiring has losses of its own.
        """
        if plan.role is Role.SOURCE:
            plan = attrs.evolve(plan, parameters=plan.parameters_of(plan.streams[0]))
        node = SimulatedNode(self._context, len(self.nodes), self.addresses.fill(plan))
        for index, segment in enumerate(node.plan.segments):
            own = wiring.get(segment.name) if isinstance(wiring, dict) else wiring
            node.attachments.append(self._attachment(node, index, segment, own or Wiring()))
            self.network.attach(node.attachments[-1])
        if plan.role is Role.SOURCE:
            generator = np.random.default_rng(list(f"{self.seed}:{plan.name}:messages".encode()))
            node.application = SourceApplication(node, traffic or Traffic(0), generator)
        elif plan.role is Role.RECEIVER:
            unordered_ports = frozenset(stream.data_port for stream in plan.streams if stream.order != "ordered")
            node.application = ReceiverApplication(node, appetite or ConsumptionRate(), unordered_ports)
        else:
            node.application = NoApplication(node)
        self.nodes[plan.name] = node
        self.at(starts_at_ns, functools.partial(self.start, plan.name))
        return node

    def _attachment(self, node: SimulatedNode, index: int, plan: SegmentPlan, wiring: Wiring) -> Attachment:
        ingress = wiring.ingress
        if ingress.impairment.is_lossless and plan.impairment != Impairment():
            ingress = attrs.evolve(ingress, impairment=plan.impairment)
        assert plan.address is not None
        segment = Segment(index, plan.name, plan.address, plan.group, plan.upstream, plan.downstream, plan.peers)
        seed = f"{self.seed}:{node.name}:{plan.name}"
        return Attachment(
            node, segment, SimulatedLink(wiring.egress, f"{seed}:out"), SimulatedLink(ingress, f"{seed}:in")
        )

    # Life of nodes

    def start(self, name: str) -> None:
        """Start a node, or restart it with a fresh core and the same addresses. A restarted source is a new session."""
        node = self.nodes[name]
        rng = seeded(self.seed, name, "core", str(node.starts))
        node.start(self._factory(node.plan, rng, tsi_of(name, node.starts), self.now_ns))

    def core_of(self, name: str) -> Core:
        """Return the running core of a node."""
        core = self.nodes[name].core
        assert core is not None, f"{name} is down"
        return core

    @property
    def sources(self) -> list[SimulatedNode]:
        """All sources, in order of adding."""
        return [node for node in self.nodes.values() if node.plan.role is Role.SOURCE]

    @property
    def receivers(self) -> list[SimulatedNode]:
        """All receivers, in order of adding."""
        return [node for node in self.nodes.values() if node.is_receiver]

    # Time

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""
        return self.scheduler.now_ns

    @property
    def own_sessions(self) -> list[Tsi]:
        """Sessions of the sources of this part of the tree."""
        return [tsi for tsi in self.ledgers if tsi not in self._learnt]

    def learn_session(self, tsi: Tsi, news: LedgerNews) -> None:
        """Note what a source in another part of the tree has sent."""
        self._learnt.add(tsi)
        self.ledgers.setdefault(tsi, SentMessages(news.first, news.data_port)).learn(news)

    def at(self, time_ns: int, action: Action) -> None:
        """Schedule an action at an instant, before the actions that nodes schedule at the same time for the same instant."""
        self.scheduler.at(time_ns, action)

    def run_until(self, until_ns: int) -> None:
        """Run all events up to and at an instant."""
        self.scheduler.run_until(until_ns)

    def run_until_quiet(self, limit_ns: int, *, quiet_ns: int) -> int:
        """Run until only heartbeats happen for `quiet_ns`; return the last activity.

        Heartbeats are SPMs, SPMRs, polls and acks. The returned instant is in ns. Raises `InvariantBroken` if that does
        not happen before `limit_ns`.
        """
        while self.now_ns < self.log.last_activity_ns + quiet_ns:
            if self.log.last_activity_ns + quiet_ns > limit_ns:
                self.fail("-", f"no quiet before {limit_ns} ns: last activity at {self.log.last_activity_ns} ns")
            self.run_until(self.log.last_activity_ns + quiet_ns)
        return self.log.last_activity_ns

    def fail(self, node: str, reason: str) -> NoReturn:
        """Raise `InvariantBroken` for this run."""
        self.log.fail(node, reason)


def tsi_of(node: str, starts: int) -> Tsi:
    """Return the session of a node's nth start. The GSI comes from the node's name, and the port counts the starts."""
    return hashlib.blake2b(node.encode(), digest_size=6).digest() + (0x1000 + starts & 0xFFFF).to_bytes(2, "big")
