"""Facts of a node in the head of its ring: what an explanation must know of the topology, without its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pgm.flight.record import CAUSES, HEAD_CAUSES
from pgm.flight.ring import Facts
from pgm.topology.node_plan import NodePlan
from pgm.units import NEVER
from pgm.wire.formats import Nla

_TIMERS = (
    "nak_bo_ivl",
    "reorder_ivl",
    "nak_rpt_ivl",
    "nak_rdata_ivl",
    "nak_ncf_retries",
    "nak_data_retries",
    "nak_max_outstanding",
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


def checked_facts_untrusted(value: object) -> Facts:
    """Return facts with every key that explanations need, of the right type. Damaged parts are left out."""
    facts = value if isinstance(value, dict) else {}
    texts = {
        key: text if isinstance(text := facts.get(key), str) else "" for key in ("topology", "node", "role", "host")
    }
    timers = facts.get("timers")
    causes = facts.get(HEAD_CAUSES)
    return {
        **texts,
        "pid": facts["pid"] if isinstance(facts.get("pid"), int) else 0,
        "is_standby": facts.get("is_standby") is True,
        "segments": [_segment(row) for row in _rows(facts.get("segments"), "name", "side", "address")],
        "streams": [
            {"name": row["name"], "data_port": row["data_port"]}
            for row in _rows(facts.get("streams"), "name")
            if isinstance(row.get("data_port"), int)
        ],
        "parents": [one for one in _list(facts.get("parents")) if isinstance(one, str)],
        "timers": {
            name: own
            for name in _TIMERS
            if isinstance(timers, dict) and isinstance(own := timers.get(name), int) and 0 <= own <= NEVER
        },
        HEAD_CAUSES: causes if _is_texts(causes) else list(CAUSES),
    }


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _rows(value: object, *texts: str) -> list[dict[str, Any]]:
    """Return the tables of a list that have these texts."""
    return [
        row for row in _list(value) if isinstance(row, dict) and all(isinstance(row.get(key), str) for key in texts)
    ]


def _segment(row: dict[str, Any]) -> dict[str, Any]:
    group = row.get("group")
    return {
        "name": row["name"],
        "side": row["side"],
        "address": row["address"],
        "group": group if isinstance(group, str) else "",
        "is_leg": row.get("is_leg") is True,
    }
