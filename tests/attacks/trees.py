"""Signed trees under attack: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind attacks --packets 1000000 --jobs 2
python -m tests.sim.campaigns.run_seeds --spark --kind attacks --packets 1000000000

A seed is a drawn tree with signed streams, and attackers that send `PACKETS` forgeries of all kinds: on the segment of the
receivers, on that of the source, or on both. A repairer may be hostile, too. These rules hold:

* nothing is delivered but messages of the source, octet for octet, once, and in order in ordered streams;
* no forged session opens, no session opens twice, and none ends before its source has closed;
* every message is delivered or reported lost;
* without forged addresses and without a hostile repairer nothing is lost, and all sessions end;
* no exception, and no core that runs without end at one instant;
* rates of repairs, and bounds of memory and tables.
"""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Callable

import attrs

from pgm.core.effects import CloseCause, Closed, Effect, LossCause, Opened, Send
from pgm.core.interface import Core
from pgm.core.session.proofs import proof_port
from pgm.sim.applications import ReceiverApplication, Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.completion import check_complete, settle
from pgm.sim.checks.invariants import MemoryBounds, RateLimits
from pgm.sim.node import SimulatedNode
from pgm.sim.runs.swarm import repeat_command
from pgm.sim.trees import DATA_PORT, TreeBuilder
from pgm.sim.world import World
from pgm.topology.node_plan import NodePlan, Order, Role
from pgm.units import SECOND
from pgm.wire.control_packets import Spm
from pgm.wire.formats import Tsi, tsi_text
from pgm.wire.train import Train
from tests.attacks.hostile import HOSTILITIES, HostileElement
from tests.attacks.simulated import Sender, SimulatedAttacker
from tests.sim.support.acked import Held
from tests.sim.support.signed import proving, with_public_keys
from tests.sim.support.snapshots import signed_states
from tests.sim.support.worlds import lossy, parameters, streams

PACKETS = 10_000  # forgeries of a seed
RATE = 20_000  # forgeries a second
_FROM_NS = SECOND
_STREAM_S = 3  # messages are sent so long, and the attack of the greatest rate ends before
_SIGNED_PORTS = (DATA_PORT, proof_port(DATA_PORT))
# A repairer asks two parents in turn for packets of a session that a member has invented, until its retries are used up.
_REST_NS = 150 * SECOND
_AFTER_NS = 5 * SECOND  # of a tree whose stream an attacker can hold up
# Losses that an attacker with the address of the source, or a hostile repairer, can bring about.
_EXPLAINED = frozenset(LossCause) - {LossCause.OVERRUN, LossCause.MALFORMED}


@attrs.frozen
class Attack:
    """Scenario of a seed."""

    seed: int
    segments: tuple[str, ...]  # with an attacker each
    sender: Sender
    is_flat: bool
    is_acked: bool
    order: Order
    has_states: bool  # a joiner begins with a state
    sources: int
    hostility: str  # name of the repairer's hostility; empty: it is honest
    loss: float
    size: int
    rate: int  # messages a second of each source
    attack_rate: int

    @classmethod
    def of_seed(cls, seed: int) -> Attack:
        """Draw the scenario of a seed."""
        rng = random.Random(f"attack:{seed}")
        is_flat = rng.random() < 0.25
        sender = rng.choice((Sender.OWN, Sender.OWN, Sender.MEMBER, Sender.FORGED))
        hostility = "" if is_flat else rng.choice(("", "", *HOSTILITIES))
        is_acked = sender is Sender.OWN and not hostility and rng.random() < 0.3
        order: Order = "ordered" if is_acked else rng.choice(("ordered", "ordered", "unordered"))
        return cls(
            seed=seed,
            segments=("core",) if is_flat else rng.choice((("floor",), ("core",), ("core", "floor"))),
            sender=sender,
            is_flat=is_flat,
            is_acked=is_acked,
            order=order,
            has_states=order == "ordered" and rng.random() < 0.3,
            sources=1 if is_acked else rng.choice((1, 1, 2)),
            hostility=hostility,
            loss=rng.choice((0.0, 0.01, 0.05)),
            size=rng.choice((40, 200, 1000, 4000)),
            rate=rng.choice((100, 300)),
            attack_rate=rng.choice((2000, RATE, RATE)),
        )

    @property
    def may_lose(self) -> bool:
        """Whether true packets may be lost, if they are reported."""
        return self.sender is Sender.FORGED or bool(self.hostility)

    def tree(self) -> TreeBuilder:
        """Return the tree: receivers beside the source, or behind a relay with two repairers."""
        common = parameters(fin_quiet_ivl=2 * SECOND, ack_expiry=2 * SECOND)
        tree = TreeBuilder(common, flow="acked" if self.is_acked else "rate", order=self.order)
        names = [tree.source("source" if not number else f"source-{number}", "core") for number in range(self.sources)]
        if self.is_flat:
            tree.repairer("repairer", "core", parents=("source",))
            parents: tuple[str, ...] = ("repairer", *names)
        else:
            tree.aggregator("relay", "core", "floor", parents=("source",))
            tree.repairer("repairer", "floor", parents=("relay",))
            tree.repairer("second", "floor", parents=("relay",))
            parents = ("repairer", "second", "relay")
        for index in range(2):
            tree.receiver(f"receiver-{index}", "core" if self.is_flat else "floor", *parents)
        if self.has_states:
            joining = attrs.evolve(common, join_from="snapshot")
            tree.receiver("joiner", "core" if self.is_flat else "floor", *parents, parameters=joining)
        for segment in self.segments:  # receivers of the topology that run another program
            tree.receiver(f"member-{segment}", segment)
        return tree


def _facts(spm: Spm) -> tuple[Tsi, int, int, int]:
    return spm.tsi, spm.spm_sqn, spm.trail, spm.lead


class TrueSessions(Checker):
    """No forged session opens, none opens again in one process, and none ends before its source has closed.

    Nodes follow SPMs that a source has sent, and no others.
    """

    def __init__(self) -> None:
        self._opened: set[tuple[int, int, Tsi]] = set()
        self._spms: set[tuple[Tsi, int, int, int]] = set()

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Record the SPMs of sources."""
        if node.plan.role is Role.SOURCE and not send.is_data:
            self._spms.update(_facts(item) for item in train.parse_untrusted()[0] if isinstance(item, Spm))

    def check_edges(self) -> None:
        """Check that the last SPM of each signed session is one of its source."""
        for node in self.world.nodes.values():
            for session in getattr(node.core, "sessions", ()):
                spm = session.state.spm
                if spm is not None and spm.data_port in _SIGNED_PORTS and _facts(spm) not in self._spms:
                    node.fail(f"follows a forged SPM of {tsi_text(spm.tsi)}")

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """Check an opening or an end."""
        if isinstance(effect, Opened) and not effect.resumed:
            key = (node.index, node.starts, effect.tsi)
            if key in self._opened:
                node.fail(f"{tsi_text(effect.tsi)} opened again")
            if effect.tsi not in self.world.ledgers:
                node.fail(f"the forged session {tsi_text(effect.tsi)} opened")
            self._opened.add(key)
        elif isinstance(effect, Closed) and effect.cause in (CloseCause.FIN, CloseCause.RESET, CloseCause.UNPROVEN):
            closed_ns = self.world.ledgers[effect.tsi].closed_ns
            if effect.cause is not CloseCause.FIN or not 0 < closed_ns <= self.world.now_ns:
                node.fail(f"a forged end closed {tsi_text(effect.tsi)}: {effect.cause}")


def _with_allowed(plans: dict[str, NodePlan]) -> dict[str, NodePlan]:
    """Return plans with the permitted senders that a topology file gives: sources and elements of each segment."""
    speakers = {plan.name for plan in plans.values() if plan.role is not Role.RECEIVER}
    by_segment: dict[str, set[str]] = collections.defaultdict(set)
    for name in speakers:
        for segment in plans[name].segments:
            assert segment.address is not None
            by_segment[segment.name].add(segment.address)

    def allowed(plan: NodePlan) -> NodePlan:
        near = frozenset().union(*(by_segment[segment.name] for segment in plan.segments))
        return attrs.evolve(plan, streams=tuple(attrs.evolve(one, allowed=near) for one in plan.streams))

    return {name: allowed(plan) for name, plan in plans.items()}


def _factory(attack: Attack, rng: random.Random) -> Callable[..., Core]:
    def build(plan: NodePlan, own: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.role in (Role.SOURCE, Role.RECEIVER):
            return (signed_states if attack.has_states else proving)(plan, own, tsi, now_ns)
        core = with_public_keys(plan, own)
        if plan.name == "repairer" and attack.hostility:
            return HostileElement(core, HOSTILITIES[attack.hostility], rng)
        return core

    return functools.wraps(proving)(build)


def run_attack(attack: Attack, packets: int = PACKETS) -> tuple[World, list[SimulatedAttacker]]:
    """Run a scenario to its end. Raises `InvariantBroken`."""
    rng = random.Random(f"attack:{attack.seed}:forgeries")
    world = World(_factory(attack, rng), seed=attack.seed, repeat=repeat_command("attacks", attack.seed))
    true_sessions = TrueSessions()
    checkers: list[Checker] = [RateLimits(), MemoryBounds(stride=16), true_sessions]
    if attack.is_acked:
        checkers.append(Held())
    for checker in checkers:
        world.add_checker(checker)
    each = packets // len(attack.segments)
    attackers = [
        SimulatedAttacker(rng, segment, attack.sender, each, attack.attack_rate, _FROM_NS)
        for segment in attack.segments
    ]
    for attacker in attackers:
        world.add_checker(attacker)
    messages = attack.rate * max(_STREAM_S, each // attack.attack_rate + 1)
    offered = Traffic(
        messages, attack.size, rate=attack.rate, burst=3, start_ns=SECOND // 2, close_at_ns=SECOND, state_octets=20_000
    )
    tree = attack.tree()
    plans = tree.plans if attack.sender is Sender.FORGED else _with_allowed(tree.plans)
    for name, plan in plans.items():
        if not name.startswith("member-"):
            world.add_node(
                plan,
                wiring=lossy(attack.loss) if name.startswith("receiver") else None,
                traffic=offered if plan.role is Role.SOURCE else None,
            )
    for attacker in attackers:
        attacker.place_at(tree.address(f"member-{attacker.segment}", attacker.segment))
    attack_ends_ns = _FROM_NS + each * SECOND // attack.attack_rate
    world.run_until(attack_ends_ns)
    true_sessions.check_edges()
    if attack.may_lose:
        world.run_until(attack_ends_ns + _AFTER_NS)
        _check_causes(world)
        return world, attackers
    while world.now_ns <= attack_ends_ns or any(node.core is not None for node in world.sources):
        if world.now_ns > attack_ends_ns + _REST_NS:
            world.fail("source", "does not leave")
        world.run_until(world.now_ns + SECOND)
    settle(world, within_ns=_REST_NS, quiet_ns=3 * SECOND)
    check_complete(world)
    return world, attackers


def _check_causes(world: World) -> None:
    """Check that losses have a cause that the attack explains. `DeliveryCheck` has checked that none is silent."""
    for node in world.receivers:
        application = node.application
        assert isinstance(application, ReceiverApplication)
        for stream in application.all_streams:
            for cause, sqns in stream.lost.items():
                if cause not in _EXPLAINED:
                    node.fail(f"{sqns} sqns of {tsi_text(stream.tsi)} were reported lost: {cause}")


def run(seed: int) -> str:
    """Run one seed. Raises `InvariantBroken`."""
    world, attackers = run_attack(Attack.of_seed(seed))
    lost: collections.Counter[str] = collections.Counter()
    delivered = open_sqns = 0
    for stream in streams(world):
        delivered += stream.delivered_sqns
        assert stream.ledger is not None
        open_sqns += stream.ledger.end - stream.ledger.own(stream.next_sqn)
        for cause, count in stream.lost.items():
            lost[cause.value] += count
    forged = sum(attacker.packets for attacker in attackers)
    return f"{forged} forgeries, {delivered} packets delivered, {open_sqns} not yet, lost {dict(lost)}"


def describe(seed: int) -> str:
    """Return the scenario of a seed."""
    return str(Attack.of_seed(seed))
