"""Trees whose source signs and proves its stream, and whose receivers verify. Elements have no keys unless one is hostile."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import aggregator.process
import repairer.process
from deploy.node.roles import build_core
from pgm.core.effects import Effect, Effects, Send
from pgm.core.interface import Core
from pgm.core.late_join.states import state_tsi
from pgm.core.session.key_records import key_port
from pgm.core.session.proofs import most_proof_octets
from pgm.core.session.signed_streams import StreamSigners
from pgm.core.session.start_positions import BY_PARAMETERS, StartPositions
from pgm.core.session.state import SessionState
from pgm.core.structures.arena import READING_OCTETS, Arena
from pgm.net.core_factory import SourceStart, receiver_core, segments_of, snapshot_source, source_core
from pgm.topology.node_plan import NodePlan, Role
from pgm.trust.blocks import BLOCK_BITS, SignedSession
from pgm.trust.proofs import spans_within
from pgm.trust.public_keys import PublicKeys
from pgm.trust.session_check import SessionCheck
from pgm.trust.signature_check import SignatureCheck
from pgm.trust.signer import BlockSigner
from pgm.trust.stream_secrets import SealedSessionCheck, StreamSealer
from pgm.trust.verifier import ProofChain
from pgm.wire import checksum
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import DATA_HEADER_OCTETS, Tsi
from pgm.wire.signed_spm import SpmSigner
from pgm.wire.train import Train
from tests.unit.trust.keys import FIRST, private_keys

_SQN_AT = 16  # in a data packet
KEYS = private_keys(1)
CHECK = SignatureCheck([KEYS.public], lambda: FIRST)


def _new_check(tsi: Tsi, started_ns: int) -> SessionCheck:
    return SessionCheck(ProofChain(SignedSession(bytes(tsi), started_ns), CHECK.keys_of, None))


def with_public_keys(plan: NodePlan, rng: random.Random) -> Core:
    """Build an element that checks SPMs, as those of real trees do."""
    port = plan.streams[0].data_port
    signers = StreamSigners({port: CHECK})
    build = aggregator.process.build if plan.role is Role.AGGREGATOR else repairer.process.build
    return build(plan, segments_of(plan), rng, signers)


@attrs.frozen
class StartAt:
    """Memory of an application that has taken all packets before a sqn."""

    sqn: int

    def start_of(self, state: SessionState) -> int | None:
        """Return the sqn, once the edges of the session are known."""
        return self.sqn if state.has_edges else None


def proving(
    plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int, *, starts: StartPositions = BY_PARAMETERS
) -> Core:
    """Build the core of a node, with keys for sources and receivers."""
    if plan.role not in (Role.SOURCE, Role.RECEIVER):
        return build_core(plan, rng, tsi, now_ns)
    stream = plan.streams[0]
    if plan.role is Role.RECEIVER:
        port = stream.data_port
        signers = StreamSigners({port: CHECK}, proofs={port: _new_check})
        return receiver_core(plan, plan.streams, segments_of(plan), rng, starts=starts, signers=signers)
    return source_core(plan, stream, segments_of(plan), signing(plan, rng, tsi, now_ns))


def prover_of(plan: NodePlan, tsi: Tsi, now_ns: int, sealer: StreamSealer | None = None) -> BlockSigner:
    """Return what proves the packets of a session."""
    stream = plan.streams[0]
    parameters = plan.parameters_of(stream)
    most = spans_within(most_proof_octets(parameters.max_tpdu))
    bits = 0 if stream.order == "unreliable" else BLOCK_BITS
    prover = BlockSigner(KEYS, SignedSession(bytes(tsi), now_ns), parameters.proof_ivl, bits, most)
    if sealer is not None:
        prover.generation_at = sealer.generation_at
    return prover


def signing(
    plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int, sealers: Sequence[StreamSealer | None] = (None, None)
) -> SourceStart:
    """Return the start of a source with keys, whose states are proved, too. `sealers` seal the stream and the states."""
    signer = SpmSigner(KEYS.public.id_octets, KEYS.sign)
    sealer, of_states = sealers
    return SourceStart(
        tsi,
        now_ns,
        now_ns,
        rng,
        signer,
        prover_of(plan, tsi, now_ns, sealer),
        sealer,
        prover_of(plan, state_tsi(tsi), now_ns, of_states),
        of_states,
    )


@attrs.define(eq=False)
class Altering:
    """Core that alters the payloads of data that it sends; everything else is that of the honest core."""

    core: Any
    share: float
    rng: random.Random
    altered: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def receive(self, *arguments: Any) -> Effects:
        """Take packets, and alter what answers them."""
        return self._altered(self.core.receive(*arguments))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, and alter what is sent."""
        return self._altered(self.core.handle_deadline(now_ns))

    def _altered(self, effects: Effects) -> Effects:
        parts = parts_of(effects)
        return [self._changed(effect) if isinstance(effect, Send) and effect.is_data else effect for effect in parts]

    def _changed(self, send: Send) -> Send:
        rows = np.frombuffer(bytes(send.octets), np.uint8).reshape(-1, send.stride).copy()
        for row in rows:
            if self.rng.random() < self.share:
                self.altered += 1
                row[self.rng.randrange(DATA_HEADER_OCTETS, send.stride)] ^= 1 << self.rng.randrange(8)
        checksum.fill(rows)
        return attrs.evolve(send, octets=rows.reshape(-1))


def parts_of(effects: Effects) -> list[Effect]:
    """Return effects with a send of its own for a shorter packet behind a train of data."""
    parts: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.is_data and (tail := len(effect.octets) % effect.stride):
            body, last = effect.octets[:-tail], effect.octets[-tail:]
            parts += [attrs.evolve(effect, octets=body), attrs.evolve(effect, octets=last, stride=tail)]
        else:
            parts.append(effect)
    return parts


READERS = {
    name: private_keys(10 + index)
    for index, name in enumerate(("receiver-0", "receiver-1", "receiver-2", "late", "early", "late-0", "late-1"))
}


@attrs.define(eq=False)
class Sealing:
    """Factory of cores for a sealed stream. `readers` are the nodes to which the source gives the secret."""

    readers: tuple[str, ...] = tuple(READERS)
    sealers: list[StreamSealer] = attrs.field(factory=list)
    has_states: bool = False

    def members(self) -> list[PublicKeys]:
        """Return the public keys of the readers."""
        return [READERS[name].public for name in self.readers]

    def __call__(self, plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        """Build the core of a node, with keys for sources and receivers."""
        stream = plan.streams[0]
        if plan.role is Role.RECEIVER:
            port = stream.data_port
            keys, memory = READERS[plan.name], Arena(READING_OCTETS)

            def new_check(tsi: Tsi, started_ns: int) -> SealedSessionCheck:
                session = SignedSession(bytes(tsi), started_ns)
                return SealedSessionCheck(_new_check(tsi, started_ns), session, CHECK.keys_of, keys, memory.take)

            signers = StreamSigners(
                {port: CHECK, key_port(port): CHECK}, proofs={port: new_check}, sealed=frozenset({port})
            )
            return receiver_core(plan, plan.streams, segments_of(plan), rng, signers=signers)
        if plan.role is not Role.SOURCE:
            return build_core(plan, rng, tsi, now_ns)
        octets = plan.parameters_of(stream).max_tpdu - DATA_HEADER_OCTETS
        sealers = [
            StreamSealer(
                SignedSession(bytes(one), now_ns), KEYS, self.members(), octets, random.Random(bytes(one)).randbytes
            )
            for one in (tsi, state_tsi(tsi))
        ]
        self.sealers.append(sealers[0])
        start = signing(plan, rng, tsi, now_ns, sealers)
        return (snapshot_source if self.has_states else source_core)(plan, stream, segments_of(plan), start)


def hostile(
    name: str, share: float, found: list[Altering], honest: Callable[..., Core] = proving
) -> Callable[..., Core]:
    """Return a factory in which one node alters a share of the data that it sends. `honest` builds the others."""

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        is_element = plan.role in (Role.AGGREGATOR, Role.REPAIRER)
        core = with_public_keys(plan, rng) if is_element else honest(plan, rng, tsi, now_ns)
        if plan.name == name:
            found.append(altering := Altering(core, share, random.Random(1)))
            return altering
        return core

    return functools.wraps(proving)(build)


def withholding(sqns: frozenset[int]) -> Callable[..., Core]:
    """Return a factory in which the source never sends some sqns of its stream."""

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        core = proving(plan, rng, tsi, now_ns)
        if plan.role is Role.SOURCE:
            for name in ("receive", "handle_deadline"):
                setattr(core, name, _keeping_back(getattr(core, name), sqns, plan.streams[0].data_port))
        return core

    return functools.wraps(proving)(build)


def _keeping_back(call: Callable[..., Effects], sqns: frozenset[int], data_port: int) -> Callable[..., Effects]:
    def rest(send: Send) -> Send:
        rows = np.frombuffer(bytes(send.octets), np.uint8).reshape(-1, send.stride)
        keeps = [
            int.from_bytes(row[2:4].tobytes(), "big") != data_port
            or int.from_bytes(row[_SQN_AT : _SQN_AT + 4].tobytes(), "big") not in sqns
            for row in rows
        ]
        return send if all(keeps) else attrs.evolve(send, octets=rows[keeps].reshape(-1))

    def called(*arguments: Any) -> Effects:
        effects = parts_of(call(*arguments))
        passed = [rest(effect) if isinstance(effect, Send) and effect.is_data else effect for effect in effects]
        return [effect for effect in passed if not isinstance(effect, Send) or len(effect.octets)]

    return called


def proving_late(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
    """Build the core of a node of a stream that is verified after delivery."""
    streams = tuple(attrs.evolve(stream, verify="after") for stream in plan.streams)
    return proving(attrs.evolve(plan, streams=streams), rng, tsi, now_ns)


def deaf_from(sqn: int, name: str) -> Callable[..., Core]:
    """Return a factory in which one receiver begins at a sqn, and hears no answers about history."""

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        if plan.name != name:
            return proving(plan, rng, tsi, now_ns)
        core = proving(plan, rng, tsi, now_ns, starts=StartAt(sqn))
        receive = core.receive

        def heard(train: Train, *arguments: Any) -> Effects:
            items, _ = train.parse_scattered_untrusted()
            return () if any(isinstance(item, Spmr) for item in items) else receive(train, *arguments)

        setattr(core, "receive", heard)  # noqa: B010
        return core

    return functools.wraps(proving)(build)
