"""Repairers that die in mid-stream and come back with what they saved."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

import repairer.process
from deploy.node.roles import build_core
from pgm.core.effects import Effect, Save
from pgm.core.interface import Core
from pgm.net.core_factory import segments_of
from pgm.sim.checks.checker import Checker
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.naks import Naks
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
