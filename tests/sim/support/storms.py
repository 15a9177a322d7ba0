"""Cells of the grid of storms: one trigger, one load, one tree, and the goodput before, during and after the trigger.

`tests.sim.figures.storms` runs the whole grid.

**Tree.** Every node has the defaults of a `lan`, with the rate `RATE` and with every limit in octets in proportion to
that rate. `rdata_share` of the rate belongs to repairs, and the tree bears the rest as data. A link carries the rate and
a share for the repairs of one more node. Every node loses 1 % of what arrives, at all times.

**Goodput.** A step has 250 ms. The goodput of a step are the packets that reach receivers for the first time, over all
receivers. Goodput is back after the last step below 95 % of the mean before the trigger.

**In order.** Receivers deliver in order, so packets wait for those that the trigger destroyed. Delivery is back when the
receivers are on average at most one step behind the source, for good. The share for repairs bounds how soon that may be.
`least` is the time for all packets that the nodes of one segment lack together, one second after the trigger.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from deploy.node.roles import build_core
from pgm.core.effects import Send
from pgm.core.segment import Channel
from pgm.impairments import Impairment
from pgm.parameters import Parameters
from pgm.sim.applications import ReceiverApplication, Traffic
from pgm.sim.checks.checker import Checker
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.faults import Faults
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import DATA_PORT, TreeBuilder
from pgm.sim.world import Wiring, World, tsi_of
from pgm.topology.node_plan import Role
from pgm.units import KIB, MICROSECOND, MILLISECOND, SECOND
from pgm.wire.control_packets import encode_list
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla, PacketType
from pgm.wire.naks import LIST_SQNS
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import parameters

STEP_NS = 250 * MILLISECOND
ENOUGH = 0.95  # of the goodput before the trigger
PATIENCE_NS = 2 * SECOND  # from the end of the trigger until the goodput is back

RATE = 312_500  # octets/s, 2.5 Mbit/s
SIZE = 1000
LOSS = 0.01
TRIGGER_AT_NS = 4 * SECOND
_BEFORE_NS = 2 * SECOND  # measured before the trigger
_AFTER_NS = 10 * SECOND  # measured after the trigger
_SHARE_WITH_BUCKET = 1.1  # repairs of a second, which begins with a full bucket
_FLOOD_RATE = 200  # NAKs a second, with 63 sqns each: 50 times what the source sends
_FLOOD_IVL = 10 * MILLISECOND
_DEFAULTS = Parameters()
_SCALED = ("so_rcvbuf", "cache_bytes", "relay_cache_bytes", "rxw_bytes")

LOADS = (0.3, 0.6, 0.9)


@attrs.frozen
class Shape:
    """Names of the nodes of a tree, by their part in the triggers."""

    tree: TreeBuilder
    repairers: tuple[str, ...]
    relays: tuple[str, ...]  # those below the source
    top: str  # segment of the source


def _subnet(tree: TreeBuilder, name: str, segment: str, above: str, receivers: int) -> str:
    """Add an on-LAN repairer and receivers that ask it first."""
    repairer = tree.repairer(f"repairer-{name}", segment, parents=(above,))
    for index in range(receivers):
        tree.receiver(f"receiver-{name}-{index}", segment, repairer, above)
    return repairer


def flat(settings: Parameters) -> Shape:
    """Return one segment with a source, a repairer and eight receivers."""
    tree = TreeBuilder(settings)
    tree.source("source", "core")
    return Shape(tree, (_subnet(tree, "core", "core", "source", 8),), (), "core")


def two_tiers(settings: Parameters) -> Shape:
    """Return three subnets below the source, each with a relay, a repairer and three receivers."""
    tree = TreeBuilder(settings)
    tree.source("source", "core")
    names = ("a", "b", "c")
    for name in names:
        tree.aggregator(f"relay-{name}", "core", name, parents=("source",), repairers=(f"repairer-{name}",))
    repairers = tuple(_subnet(tree, name, name, f"relay-{name}", 3) for name in names)
    return Shape(tree, repairers, tuple(f"relay-{name}" for name in names), "core")


def three_tiers(settings: Parameters) -> Shape:
    """Return two relays below the source and two subnets below each: a relay, a repairer and two receivers."""
    tree = TreeBuilder(settings)
    tree.source("source", "core")
    repairers: list[str] = []
    uppers = ("a", "b")
    for upper in uppers:
        tree.aggregator(f"relay-{upper}", "core", upper, parents=("source",))
        for name in (f"{upper}1", f"{upper}2"):
            above = (f"relay-{upper}",)
            tree.aggregator(f"relay-{name}", upper, name, parents=above, repairers=(f"repairer-{name}",))
            repairers.append(_subnet(tree, name, name, f"relay-{name}", 2))
    return Shape(tree, tuple(repairers), tuple(f"relay-{upper}" for upper in uppers), "core")


TREES: dict[str, Callable[[Parameters], Shape]] = {"flat": flat, "two tiers": two_tiers, "three tiers": three_tiers}


def _lose(world: World, share: float) -> None:
    """Let every node lose another share of what arrives, from now on."""
    for node in world.nodes.values():
        for attachment in node.attachments:
            setup = attrs.evolve(attachment.ingress.setup, impairment=Impairment(loss=share))
            seed = f"{node.name}:{attachment.segment.name}:{share}:{world.now_ns}"
            attachment.ingress = SimulatedLink(setup, seed)


def losses(world: World, _: Shape, for_ns: int) -> None:
    """Let every node lose 30 % of what arrives."""
    world.at(TRIGGER_AT_NS, functools.partial(_lose, world, 0.3))
    world.at(TRIGGER_AT_NS + for_ns, functools.partial(_lose, world, LOSS))


def repairers_dead(world: World, shape: Shape, for_ns: int) -> None:
    """Kill all repairers; they restart with empty caches."""
    faults = Faults(world)
    for name in shape.repairers:
        faults.crash_and_restart(name, TRIGGER_AT_NS, for_ns)


def receivers_stopped(world: World, _: Shape, for_ns: int) -> None:
    """Stop the processes of all receivers."""
    faults = Faults(world)
    for node in world.receivers:
        faults.pause(node.name, TRIGGER_AT_NS, for_ns)


def uplink_down(world: World, shape: Shape, for_ns: int) -> None:
    """Cut the line of the source, or of every relay below the source."""
    faults = Faults(world)
    for name in shape.relays or ("source",):
        faults.partition(name, TRIGGER_AT_NS, for_ns, shape.top)


def elements_stopped(world: World, shape: Shape, for_ns: int) -> None:
    """Stop the process of the source, or of every relay below the source."""
    faults = Faults(world)
    for name in shape.relays or ("source",):
        faults.pause(name, TRIGGER_AT_NS, for_ns)


class _Flood:
    """NAKs of the first receiver to all its parents in turn, for sqns of the last five seconds."""

    def __init__(self, world: World, until_ns: int) -> None:
        self._world = world
        self._until_ns = until_ns
        self._node = world.receivers[0]
        self._sent = 0

    def step(self) -> None:
        """Send the NAKs of one interval."""
        world = self._world
        if world.now_ns >= self._until_ns:
            return
        tsi = tsi_of("source", 0)
        ledger = world.ledgers[tsi]
        [attachment] = self._node.attachments
        source = world.nodes["source"].plan.segments[0]
        assert source.address is not None
        held = max(LIST_SQNS, min(ledger.end - ledger.first, 5 * RATE // SIZE))
        for _ in range(_FLOOD_RATE * _FLOOD_IVL // SECOND):
            first = ledger.end - held + self._sent * LIST_SQNS % (held - LIST_SQNS + 1)
            sqns = [wrap(first + index) for index in range(LIST_SQNS)]
            group = self._node.plan.segments[0].group
            octets = encode_list(PacketType.NAK, tsi, DATA_PORT, source.address, group, sqns)
            parent = self._node.plan.parents[self._sent % len(self._node.plan.parents)]
            world.network.leave(attachment, parent, Train.of(octets), world.now_ns)
            self._sent += 1
        world.at(world.now_ns + _FLOOD_IVL, self.step)


def nak_flood(world: World, _: Shape, for_ns: int) -> None:
    """Let one receiver send NAKs without need."""
    world.at(TRIGGER_AT_NS, _Flood(world, TRIGGER_AT_NS + for_ns).step)


@attrs.frozen
class Trigger:
    """One cause of a storm."""

    begin: Callable[[World, Shape, int], None]
    for_ns: int


TRIGGERS = {
    "30 % loss at all nodes for 5 s": Trigger(losses, 5 * SECOND),
    "all repairers dead for 10 s": Trigger(repairers_dead, 10 * SECOND),
    "all receivers stopped for 3 s": Trigger(receivers_stopped, 3 * SECOND),
    "flood of NAKs of one receiver for 5 s": Trigger(nak_flood, 5 * SECOND),
    "uplinks down for 3 s": Trigger(uplink_down, 3 * SECOND),
    "source or relays stopped for 3 s": Trigger(elements_stopped, 3 * SECOND),
}


class Repairs(Checker):
    """Octets of RDATA by node and segment, and the most in one second."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, str], list[int]] = {}  # second, octets
        self.most = 0

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Count a train of repairs."""
        if not send.is_data:
            return
        octets = sum(
            item.count * item.stride
            for item in train.parse_untrusted()[0]
            if isinstance(item, Data) and item.type is PacketType.RDATA
        )
        if not octets:
            return
        second = self.world.now_ns // SECOND
        count = self._now.setdefault((node.name, send.segment.name), [second, 0])
        if count[0] != second:
            count[:] = [second, 0]
        count[1] += octets
        self.most = max(self.most, count[1])


class Heard(Checker):
    """Sqns that each node has heard, whether in order or not. A restarted node needs no packets from before."""

    def __init__(self, packets: int) -> None:
        self._packets = packets
        self._heard: dict[str, npt.NDArray[np.bool_]] = {}

    def started(self, node: SimulatedNode) -> None:
        """Forget what a former process lacked."""
        heard = self._heard.setdefault(node.name, np.zeros(self._packets, np.bool_))
        if node.starts > 1:
            heard[: self.world.nodes["source"].total("odata_packets")] = True

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Note data of a train."""
        heard = self._heard[node.name]
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data):
                heard[item.wire_sqn : item.wire_sqn + item.count] = True

    def lacking(self, old: int) -> dict[str, int]:
        """Return how many packets must be repaired on each segment, where relays forgot the first `old` packets.

        These are the packets that nodes of the segment lack together, without those that never reached it. Packets that
        a relay forgot, and that no repairer below it has, are repaired on the segment above too.
        """
        sent = self.world.nodes["source"].total("odata_packets")
        nodes = [node for node in self.world.nodes.values() if node.plan.role is not Role.SOURCE]
        heard = {node.name: self._heard[node.name][:sent] for node in nodes}
        above = {down.name: heard[node.name] for node in nodes for down in node.plan.segments[1:]}
        lacks: dict[str, npt.NDArray[np.bool_]] = {}
        kept: dict[str, npt.NDArray[np.bool_]] = {}  # by the repairers of a segment
        for node in reversed(nodes):  # lower ones first
            up, *downs = (segment.name for segment in node.plan.segments)
            lacks.setdefault(up, np.zeros(sent, np.bool_))
            lacks[up] |= above.get(up, True) & ~heard[node.name]
            if node.plan.role is Role.REPAIRER:
                kept[up] = heard[node.name]
            for down in downs:
                lacks[up][:old] |= (lacks[down] & ~kept.get(down, np.zeros(sent, np.bool_)))[:old]
        return {name: int(lack.sum()) for name, lack in lacks.items()}


@attrs.frozen
class Outcome:
    """Result of one cell. Times in ns after the end of the trigger."""

    goodput: tuple[float, ...]  # first copies of each step from the trigger on, as a share of those before
    behind: tuple[float, ...]  # steps by which receivers are behind on average, at the end of each step
    ends_at: int  # step at which the trigger ends
    repair_share: float  # the largest share of the rate that the repairs of a node took in a second
    least_ns: int  # of repairs of all that lacked a second after the trigger, at the share for repairs
    lost: int  # sqns that receivers reported as lost
    sent: int

    @property
    def back_ns(self) -> int:
        """When the goodput is back for good."""
        return _last_ns([share < ENOUGH for share in self.goodput[self.ends_at :]])

    @property
    def in_order_back_ns(self) -> int:
        """When delivery in order is back for good."""
        return _last_ns([behind > 1 for behind in self.behind[self.ends_at :]])

    @property
    def holds(self) -> bool:
        """Whether goodput and delivery are back in time, and repairs kept to their share, but for their bucket."""
        is_back = self.back_ns <= PATIENCE_NS and self.in_order_back_ns <= PATIENCE_NS + self.least_ns
        return is_back and self.repair_share <= _SHARE_WITH_BUCKET * _DEFAULTS.rdata_share


def _last_ns(steps: list[bool]) -> int:
    """Return the end of the last step that is true; 0 without one."""
    return (len(steps) - steps[::-1].index(True)) * STEP_NS if True in steps else 0


def settings(**changes: object) -> Parameters:
    """Return the parameters of all nodes: the defaults, with limits in octets in proportion to the rate."""
    scaled = {key: getattr(_DEFAULTS, key) * RATE // _DEFAULTS.txw_max_rte for key in _SCALED}
    scaled["cache_bytes"] = max(scaled["cache_bytes"], 1024 * KIB)
    scaled["relay_cache_bytes"] = max(scaled["relay_cache_bytes"], 1024 * KIB)
    return parameters(**{"txw_max_rte": RATE, **scaled, **changes})


def _total(world: World, counter: str) -> int:
    return sum(node.total(counter) for node in world.receivers)


def _behind(world: World) -> int:
    """Return the packets that the source has sent and receivers have not delivered, nor reported lost."""
    end = world.nodes["source"].total("odata_packets")
    return len(world.receivers) * end - _total(world, "delivered_packets") - _total(world, "lost_sqns")


def _world(made: Shape, common: Parameters, offered: Traffic, seed: int, more: tuple[Checker, ...]) -> World:
    """Return the world of a cell before its trigger."""
    line = round(common.txw_max_rte * (1 + common.rdata_share))
    wiring = Wiring(
        ingress=LinkSetup(50 * MICROSECOND, rate=line, queue=64 * KIB, impairment=Impairment(loss=LOSS)),
        egress=LinkSetup(delay=0, rate=line, queue=64 * KIB),
    )
    world = World(build_core, seed=seed)
    for checker in (*cheap_checkers(), *more):
        world.add_checker(checker)
    for plan in made.tree.plans.values():
        world.add_node(plan, wiring=wiring, traffic=offered if plan.role is Role.SOURCE else None)
    return world


def _least_ns(world: World, segment: str, octets: int, rate: int) -> int:
    """Return how long the share takes to repair so many octets, and what a segment loses at all times."""
    parameters = world.nodes["source"].parameters
    nodes = sum(node.plan.segments[0].name == segment for node in world.nodes.values())
    share = parameters.txw_max_rte * parameters.rdata_share
    return round(octets * SECOND / (share - (1 - (1 - LOSS) ** nodes) * rate))


def _check_accounts(world: World) -> None:
    """Run to the end of the stream; fail unless every receiver has delivered, or reported as lost, every packet."""
    while any(node.core is not None for node in world.sources):
        world.run_until(world.now_ns + SECOND)
    for node in world.receivers:
        assert isinstance(node.application, ReceiverApplication)
        for one in node.application.all_streams:
            if not (one.is_accounted and one.is_from_start):
                node.fail(f"stands at {one.next_sqn} at the end")


def run(trigger: Trigger, load: float, shape: Callable[[Parameters], Shape], *, seed: int = 1) -> Outcome:
    """Run one cell, up to some time after the end of the trigger, and then to the end of the stream."""
    common = settings()
    made = shape(common)
    share = common.txw_max_rte * common.rdata_share
    octets = SIZE + DATA_HEADER_OCTETS
    packets_s = round(load * (common.txw_max_rte - share) / octets)
    ends_ns = TRIGGER_AT_NS + trigger.for_ns
    until_ns = ends_ns + _AFTER_NS
    offered = Traffic(packets_s * until_ns // SECOND, SIZE, rate=packets_s, start_ns=SECOND)  # a second longer
    repairs, heard = Repairs(), Heard(offered.messages)
    world = _world(made, common, offered, seed, (repairs, heard))
    trigger.begin(world, made, trigger.for_ns)
    received: list[int] = []
    behind: list[float] = []
    lacking: dict[str, int] = {}
    per_step = packets_s * STEP_NS // SECOND * len(world.receivers)
    for at_ns in range(TRIGGER_AT_NS - _BEFORE_NS, until_ns + 1, STEP_NS):
        world.run_until(at_ns)
        received.append(_total(world, "received_packets"))
        behind.append(_behind(world) / per_step)
        if at_ns == ends_ns + SECOND:
            forgotten_ns = at_ns - SECOND - common.relay_cache_ivl
            lacking = heard.lacking(packets_s * forgotten_ns // SECOND)
    lost = _total(world, "lost_sqns")
    _check_accounts(world)
    steps_before = _BEFORE_NS // STEP_NS
    steps = [later - former for former, later in itertools.pairwise(received)]
    before = sum(steps[:steps_before]) / steps_before
    return Outcome(
        goodput=tuple(one / before for one in steps[steps_before:]),
        behind=tuple(behind[steps_before + 1 :]),
        ends_at=trigger.for_ns // STEP_NS,
        repair_share=repairs.most / common.txw_max_rte,
        least_ns=max(_least_ns(world, name, count * octets, packets_s * octets) for name, count in lacking.items()),
        lost=lost,
        sent=offered.messages,
    )
