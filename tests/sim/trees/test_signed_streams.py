"""A stream whose proofs travel as a stream of their own, through elements without keys, with losses on both.

The test signs what leaves the source, and verifies what receivers deliver. It stands in for the endpoints, which do not
sign yet: digests must fit after repairs, parity and relays, and for the sqns of receivers that began anywhere.
"""

from __future__ import annotations

import collections

import numpy as np
import pytest

from pgm.core.effects import Deliver, Effect, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import tsi_of
from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import Proof
from pgm.trust.signer import BlockSigner
from pgm.trust.verifier import BlockVerifier, JudgedRun, ProofChain, Verdict
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.packet_run import Run
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, Train
from tests.sim.support.worlds import MS, finish, lossy, make_world, parameters, traffic
from tests.unit.trust.keys import private_keys

KEYS = private_keys(1)
SOURCE, COMPANION = tsi_of("source", 0), tsi_of("companion", 0)
MESSAGES = 240


class Signing(Checker):
    """Signer beside the source, and a verifier beside each receiver."""

    def __init__(self) -> None:
        self.signer: BlockSigner | None = None
        self.next_sqn = 0
        self.proofs = 0
        self.chains: dict[str, ProofChain] = {}
        self.verifiers: dict[str, BlockVerifier] = {}
        self.verdicts: dict[str, collections.Counter[Verdict]] = collections.defaultdict(collections.Counter)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        if node.name != "source":
            return
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data) and item.type is PacketType.ODATA and not item.parity:
                self._sign(node, item)

    def _sign(self, node: SimulatedNode, data: Data) -> None:
        assert isinstance(node.core, SourceCore)
        if self.signer is None:
            setup = node.core.setup
            self.signer = BlockSigner(KEYS, SignedSession(setup.tsi, setup.started_at_ns), 5 * MS)
            self.next_sqn = setup.first_sqn
        first = unwrap(data.wire_sqn, self.next_sqn)
        if first >= self.next_sqn:
            self.next_sqn = first + data.count
            octets = data.octets.copy()
            self._submit(self.signer.take([Run(first, data.count, octets, 0, data.stride, data.payload_at)]))
            self.world.at(self.world.now_ns + MS, self._idle)

    def _idle(self) -> None:
        assert self.signer is not None
        self._submit(self.signer.idle(self.world.now_ns))
        if self.signer.deadline_ns < NEVER:
            self.world.at(self.signer.deadline_ns, self._idle)

    def _submit(self, proofs: list[bytes]) -> None:
        """Send proofs as messages of the companion."""
        for octets in proofs:
            self.proofs += 1
            core, ledger = self.world.core_of("companion"), self.world.ledgers[COMPANION]
            assert isinstance(core, SourceCore)
            ledger.skip_to(core.window.next_sqn)
            core.submit([octets])
            ledger.add_rows(np.frombuffer(octets, np.uint8).reshape(1, -1))
            self.world.nodes["companion"].rearm()

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        if not isinstance(effect, Deliver):
            return
        assert isinstance(node.core, ReceiverCore)
        [state] = [one.state for one in node.core.sessions if one.state.tsi == SOURCE] or [None]
        if state is None or state.epoch.started_ns < 0:
            assert effect.tsi == COMPANION, "an SPM precedes data"
            return
        if node.name not in self.chains:
            session = SignedSession(SOURCE, state.epoch.started_ns)
            self.chains[node.name] = ProofChain(session, {KEYS.public.id: KEYS.public}.get)
            self.verifiers[node.name] = BlockVerifier(session, 1 << 24)
        run = effect.run
        if effect.tsi == SOURCE:
            own = Run(run.first + state.epoch.shift, run.count, run.buffer, run.offset, run.stride, run.payload_at)
            self._judge(node.name, self.verifiers[node.name].take(own))
            return
        for row in run.payloads:
            proof = self.chains[node.name].take_untrusted(row.tobytes())
            assert isinstance(proof, Proof), proof
            self._judge(node.name, self.verifiers[node.name].prove(proof))

    def _judge(self, name: str, judged: list[JudgedRun]) -> None:
        for one in judged:
            self.verdicts[name][one.verdict] += one.run.count


def tree(**changes: object) -> TreeBuilder:
    """Return a tree with two sources, a relay, and a repairer on each segment."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    tree.source("companion", "core")
    tree.repairer("core-repairer", "core", parents=("source",))
    tree.aggregator("relay", "core", "floor", parents=("core-repairer", "source"), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    return tree


@pytest.mark.parametrize(
    ("size", "changes"),
    [(200, {}), (4000, {}), (200, {"fec_group": 8, "fec_proactive": 1})],
    ids=["packets", "fragments", "parity"],
)
def test_every_packet_is_proved_through_lossy_elements(size: int, changes: dict[str, object]) -> None:
    signing = Signing()
    offered = {
        "source": traffic(MESSAGES, size, close_at_ns=2 * SECOND),
        "companion": traffic(0, close_at_ns=4 * SECOND),
    }
    wirings = {"receiver": lossy(0.05), "repairer": lossy(0.02), "relay": lossy(0.02)}
    world = make_world(tree(**changes), offered, wirings=wirings, more=(signing,))
    finish(world)
    packets = signing.verdicts["receiver-0"][Verdict.PROVED]
    assert packets == MESSAGES * -(-size // 1400)
    assert signing.verdicts == {f"receiver-{index}": {Verdict.PROVED: packets} for index in range(3)}
    assert 10 < signing.proofs < 100
