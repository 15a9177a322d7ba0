"""Repairers and recorders that die in mid-stream and come back with what they saved or recorded."""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Callable

import attrs
import pytest

import repairer.process
from deploy.node.roles import build_core
from pgm.core.effects import Closed, Deliver, Effect, Effects, Lost, Save
from pgm.core.element.setup import ElementSetup
from pgm.core.interface import Core
from pgm.core.segment import Channel
from pgm.core.session.state import SessionState
from pgm.net.core_factory import element_setup, receiver_core, segments_of
from pgm.parameters import Parameters
from pgm.sim.checks.checker import Checker
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.naks import Naks
from pgm.wire.train import Train
from repairer.core import RepairerCore
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, streams, traffic

DIED_NS = 2 * SECOND + 30 * MS
DOWN_NS = 400 * MS
RETURNED_NS = DIED_NS + DOWN_NS
MOST_REPEATS = 2  # a source ignores a request for what it has just sent to another node, also if that repair was lost


class CacheFiles(Checker):
    """The cache files of all nodes: what their repairers save, and cores that restore it."""

    def __init__(self) -> None:
        self._saved: defaultdict[str, list[tuple[int, Save]]] = defaultdict(list)

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        if isinstance(effect, Save):
            self._saved[node.name].append((self.world.now_ns, effect))

    def core(self, plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.role is not Role.REPAIRER:
            return build_core(plan, rng, tsi, now_ns)
        core = repairer.process.build(plan, segments_of(plan), rng, saves=True)
        core.restore(self._saved[plan.name])
        return core


def one_lan(**changes: object) -> TreeBuilder:
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "lan")
    tree.repairer("repairer", "lan", parents=("source",))
    return tree


def relay(**changes: object) -> TreeBuilder:
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    tree.repairer("repairer", "core", "lan", parents=("source",))
    return tree


def restarted(tree: TreeBuilder, loss: float, *, warm: bool, seed: int = 1) -> tuple[World, list[int], list[int]]:
    """Kill and restart the repairer while a receiver is deaf, and then needs packets from before the crash.

    Return the sqns that the repairer requested afterwards, and those sent while it was down.
    """
    for index in range(3):
        tree.receiver(f"receiver-{index}", "lan", "repairer")
    naks, data, files = Tap(is_a(PacketType.NAK)), Tap(is_a(PacketType.ODATA)), CacheFiles()
    factory = files.core if warm else build_core
    world = make_world(
        tree,
        traffic(3000, close_at_ns=6 * SECOND),
        seed=seed,
        factory=factory,
        more=(naks, data, files),
        wirings={"receiver": lossy(loss)},
    )
    faults = Faults(world)
    faults.crash_and_restart("repairer", DIED_NS, DOWN_NS)
    faults.deafen(["receiver-0"], DIED_NS - 500 * MS, DOWN_NS + 600 * MS)
    finish(world)
    requested: list[int] = []
    for at_ns, _, _, _, item in naks.by("repairer"):
        assert isinstance(item, Nak)
        if at_ns > DIED_NS:
            singles = item.singles() if isinstance(item, Naks) else (item,)
            requested += [sqn for single in singles for sqn in single.sqns]
    # The first packet that the new process hears may have left the source shortly before the restart.
    sent = [
        item.wire_sqn + at
        for at_ns, _, _, _, item in data.by("source")
        if DIED_NS - MS <= at_ns <= RETURNED_NS + MS
        for at in range(item.count)
    ]
    return world, requested, sent


@pytest.mark.parametrize("tree", [one_lan, relay])
@pytest.mark.parametrize("seed", range(4))
def test_warm_repairer_requests_only_what_was_sent_meanwhile(tree, seed):
    world, requested, sent = restarted(tree(), 0.05, warm=True, seed=seed)
    assert set(requested) <= set(sent)
    assert len(set(requested)) >= len(sent) * 0.9
    assert len(requested) <= len(set(requested)) + MOST_REPEATS
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert world.nodes["repairer"].total("cache_packets_restored") > 1000


def test_cold_repairer_requests_older_packets_again():
    _, requested, sent = restarted(one_lan(), 0.05, warm=False)
    assert not set(requested) <= set(sent)


@pytest.mark.parametrize("tree", [one_lan, relay])
def test_warm_repairer_of_a_stream_with_parity_loses_nothing(tree):
    """Packets that parity rebuilt are saved too."""
    world, requested, sent = restarted(tree(fec_group=16, fec_proactive=2), 0.05, warm=True)
    assert set(requested) <= set(sent)
    assert all(one.is_complete and one.is_from_start for one in streams(world))
    assert world.nodes["repairer"].total("cache_packets_restored") > 1000


@attrs.frozen
class ArchiveEnds:
    """Ends of the archive of one node, by session."""

    next_sqns: dict[Tsi, int]

    def start_of(self, state: SessionState) -> int | None:
        return self.next_sqns.get(state.tsi)


class RecordingRepairer(RepairerCore):
    """Core whose records do not reach the world, which has no archives."""

    def __init__(
        self, setup: ElementSetup, parameters: Parameters, rng: random.Random, take: Callable[[Effect], bool]
    ) -> None:
        super().__init__(setup, parameters, rng, records=True)
        self._take = take

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        return [effect for effect in super().receive(train, channel, peer, now_ns) if not self._take(effect)]

    def handle_deadline(self, now_ns: int) -> Effects:
        return [effect for effect in super().handle_deadline(now_ns) if not self._take(effect)]


class Archives(Checker):
    """Archives of all repairers and of `recorder`: what they record, and cores that go on at its end."""

    def __init__(self) -> None:
        self._ends: defaultdict[str, ArchiveEnds] = defaultdict(lambda: ArchiveEnds({}))
        self.lost: defaultdict[str, int] = defaultdict(int)

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        if node.name == "recorder":
            self.take(node.name, effect)

    def take(self, name: str, effect: Effect) -> bool:
        """Record an effect, if it is one to record."""
        if isinstance(effect, Deliver):
            self._record(name, effect.tsi, effect.run.first, effect.run.end)
        elif isinstance(effect, Lost):
            self.lost[name] += effect.count
            self._record(name, effect.tsi, effect.first, effect.first + effect.count)
        return isinstance(effect, (Deliver, Lost, Closed))

    def _record(self, name: str, tsi: Tsi, first: int, end: int) -> None:
        ends = self._ends[name].next_sqns
        self.lost[name] += max(0, first - ends.get(tsi, first))
        ends[tsi] = max(end, ends.get(tsi, end))

    def recorded(self, name: str) -> int:
        """Return the end of the only session."""
        (end,) = self._ends[name].next_sqns.values()
        return end

    def core(self, plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.role is Role.REPAIRER:
            setup = attrs.evolve(element_setup(plan, segments_of(plan)), starts=self._ends[plan.name])
            return RecordingRepairer(setup, plan.parameters, rng, functools.partial(self.take, plan.name))
        if plan.name == "recorder":
            return receiver_core(plan, plan.streams, segments_of(plan), rng, starts=self._ends[plan.name])
        return build_core(plan, rng, tsi, now_ns)


@pytest.mark.parametrize("window", [300 * MS, 10 * SECOND])
@pytest.mark.parametrize("victims", [("recorder",), ("repairer-0",), ("repairer-1", "recorder")])
def test_recorder_that_died_records_the_stream_without_a_hole(victims: tuple[str, ...], window: int) -> None:
    """The window of the source has what it missed, or the cache of another repairer. No cache file helps."""
    tree = TreeBuilder(parameters(txw_secs=window, join_ivl=0))
    tree.source("source", "lan")
    names = ("repairer-0", "repairer-1")
    for name in names:
        tree.repairer(name, "lan", parents=("source",))
    tree.receiver("recorder", "lan", *names, "source")
    archives = Archives()
    world = make_world(
        tree,
        traffic(3000, close_at_ns=6 * SECOND),
        factory=archives.core,
        more=(archives,),
        wirings=dict.fromkeys(("repairer", "receiver"), lossy(0.02)),
    )
    faults = Faults(world)
    for number, victim in enumerate(victims):
        faults.crash_and_restart(victim, DIED_NS + number * SECOND, DOWN_NS)
    finish(world)
    assert {name: archives.recorded(name) for name in (*names, "recorder")} == dict.fromkeys((*names, "recorder"), 3000)
    assert sum(archives.lost.values()) == 0
