"""Trees whose control packets carry codes, with an attacker that forges and replays each that it sees."""

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
from pgm.wire.formats import PacketType
from pgm.wire.option_rewriting import code_of, with_checksum, with_code, without_code
from pgm.wire.options import CODE_OCTETS
from pgm.wire.train import Train
from tests.sim.support.coded import Accepted, coding
from tests.sim.support.worlds import Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic

MESSAGES = 300
AFTER_NS = 5 * MILLISECOND  # the genuine packet has arrived
_TYPE_AT = 4


class Attacker(Checker):
    """Attacker that sees every control packet, and sends it again in several forms, from its sender's address or others.

    It has no private key of a node. `per_packet` forgeries follow each packet, to one node that has heard it.
    """

    def __init__(self, per_packet: int = 3) -> None:
        self.genuine: set[tuple[str, bytes, bytes]] = set()  # sender, code and covered octets
        self.sent_to: Counter[str] = Counter()  # requests by the node that they go to
        self.types: Counter[PacketType] = Counter()
        self.forged = 0
        self._per_packet = per_packet
        self._rng = random.Random(1)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Note packets with a code, and plan forgeries."""
        for octets in train.packets():
            packet = None if send.is_data else decode_control_untrusted(octets)
            code = None if packet is None else code_of(packet)
            if packet is None or code is None:
                assert packet is None or packet.type is PacketType.SPM, packet
                continue
            self.types[packet.type] += 1
            self.genuine.add((send.segment.address, code, without_code(packet)))
            hearing = [
                (one, place)
                for one in self.world.nodes.values()
                for place in one.attachments
                if place.segment.name == send.segment.name and send.to in (None, place.segment.address)
            ]
            for one, _ in hearing if send.to is not None else ():
                self.sent_to[one.name] += 1
            for _ in range(self._per_packet):
                one, place = self._rng.choice(hearing)
                peer = send.segment.address if self._rng.random() < 0.8 else "10.99.0.1"
                channel = place.by_unicast if send.to is not None else place.by_group
                self._plan(one, channel, self._altered(octets), peer)

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
    accepted: Accepted


def under_attack(flow: Flow, **changes: object) -> Run:
    """Run a tree whose control packets are all forged and replayed, and check that every packet is delivered."""
    built, run = tree(flow, **changes), Run(Attacker(), Accepted())
    world = make_world(
        built,
        traffic(MESSAGES),
        wirings={"receiver": lossy(0.05), "late": lossy(0.05)},
        starts={"late": 2 * SECOND},
        factory=coding(built, run.accepted),
        more=(run.attacker,),
        is_timed=False,  # a node takes no NCF of a node whose key has not come
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
def test_no_forged_or_replayed_packet_is_taken(flow: Flow, changes: dict[str, object], types: set[PacketType]) -> None:
    run = under_attack(flow, **changes)
    assert set(run.attacker.types) >= types
    assert run.attacker.forged > 100
    assert max(run.accepted.values()) == 1
    taken = [packet for packet, count in run.accepted.items() if count]
    assert {packet[1:] for packet in taken} <= run.attacker.genuine
    for name in ("source", "core-repairer", "relay"):  # which lose nothing
        assert sum(packet[0] == name for packet in taken) >= run.attacker.sent_to[name]


def test_restarted_relay_asks_its_partner_with_a_code() -> None:
    """The checker OneSpeaker runs all the time."""
    common = parameters(ambient_spm_ivl=100 * MILLISECOND, ihb_max=500 * MILLISECOND, relay_takeover_ivl=SECOND)
    built = TreeBuilder(common)
    built.source("source", "core")
    for name, standby_of in (("relay", None), ("standby", "relay")):
        built.aggregator(name, "core", "floor", parents=("source",), standby_of=standby_of)
    built.receiver("receiver-0", "floor", "relay", "standby")
    spms, accepted = Tap(is_a(PacketType.SPM)), Accepted()
    world = make_world(built, traffic(2000, close_at_ns=4 * SECOND), factory=coding(built, accepted), more=(spms,))
    faults = Faults(world)
    faults.crash("relay", 2 * SECOND)
    faults.restart("relay", 4 * SECOND)
    finish(world)
    assert {name for at_ns, name, segment, _, _ in spms.seen if segment == "floor" and at_ns > 4 * SECOND} == {
        "standby"
    }
    assert any(packet[0] == "standby" for packet, count in accepted.items() if count)
    assert stream(world, "receiver-0").is_complete
