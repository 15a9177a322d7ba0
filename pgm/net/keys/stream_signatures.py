"""Signatures of streams at a node: its own keys if it is a source, and the keys of the sources for all others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgm.core.session.proofs import NewProofCheck, Prover, most_proof_octets
from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.net.keys.key_files import need_cryptography
from pgm.net.keys.start_check import own_keys, today
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.wire.formats import Tsi
from pgm.wire.signed_spm import SpmSigner

if TYPE_CHECKING:
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.signature_check import SignatureCheck


def signer_of(plan: NodePlan, stream: StreamPlan) -> SpmSigner | None:
    """Return the keys with which a source signs a stream; None for an unsigned one. Raises `KeyRefused`."""
    if stream.signers is None:
        return None
    keys = own_keys(plan)
    assert keys is not None, "a rule of the topology file demands keys of every source of a signed stream"
    return SpmSigner(keys.public.id_octets, keys.sign)


def signers_of(streams: Sequence[StreamPlan]) -> StreamSigners:
    """Return the verifiers of the signed streams among some. Raises `UsageError` without the packages of the extra."""
    signed = {stream.data_port: stream.signers for stream in streams if stream.signers is not None}
    if not signed:
        return NO_SIGNERS
    need_cryptography()
    from pgm.trust.signature_check import SignatureCheck

    checks = {port: SignatureCheck(signers, today) for port, signers in signed.items()}
    proofs = {stream.data_port: _checks_of(checks[stream.data_port]) for stream in streams if _is_proved(stream)}
    return StreamSigners(checks, time.time_ns() - time.monotonic_ns(), proofs)


def _is_proved(stream: StreamPlan) -> bool:
    """Return whether the packets of a stream are proved: only a stream with an order can wait for proofs."""
    return stream.signers is not None and stream.order == "ordered"


def _checks_of(check: SignatureCheck) -> NewProofCheck:
    from pgm.trust.blocks import SignedSession
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.verifier import ProofChain

    def new_check(tsi: Tsi, started_ns: int) -> SessionCheck:
        return SessionCheck(ProofChain(SignedSession(bytes(tsi), started_ns), check.keys_of, None))

    return new_check


def prover_of(plan: NodePlan, stream: StreamPlan, tsi: Tsi, started_at_ns: int) -> Prover | None:
    """Return what proves the packets of a source's session; None if nobody needs proofs. Raises `KeyRefused`."""
    if not _is_proved(stream):
        return None
    keys = own_keys(plan)
    assert keys is not None, "a rule of the topology file demands keys of every source of a signed stream"
    from pgm.trust.blocks import SignedSession
    from pgm.trust.proofs import spans_within
    from pgm.trust.signer import BlockSigner

    parameters = plan.parameters_of(stream)
    most = spans_within(most_proof_octets(parameters.max_tpdu))
    return BlockSigner(keys, SignedSession(bytes(tsi), started_at_ns), parameters.proof_ivl, most_spans=most)
