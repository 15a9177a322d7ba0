"""Companion sessions that a recorder keeps: proofs, and key records that it need not be able to open."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pgm.core.session.proofs import NewProofCheck
from pgm.core.session.signed_streams import StreamSigners
from pgm.net.keys.start_check import today
from pgm.topology.node_plan import StreamPlan
from pgm.trust.public_keys import PublicKeys
from pgm.wire.formats import Tsi


def keeping_companions(signers: StreamSigners, streams: Sequence[StreamPlan]) -> StreamSigners:
    """Return verifiers that hand proofs and key records to an archive, too. `signers` are those of the streams."""
    proofs, sealed = dict(signers.proofs), set(signers.sealed)
    for stream in streams:
        if stream.readers is not None and stream.data_port not in sealed:
            proofs[stream.data_port] = _checks_of(stream.signers or ())
            sealed.add(stream.data_port)
    return attrs.evolve(signers, proofs=proofs, sealed=frozenset(sealed), keeps_proofs=True)


def _checks_of(signers: Sequence[PublicKeys]) -> NewProofCheck:
    from pgm.trust.blocks import SignedSession
    from pgm.trust.key_records import SecretHead, verify_records_untrusted
    from pgm.trust.session_check import SessionCheck
    from pgm.trust.signature_check import SignatureCheck
    from pgm.trust.verifier import ProofChain

    check = SignatureCheck(signers, today)

    def new_check(tsi: Tsi, started_ns: int) -> SessionCheck:
        session = SignedSession(bytes(tsi), started_ns)

        def is_record(octets: bytes) -> bool:
            head = SecretHead.of_untrusted(octets)
            source = None if head is None or head.terms.session != session else check.keys_of(head.key_id)
            return source is not None and verify_records_untrusted(octets, source) is not None

        return SessionCheck(ProofChain(session, check.keys_of, None), is_record)

    return new_check
