"""Signatures and secrets of streams at a node: its own keys if it is a source, and the keys of the sources for others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgm.core.session.proofs import NewProofCheck, Prover, most_proof_octets
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.core.structures.arena import READING_OCTETS, Arena
from pgm.errors import UsageError
from pgm.net.keys.key_files import need_cryptography
from pgm.net.keys.start_check import own_keys, today
from pgm.net.keys.stream_readers import is_reader, members_of
from pgm.net.wall_clock import wall_offset_ns
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.wire.formats import DATA_HEADER_OCTETS, Tsi
from pgm.wire.signed_spm import SpmSigner

if TYPE_CHECKING:
    from pgm.trust.private_keys import PrivateKeys
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.signature_check import SignatureCheck
    from pgm.trust.stream_secrets import SealedSessionCheck, StreamSealer


def signer_of(plan: NodePlan, stream: StreamPlan) -> SpmSigner | None:
    """Return the keys with which a source signs a stream; None for an unsigned one. Raises `KeyRefused`."""
    if stream.signers is None:
        return None
    keys = own_keys(plan)
    assert keys is not None, "a rule of the topology file demands keys of every source of a signed stream"
    return SpmSigner(keys.public.id_octets, keys.sign)


def signers_of(streams: Sequence[StreamPlan], reader: NodePlan | None = None) -> StreamSigners:
    """Return the verifiers of the signed streams among some.

    With `reader`, the plan of a receiver, packets of sealed streams are decrypted by its keys, where it is a reader.
    Otherwise they stay as they are. Raises `UsageError` without the packages of the extra, and `KeyRefused`.
    """
    signed = {stream.data_port: stream.signers for stream in streams if stream.signers is not None}
    if not signed:
        return NO_SIGNERS
    need_cryptography()
    from pgm.trust.signature_check import SignatureCheck

    checks = {port: SignatureCheck(signers, today) for port, signers in signed.items()}
    proofs = {stream.data_port: _checks_of(checks[stream.data_port]) for stream in streams if stream.is_proved}
    keys = None if reader is None else own_keys(reader)
    sealed = {stream.data_port for stream in streams if keys is not None and is_reader(keys, stream)}
    for port in sealed:
        assert keys is not None
        proofs[port] = _sealed_checks_of(checks[port], keys)
    return StreamSigners(checks, wall_offset_ns, proofs, frozenset(sealed))


def _checks_of(check: SignatureCheck) -> NewProofCheck:
    from pgm.trust.blocks import SignedSession
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.verifier import ProofChain

    def new_check(tsi: Tsi, started_ns: int) -> SessionCheck:
        return SessionCheck(ProofChain(SignedSession(bytes(tsi), started_ns), check.keys_of, None))

    return new_check


def _sealed_checks_of(check: SignatureCheck, keys: PrivateKeys) -> NewProofCheck:
    from pgm.trust.blocks import SignedSession
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.stream_secrets import SealedSessionCheck
    from pgm.trust.verifier import ProofChain

    memory = Arena(READING_OCTETS)  # new arrays would cost a page fault for each 4 KB

    def new_check(tsi: Tsi, started_ns: int) -> SealedSessionCheck:
        session = SignedSession(bytes(tsi), started_ns)
        proofs = SessionCheck(ProofChain(session, check.keys_of, None))
        return SealedSessionCheck(proofs, session, check.keys_of, keys, memory.take)

    return new_check


def sealer_of(plan: NodePlan, stream: StreamPlan, tsi: Tsi, started_at_ns: int) -> StreamSealer | None:
    """Return what seals a source's session; None for a stream in the clear. Raises `KeyRefused` and `UsageError`."""
    if stream.readers is None:
        return None
    keys = own_keys(plan)
    assert keys is not None, "a rule of the topology file demands keys of every source of a signed stream"
    from pgm.trust.blocks import SignedSession
    from pgm.trust.key_records import members_within
    from pgm.trust.stream_secrets import StreamSealer

    octets = plan.parameters_of(stream).max_tpdu - DATA_HEADER_OCTETS
    if members_within(octets) < 1:
        raise UsageError(
            f"max_tpdu = {octets + DATA_HEADER_OCTETS} of the sealed stream {stream.name} has no room for a key record",
            remedy="raise max_tpdu to 300 or more",
        )
    session = SignedSession(bytes(tsi), started_at_ns)
    return StreamSealer(session, keys, members_of(stream), octets, os.urandom)


def prover_of(
    plan: NodePlan, stream: StreamPlan, tsi: Tsi, started_at_ns: int, sealer: StreamSealer | None = None
) -> Prover | None:
    """Return what proves the packets of a source's session; None if nobody needs proofs. Raises `KeyRefused`.

    Proofs of a sealed session tell the generations of the secrets of `sealer`.
    """
    if not stream.is_proved:
        return None
    keys = own_keys(plan)
    assert keys is not None, "a rule of the topology file demands keys of every source of a signed stream"
    from pgm.trust.blocks import BLOCK_BITS, SignedSession
    from pgm.trust.proofs import spans_within
    from pgm.trust.signer import BlockSigner

    parameters = plan.parameters_of(stream)
    most = spans_within(most_proof_octets(parameters.max_tpdu))
    bits = 0 if stream.order == "unreliable" else BLOCK_BITS  # a lost packet stays lost: no other must wait for it
    session = SignedSession(bytes(tsi), started_at_ns)
    signer = BlockSigner(keys, session, parameters.proof_ivl, bits, most)
    if sealer is not None:
        signer.generation_at = sealer.generation_at
    return signer
