"""Signatures of streams at a node: its own keys if it is a source, and the keys of the sources for all others."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pgm.core.session.signed_streams import NO_SIGNERS, StreamSigners
from pgm.net.keys.key_files import need_cryptography
from pgm.net.keys.start_check import own_keys, today
from pgm.topology.node_plan import NodePlan, StreamPlan
from pgm.wire.signed_spm import SpmSigner


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
    return StreamSigners(checks, time.time_ns() - time.monotonic_ns())
