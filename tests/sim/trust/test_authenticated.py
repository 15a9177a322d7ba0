"""Trees whose requests carry codes, with an attacker that forges and replays every request that it sees."""

from __future__ import annotations

import random
from collections import Counter

import attrs
import pytest

from pgm.core.effects import Send
from pgm.sim.checks.checker import Checker
from pgm.sim.faults import Faults
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.topology.node_plan import Flow
from pgm.units import MILLISECOND, SECOND
from pgm.wire import checksum
from pgm.wire.control_packets import decode_control_untrusted
from pgm.wire.formats import UPSTREAM, PacketType
from pgm.wire.option_rewriting import code_of, with_checksum, with_code, without_code
from pgm.wire.options import CODE_OCTETS, ControlCode
from pgm.wire.train import Train
from tests.sim.support.coded import coding
from tests.sim.support.worlds import Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic

MESSAGES = 300
AFTER_NS = 5 * MILLISECOND  # the genuine packet has arrived
_TYPE_AT = 4


class Attacker(Checker):
    """Attacker that sees every request, and sends it again in several forms, from its sender's address and from others.

    It has keys of its own, and no private key of a node. `per_packet` forgeries follow each request.
    """

    def __init__(self, per_packet: int = 3) -> None:
        self.genuine: Counter[str] = Counter()  # requests by the node that they go to
        self.types: Counter[PacketType] = Counter()
        self.forged = 0
        self._per_packet = per_packet
        self._rng = random.Random(1)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Note requests, and plan forgeries."""
        for octets in train.packets():
            packet = None if send.is_data else decode_control_untrusted(octets)
            if packet is None or packet.type not in UPSTREAM:
                continue
            if not packet.options or not isinstance(packet.options[-1], ControlCode):
                continue  # confirmations and answers of parents
            assert send.to is not None
            self.types[packet.type] += 1
            for target in self.world.nodes.values():
                for place in target.attachments:
                    if (place.segment.name, place.segment.address) == (send.segment.name, send.to):
                        self.genuine[target.name] += 1
                        for _ in range(self._per_packet):
                            peer = send.segment.address if self._rng.random() < 0.8 else "10.99.0.1"
                            self._plan(target, place.by_unicast, self._altered(octets), peer)

    def _plan(self, target: SimulatedNode, channel: object, octets: bytes, peer: str) -> None:
        self.forged += 1
        at_ns = self.world.now_ns + AFTER_NS + self._rng.randrange(SECOND)
        self.world.at(at_ns, lambda: target.hear(Train.of(octets), channel, peer))  # type: ignore[arg-type]

    def _altered(self, octets: bytes) -> bytes:
        """Return a replay, a packet without its code, with a code of nobody, or with changed octets."""
        rng = self._rng
        packet = decode_control_untrusted(octets)
        code, plain = code_of(packet), with_checksum(without_code(packet))
        assert code is not None
        how = rng.randrange(5)
        if how == 0:
            return octets
        if how == 1:
            return plain
        if how == 2:
            return with_code(plain, code[:10] + rng.randbytes(CODE_OCTETS - 10))
        if how == 3:
            return with_code(plain, rng.randbytes(10) + code[10:])
        changed = bytearray(octets)
        changed[rng.randrange(16, len(octets))] ^= 1 << rng.randrange(8)
        changed[6:8] = b"\0\0"
        changed[6:8] = checksum.checksum(bytes(changed))
        return bytes(changed)


def tree(flow: Flow, **changes: object) -> TreeBuilder:
    """Return a tree with every role: a relay, and repairers on both segments."""
    built = TreeBuilder(parameters(**changes), flow=flow)
    built.source("source", "core")
    built.repairer("core-repairer", "core", parents=("source",))
    built.aggregator("relay", "core", "floor", parents=("core-repairer", "source"), repairers=("repairer",))
    built.repairer("repairer", "floor", parents=("relay",))
    built.repairer("second", "floor", parents=("relay",))
    for index in range(3):
        built.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    built.receiver("late", "floor", "repairer", "relay", parameters=parameters(**changes, join_from="oldest"))
    return built


@attrs.define
class Run:
    """Outcome of a run under attack."""

    attacker: Attacker
    accepted: Counter[str]


def under_attack(flow: Flow, **changes: object) -> Run:
    """Run a tree whose requests are all forged and replayed, and check that every packet is delivered."""
    built, run = tree(flow, **changes), Run(Attacker(), Counter())
    world = make_world(
        built,
        traffic(MESSAGES),
        wirings={"receiver": lossy(0.05), "late": lossy(0.05)},
        starts={"late": 2 * SECOND},
        factory=coding(built, run.accepted),
        more=(run.attacker,),
    )
    finish(world)
    assert all(one.is_complete for one in streams(world)), [one.lost for one in streams(world)]
    assert stream(world, "late").first == 0
    refused = sum(node.total("uncoded_packets") for node in world.nodes.values())
    assert refused > 0.9 * run.attacker.forged  # the others are no valid packets, or name no session
    assert sum(node.total("unaddressed_requests") for node in world.nodes.values()) == 0
    return run


@pytest.mark.parametrize(
    ("flow", "changes", "types"),
    [
        ("rate", {}, {PacketType.NAK, PacketType.SPMR}),
        ("acked", {"ack_window": 256}, {PacketType.NAK, PacketType.SPMR, PacketType.ACK}),
        ("pgmcc", {}, {PacketType.NAK, PacketType.SPMR, PacketType.ACK}),
        ("rate", {"poll_ivl": 500 * MILLISECOND, "poll_bo_ivl": 100 * MILLISECOND}, {PacketType.NAK, PacketType.POLR}),
    ],
)
def test_no_forged_or_replayed_request_is_taken(flow: Flow, changes: dict[str, object], types: set[PacketType]) -> None:
    run = under_attack(flow, **changes)
    assert set(run.attacker.types) >= types
    assert run.attacker.forged > 100
    assert run.accepted == run.attacker.genuine


def test_restarted_relay_asks_its_partner_with_a_code() -> None:
    """The checker OneSpeaker runs all the time."""
    common = parameters(ambient_spm_ivl=100 * MILLISECOND, ihb_max=500 * MILLISECOND, relay_takeover_ivl=SECOND)
    built = TreeBuilder(common)
    built.source("source", "core")
    for name, standby_of in (("relay", None), ("standby", "relay")):
        built.aggregator(name, "core", "floor", parents=("source",), standby_of=standby_of)
    built.receiver("receiver-0", "floor", "relay", "standby")
    spms, accepted = Tap(is_a(PacketType.SPM)), Counter[str]()
    world = make_world(built, traffic(2000, close_at_ns=4 * SECOND), factory=coding(built, accepted), more=(spms,))
    faults = Faults(world)
    faults.crash("relay", 2 * SECOND)
    faults.restart("relay", 4 * SECOND)
    finish(world)
    assert {name for at_ns, name, segment, _, _ in spms.seen if segment == "floor" and at_ns > 4 * SECOND} == {
        "standby"
    }
    assert accepted["standby"] > 0
    assert stream(world, "receiver-0").is_complete
