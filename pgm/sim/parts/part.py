"""One part of a tree: a world of its own, driven in windows of virtual time."""

from __future__ import annotations

import resource
import time
from collections.abc import Collection, Mapping, Sequence

import attrs

from pgm.sim.crowd.crowd import Crowd, CrowdContext
from pgm.sim.crowd.crowd_plan import CrowdPlan
from pgm.sim.faults import Faults
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.network import CrossingTrain
from pgm.sim.node import NodeObserver
from pgm.sim.parts.account import PartAccount, Progress, account_of, offered_by, progress_of
from pgm.sim.sent_messages import LedgerNews
from pgm.sim.world import CoreFactory, World
from pgm.topology.node_plan import NodePlan, Role
from pgm.wire.formats import Tsi


@attrs.frozen(kw_only=True)
class PartSetup:
    """Everything that builds a part; can be pickled. `plans` have all addresses, and one stream for each source."""

    plans: Mapping[str, NodePlan]
    factory: CoreFactory
    seed: int
    load: Load
    conditions: NetworkConditions
    crowds: Sequence[CrowdPlan] = ()
    shared: Collection[str] = ()
    repeat: str = ""


@attrs.frozen
class Window:
    """Order to a part: run up to and at `until_ns`, with what other parts sent in the last window."""

    until_ns: int
    trains: Sequence[CrossingTrain] = ()
    news: Sequence[tuple[Tsi, LedgerNews]] = ()


@attrs.frozen
class WindowResult:
    """Result of a window. `next_ns` is the time of the part's next event."""

    next_ns: int
    last_activity_ns: int
    offered: int
    have_left: bool  # all sources of the part
    trains: Sequence[CrossingTrain]
    news: Sequence[tuple[Tsi, LedgerNews]]


@attrs.frozen
class PartUsage:
    """Cost of the process of a part: CPU time in s, and the most memory in octets."""

    nodes: int  # with production cores
    modelled: int  # receivers
    cpu_s: float
    memory: int

    @property
    def row(self) -> dict[str, float]:
        """Return the usage for scripts."""
        return {
            "nodes": self.nodes,
            "modelled": self.modelled,
            "cpu_seconds": round(self.cpu_s, 2),
            "memory_mb": self.memory // 1_000_000,
        }


class Part:
    """Part of a tree, with the production cores of its nodes."""

    def __init__(self, setup: PartSetup, checkers: Sequence[NodeObserver]) -> None:
        self.setup = setup
        self.world = world = World(setup.factory, seed=setup.seed, repeat=setup.repeat, shared=setup.shared)
        for checker in checkers:
            world.add_checker(checker)
        for name, plan in setup.plans.items():
            traffic = setup.load.traffic_of(plan) if plan.role is Role.SOURCE else None
            world.add_node(plan, wiring=setup.conditions.wiring_of(name), traffic=traffic)
        self._crowds: list[Crowd] = []
        for crowd in setup.crowds:
            delay = setup.conditions.delay_of(crowd.pattern, crowd.plan.segments[0].name)
            context = CrowdContext(world.scheduler, world.log, world.network, setup.seed, setup.load.messages)
            self._crowds.append(Crowd(context, crowd, delay))
            world.network.attach(self._crowds[-1].attachment)
        schedule = Faults(world)
        for fault in setup.conditions.faults:
            if any(fault.node in (node.name, node.host) for node in world.nodes.values()):
                schedule.add(fault)
        self._has_cut = bool(setup.shared)
        self._told: dict[Tsi, int] = {}  # blocks of each ledger that other parts know

    def run(self, window: Window) -> WindowResult:
        """Run a window, and return what other parts must know of it."""
        world = self.world
        for tsi, news in window.news:
            world.learn_session(tsi, news)
        world.network.exchange(window.trains)
        world.run_until(window.until_ns)
        return WindowResult(
            next_ns=world.scheduler.next_ns,
            last_activity_ns=world.log.last_activity_ns,
            offered=offered_by(world),
            have_left=all(node.core is None for node in world.sources),
            trains=world.network.crossing,
            news=self._take_news() if self._has_cut else (),
        )

    def _take_news(self) -> list[tuple[Tsi, LedgerNews]]:
        found = []
        for tsi in self.world.own_sessions:
            news = self.world.ledgers[tsi].news_since(self._told.get(tsi, 0))
            if tsi not in self._told or news.blocks:
                found.append((tsi, news))
            self._told[tsi] = news.known
        return found

    def progress(self) -> Progress:
        """Return the progress of this part."""
        return progress_of(self.world, self._crowds)

    def usage(self) -> PartUsage:
        """Return the cost of this process so far."""
        modelled = sum(crowd.plan.count for crowd in self._crowds)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return PartUsage(len(self.world.nodes), modelled, time.process_time(), memory)

    def account(self) -> PartAccount:
        """Return the account of this part."""
        return account_of(self.world, self._crowds)
