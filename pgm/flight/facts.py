"""Facts of a node in the head of its ring: what an explanation must know of the topology, without its file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pgm.flight.record import CAUSES, HEAD_CAUSES
from pgm.flight.ring import Facts
from pgm.topology.node_plan import NodePlan
from pgm.wire.formats import Nla

_TIMERS = (
    "nak_bo_ivl",
    "reorder_ivl",
    "nak_rpt_ivl",
    "nak_rdata_ivl",
    "nak_ncf_retries",
    "nak_data_retries",
    "rdata_hold_ivl",
    "rdata_ignore_ivl",
    "flight_sample_ivl",
)


def facts_of(plan: NodePlan, addresses: Sequence[Nla], host: str) -> Facts:
    """Return the facts of a node with these addresses, by segment."""
    return {
        "topology": plan.topology,
        "node": plan.name,
        "role": plan.role.value,
        "host": host,
        "pid": os.getpid(),
        "segments": [
            {
                "name": segment.name,
                "side": segment.side,
                "address": address,
                "group": segment.where,
                "is_leg": segment.peers is not None,
            }
            for segment, address in zip(plan.segments, addresses, strict=True)
        ],
        "streams": [{"name": stream.name, "data_port": stream.data_port} for stream in plan.streams],
        "is_standby": plan.is_standby,
        "parents": list(plan.parents),
        "timers": {name: getattr(plan.parameters, name) for name in _TIMERS},
        HEAD_CAUSES: list(CAUSES),
    }
