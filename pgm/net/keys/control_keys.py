"""Codes of requests at a node: its private keys, and the public keys of the other nodes of its topology file."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import attrs

from pgm.core.control_codes import NO_CONTROL_KEYS, ControlKeys
from pgm.core.late_join.states import state_port
from pgm.core.session.key_records import key_port
from pgm.core.session.proofs import proof_port
from pgm.core.session.signed_streams import StreamSigners
from pgm.net.keys.start_check import all_own_keys
from pgm.net.wall_clock import wall_offset_ns
from pgm.topology.node_plan import NodePlan, StreamPlan


def control_keys_of(plan: NodePlan, streams: Sequence[StreamPlan]) -> ControlKeys:
    """Return the codes of the authenticated streams among some. Raises `KeyRefused` without the node's private file."""
    coded = [stream for stream in streams if stream.known_keys is not None]
    if not coded:
        return NO_CONTROL_KEYS
    from pgm.trust.pair_table import PairTable

    known = coded[0].known_keys  # all streams of a file have the same
    assert known is not None
    window_ns = plan.parameters.signature_age
    from pgm.trust.control_macs import SEGMENT_KEY_OCTETS

    table = PairTable(all_own_keys(plan), known, window_ns, time.time_ns(), os.urandom(SEGMENT_KEY_OCTETS))
    ports = frozenset(of(stream.data_port) for stream in coded for of in (int, state_port, proof_port, key_port))
    return ControlKeys(ports, table, wall_offset_ns)


def with_codes(signers: StreamSigners, plan: NodePlan, streams: Sequence[StreamPlan]) -> StreamSigners:
    """Return the verifiers of some streams of a node with its codes. Raises `KeyRefused` without its private file."""
    return attrs.evolve(signers, control=control_keys_of(plan, streams))
