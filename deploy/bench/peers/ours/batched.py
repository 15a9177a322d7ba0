"""What both of our programs for messages that share packets have in common: ten subjects, and a subscription with a wildcard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deploy.bench.peers.messages import Octets
from deploy.bench.peers.ours.common import PING_PORT, source_parameters, target
from pgm.messages.arguments import Names
from pgm.wire.formats import DATA_HEADER_OCTETS

_BATCH_OCTETS = 100  # of a packet, at most, beside its messages: the table of subjects and the heads
_SUBJECTS = tuple(f"/market/{number}" for number in range(10))
PATTERN = "/market/*"


def subjects_of(rows: Octets) -> Names:
    """All subjects in turn, for so many messages."""
    return _SUBJECTS, np.arange(len(rows), dtype=np.uint8) % len(_SUBJECTS)


def batched_target(job: Mapping[str, Any], seat: str, *, is_source: bool) -> dict[str, Any]:
    """What is opened."""
    opening = target(job, seat, 0, PING_PORT, is_source=is_source)
    return {**opening, "target": opening["target"] + "&framing=batch"}


def batched_parameters(job: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the parameter table for a source whose messages share packets."""
    packet = job["max_datagram"]
    each = packet / max(1, (packet - DATA_HEADER_OCTETS - _BATCH_OCTETS) // (job["size"] + 1))
    found = source_parameters(job)
    return {**found, "max_tpdu": packet, "txw_max_rte": round(job["rate"] * each) or found["txw_max_rte"]}
