"""Acknowledged streams in the simulator: trees, an invariant, and a command.

The command runs ten thousand receivers:

python -m tests.sim.support.acked --receivers 10000
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from deploy.node.roles import build_core
from pgm.core.acked.ack_terms import ack_packet
from pgm.core.acked.acked_window import AckedWindow
from pgm.core.effects import Send
from pgm.core.source.source import SourceCore
from pgm.parameters import Parameters
from pgm.sim.applications import ReceiverApplication, Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.completion import check_complete, settle
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import DATA_PORT, TreeBuilder
from pgm.sim.world import World, tsi_of
from pgm.topology.node_plan import Role
from pgm.units import SECOND
from pgm.wire.control_packets import Ack
from pgm.wire.options import Members, find
from pgm.wire.train import Train
from tests.sim.support.worlds import MS, lossy, parameters, stream

PER_SUBNET = 50
RELAYS_AT_THE_TOP = 10


def window_of(world: World, source: str = "source") -> AckedWindow:
    """Return the window of a running source."""
    core = world.core_of(source)
    assert isinstance(core, SourceCore)
    assert isinstance(core.flow, AckedWindow)
    return core.flow


class Held(Checker):
    """No sqn is stable, and the trail passes no sqn, while a live member lacks it.

    A member is a receiver that knows the session. `excused` are receivers that were stopped, or joined late.
    """

    def __init__(self, excused: frozenset[str] = frozenset()) -> None:
        self.excused = set(excused)
        self.most_ahead = 0
        self._seen = -1

    def called(self, node: SimulatedNode) -> None:
        """Check all receivers whenever the source's window has moved."""
        core = node.core
        if not isinstance(core, SourceCore) or not isinstance(core.flow, AckedWindow):
            return
        low = min(core.flow.stable, core.window.lead)
        self.most_ahead = max(self.most_ahead, core.window.lead - core.flow.stable)
        if max(low, core.window.trail - 1) <= self._seen:
            return
        self._seen = max(low, core.window.trail - 1)
        for receiver in self.world.receivers:
            application = receiver.application
            if receiver.core is None or receiver.name in self.excused:
                continue
            assert isinstance(application, ReceiverApplication)
            for one in application.streams.values():
                if one.next_sqn <= self._seen:
                    node.fail(f"{self._seen} counts as stable, {receiver.name} has {one.next_sqn - 1}")


class AcksSent(Checker):
    """Acks by sender, without confirmations."""

    def __init__(self) -> None:
        self.by: dict[str, int] = {}

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Count acks."""
        if send.is_data:
            return
        for item in train.parse_untrusted()[0]:
            said = find(item.options, Members) if isinstance(item, Ack) else None
            if said is not None and not said.confirms:
                self.by[node.name] = self.by.get(node.name, 0) + 1


class FalseMember:
    """Member in name only: it acknowledges `step` more packets with each ack."""

    def __init__(self, world: World, parent: str, address: str, step: int) -> None:
        self._world, self._parent, self._address = world, parent, address
        self._step = step
        self._acked = -1

    def ack(self) -> None:
        """Send an ack every 60 ms, from the first packet of the source on."""
        world, node = self._world, self._world.nodes[self._parent]
        world.at(world.now_ns + 60 * MS, self.ack)
        source = world.core_of("source")
        assert isinstance(source, SourceCore)
        lead = source.window.lead
        if lead < 0 or node.core is None:
            return
        self._acked = min(lead, max(0, self._acked + self._step))
        said = Members(members=1, holder=self._address)
        octets = ack_packet(tsi_of("source", 0), DATA_PORT, self._acked, said)
        [down] = [one for one in node.attachments if one.segment.downstream]
        node.hear(Train.of(octets), down.by_unicast, self._address)


def three_tiers(receivers: int, settings: Parameters, *, flow: str = "acked") -> TreeBuilder:
    """Return a tree with ten relays below the source and subnets of at most fifty.

    Each subnet has a relay of its own. The relays are aggregators and repairers.
    """
    per_subnet = min(PER_SUBNET, receivers // RELAYS_AT_THE_TOP)
    tree = TreeBuilder(settings, flow=flow)
    tree.source("source", "core")
    for index in range(RELAYS_AT_THE_TOP):
        make = tree.aggregator if index % 2 else tree.repairer
        make(f"upper-{index}", "core", f"floor-{index}", parents=("source",))
    for subnet in range(receivers // per_subnet):
        above = subnet % RELAYS_AT_THE_TOP
        make = tree.repairer if subnet % 3 else tree.aggregator
        make(f"lower-{subnet}", f"floor-{above}", f"subnet-{subnet}", parents=(f"upper-{above}",))
        for index in range(per_subnet):
            tree.receiver(f"receiver-{subnet}-{index}", f"subnet-{subnet}", f"lower-{subnet}")
    return tree


def run(receivers: int, messages: int = 1000, loss: float = 0.0005, **changes: Any) -> dict[str, int]:
    """Send to `receivers` below ten relays; return the source's packet counts."""
    settings = parameters(**{"ack_window": 1024, "fin_quiet_ivl": SECOND} | changes)
    world = World(build_core, seed=1)
    held = Held()
    for checker in (held, *cheap_checkers()):
        world.add_checker(checker)
    offered = Traffic(messages, size=100, rate=4000, burst=64, start_ns=2 * SECOND, close_at_ns=2 * SECOND)
    for plan in three_tiers(receivers, settings).plans.values():
        wiring = lossy(loss) if plan.role is Role.RECEIVER else None
        world.add_node(plan, wiring=wiring, traffic=offered if plan.role is Role.SOURCE else None)
    world.run_until(2 * SECOND + SECOND // 8)
    window = window_of(world)
    members = window.members
    while any(node.core is not None for node in world.sources):
        world.run_until(world.now_ns + SECOND)
    settle(world, within_ns=30 * SECOND, quiet_ns=2 * SECOND)
    check_complete(world)
    source = world.nodes["source"]
    return {
        "receivers": receivers,
        "members": members,
        "stable": window.stable,
        "acks_in": source.total("ack_packets_in"),
        "acks_sent_by_receivers": sum(node.total("ack_packets") for node in world.receivers),
        "most_ahead": held.most_ahead,
        "delivered": sum(stream(world, node.name).delivered_sqns for node in world.receivers),
        "virtual_ms": world.now_ns // 1_000_000,
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Acks merged in the tree: the cost of receivers for their source.")
    parser.add_argument("--receivers", type=int, default=10_000, help="a multiple of 50, or of 10 below 500")
    parser.add_argument("--messages", type=int, default=1000)
    given = parser.parse_args()
    begun = time.perf_counter()
    found = run(given.receivers, given.messages)
    for name, value in found.items():
        print(f"{name:24} {value:>12,}")
    print(f"{'seconds here':24} {time.perf_counter() - begun:>12.1f}")


if __name__ == "__main__":
    main()
