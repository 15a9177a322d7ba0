"""Subjects and parameters of pgm's programs for messages that share packets.

There are ten subjects, and one subscription with a wildcard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deploy.bench.peers.messages import Octets
from deploy.bench.peers.ours.common import PING_PORT, source_parameters, target
from pgm.messages.arguments import Names
from pgm.wire.formats import DATA_HEADER_OCTETS

_BATCH_OCTETS = 100  # octets of a packet for the subject table and message headers, at most
_SUBJECTS = tuple(f"/market/{number}" for number in range(10))
PATTERN = "/market/*"


def subjects_of(rows: Octets) -> Names:
    """Return the subjects of messages, which take turns."""
    return _SUBJECTS, np.arange(len(rows), dtype=np.uint8) % len(_SUBJECTS)


def batched_target(job: Mapping[str, Any], seat: str, *, is_source: bool) -> dict[str, Any]:
    """Return the arguments that open an endpoint."""
    opening = target(job, seat, 0, PING_PORT, is_source=is_source)
    return {**opening, "target": opening["target"] + "&framing=batch"}


def batched_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters for a source whose messages share packets."""
    packet = job["max_datagram"]
    each = packet / max(1, (packet - DATA_HEADER_OCTETS - _BATCH_OCTETS) // (job["size"] + 1))
    parameters = source_parameters(job)
    return {**parameters, "max_tpdu": packet, "txw_max_rte": round(job["rate"] * each) or parameters["txw_max_rte"]}
