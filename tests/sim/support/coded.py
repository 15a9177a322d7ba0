"""Trees whose requests carry codes: every node has keys of its own, and knows those of all others by their addresses."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping

import aggregator.process
import repairer.process
from pgm.core.control_codes import ControlKeys
from pgm.core.interface import Core
from pgm.core.session.signed_streams import StreamSigners
from pgm.net.core_factory import SourceStart, receiver_core, segments_of, source_core
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import CoreFactory
from pgm.topology.node_plan import NodePlan, Role
from pgm.trust.pair_table import PairTable
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys
from pgm.units import SECOND
from pgm.wire.formats import Tsi
from tests.unit.trust.keys import FIRST, private_keys

Accepted = Counter[tuple[str, str, bytes, bytes]]
WALL_NS = 1_790_000_000 * SECOND  # ns since 1970 when the world begins, within the validity of the keys
assert FIRST.year == 2026


def addresses_of(plan: NodePlan) -> list[str]:
    """Return all addresses of a node."""
    return [segment.address for segment in plan.segments if segment.address is not None]


class CountingTable(PairTable):
    """Keys of a node that count each packet with a valid code: by node, sender, code and covered octets."""

    node: str
    accepted: Accepted

    def check_untrusted(self, address: str, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Check a code for this node."""
        is_valid = super().check_untrusted(address, proof, covered, wall_ns)
        self.accepted[self.node, address, proof, covered] += is_valid
        return is_valid

    def check_for_all_untrusted(self, address: str, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Check a code for all nodes."""
        is_valid = super().check_for_all_untrusted(address, proof, covered, wall_ns)
        self.accepted[self.node, address, proof, covered] += is_valid
        return is_valid


def control_keys(
    plan: NodePlan, own: PrivateKeys, known: Mapping[str, tuple[PublicKeys, ...]], accepted: Accepted
) -> ControlKeys:
    """Return the codes of a node in virtual time. `accepted` counts the valid codes."""
    own_key = hashlib.sha256(plan.name.encode()).digest()
    table = CountingTable([own], known, plan.parameters.signature_age, WALL_NS - SECOND, own_key)
    table.node, table.accepted = plan.name, accepted
    return ControlKeys(frozenset(stream.data_port for stream in plan.streams), table, lambda: WALL_NS)


def coding(tree: TreeBuilder, accepted: Accepted) -> CoreFactory:
    """Return a factory of cores for a tree whose streams are authenticated. `accepted` counts valid codes."""
    owned = {name: private_keys(number) for number, name in enumerate(tree.plans)}
    known: dict[str, tuple[PublicKeys, ...]] = {}
    for name, plan in tree.plans.items():
        for address in addresses_of(plan):
            known[address] = (*known.get(address, ()), owned[name].public)

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        control, segments = control_keys(plan, owned[plan.name], known, accepted), segments_of(plan)
        if plan.role is Role.SOURCE:
            return source_core(plan, plan.streams[0], segments, SourceStart(tsi, now_ns, now_ns, rng, control=control))
        signers = StreamSigners(control=control)
        if plan.role is Role.RECEIVER:
            return receiver_core(plan, plan.streams, segments, rng, signers=signers)
        return (aggregator if plan.role is Role.AGGREGATOR else repairer).process.build(plan, segments, rng, signers)

    return build
