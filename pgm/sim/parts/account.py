"""Accounts of a run: rows of all nodes, and the report that several parts of a tree make together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from pgm.core.effects import Notice
from pgm.sim.applications import ReceiverApplication, SourceApplication
from pgm.sim.crowd.crowd import Crowd
from pgm.sim.node import SimulatedNode
from pgm.sim.run_log import digest_of
from pgm.sim.world import World
from pgm.topology.node_plan import Role
from pgm.units import SECOND

Report = dict[str, Any]  # value that json.dumps accepts


@attrs.define
class Progress:
    """Progress of a run: times in ns, sqns `delivered` over all receivers, and the sqns `expected`."""

    now_ns: int
    offered: int
    messages: int
    delivered: int
    expected: int


@attrs.frozen
class PartAccount:
    """Account of one part of a tree: the totals of each node over all its cores."""

    rows: dict[str, tuple[Role, Report]]
    crowds: list[Report]
    messages: int
    begun_ns: int | None  # start of the sources' traffic; None in a part without a source
    last_delivery_ns: int
    events: int
    digests: dict[str, bytes]
    notices: list[tuple[int, str, Notice]]
    problems: list[str]


def _source_application(node: SimulatedNode) -> SourceApplication:
    assert isinstance(node.application, SourceApplication)
    return node.application


def _receiver_application(node: SimulatedNode) -> ReceiverApplication:
    assert isinstance(node.application, ReceiverApplication)
    return node.application


def progress_of(world: World, crowds: Sequence[Crowd]) -> Progress:
    """Return the progress of one part of a tree."""
    receivers = world.receivers
    modelled = sum(crowd.delivered_sqns for crowd in crowds)
    offered = sum(ledger.end - ledger.first for ledger in world.ledgers.values())
    return Progress(
        now_ns=world.now_ns,
        offered=offered_by(world),
        messages=sum(_source_application(node).traffic.messages for node in world.sources),
        delivered=modelled
        + sum(stream.delivered_sqns for node in receivers for stream in _receiver_application(node).all_streams),
        expected=sum(_expected(world, node) for node in receivers)
        + offered * sum(crowd.plan.count for crowd in crowds),
    )


def offered_by(world: World) -> int:
    """Return how many messages the sources of a world have offered."""
    return sum(_source_application(node).offered for node in world.sources)


def _expected(world: World, node: SimulatedNode) -> int:
    ports = {stream.data_port for stream in node.plan.streams}
    return sum(ledger.end - ledger.first for ledger in world.ledgers.values() if ledger.data_port in ports)


def account_of(world: World, crowds: Sequence[Crowd]) -> PartAccount:
    """Return the account of one part of a tree."""
    rows: dict[str, tuple[Role, Report]] = {}
    for name, node in world.nodes.items():
        role = node.plan.role
        rows[name] = role, _receiver_row(world, node) if role is Role.RECEIVER else _element_row(node)
    own = [world.ledgers[tsi] for tsi in world.ledgers if tsi in world.own_sessions]
    return PartAccount(
        rows=rows,
        crowds=[_crowd_row(world, crowd) for crowd in crowds],
        messages=sum(ledger.messages for ledger in own),
        begun_ns=min((_source_application(node).traffic.start_ns for node in world.sources), default=None),
        last_delivery_ns=world.log.last_delivery_ns,
        events=world.scheduler.events,
        digests=world.log.digests(),
        notices=world.log.notices,
        problems=_unsent(world),
    )


def report_of(seed: int, now_ns: int, parts: Sequence[PartAccount], order: Iterable[str]) -> Report:
    """Return the report of a whole tree from the accounts of its parts. `order` has all nodes."""
    found = {name: row for part in parts for name, row in part.rows.items()}
    rows: dict[Role, list[Report]] = {role: [] for role in Role}
    for name in order:
        role, row = found[name]
        rows[role].append(row)
    sources, receivers = rows[Role.SOURCE], rows[Role.RECEIVER]
    crowds = sorted((row for part in parts for row in part.crowds), key=lambda row: str(row["node"]))
    begun_ns = min((part.begun_ns for part in parts if part.begun_ns is not None), default=0)
    ended_ns = max(part.last_delivery_ns for part in parts)
    notices = sorted((at_ns, name, notice.code, notice.text) for part in parts for at_ns, name, notice in part.notices)
    report: Report = {
        "seed": seed,
        "virtual_seconds": round(now_ns / SECOND, 6),
        "messages": sum(part.messages for part in parts),
        "seconds": round(max(0, ended_ns - begun_ns) / SECOND, 6),
        "source": {key: sum(row[key] for row in sources) for key in ELEMENT_COUNTERS},
        "sources": sources,
        "aggregators": rows[Role.AGGREGATOR],
        "repairers": rows[Role.REPAIRER],
        "receivers": receivers,
        "crowds": crowds,
        "parts": [],
        "events": sum(part.events for part in parts),
        "digest": digest_of({name: digest for part in parts for name, digest in part.digests.items()}),
        "notices": [
            {"at": round(at_ns / SECOND, 6), "node": name, "code": code, "text": text}
            for at_ns, name, code, text in notices
        ],
    }
    report["totals"] = {key: sum(row[key] for row in (*receivers, *crowds)) for key in RECEIVER_KEYS}
    report["problems"] = [*(problem for part in parts for problem in part.problems), *_problems([*receivers, *crowds])]
    report["ok"] = not report["problems"]
    return report


# key of the row of a source or element -> counter
ELEMENT_COUNTERS: dict[str, str] = {
    "odata": "odata_packets",
    "rdata": "rdata_packets",
    "rdata_forwarded": "rdata_forwarded",
    "nak_packets": "nak_packets_in",
    "nak_sqns": "nak_sqns_in",
    "nak_sqns_in": "nak_sqns_in",
    "nak_sqns_out": "nak_sqns",
    "nak_packets_eliminated": "nak_packets_eliminated",
    "ncfs": "ncf_packets",
}
RECEIVER_KEYS = (
    "delivered", "lost", "duplicates", "out_of_order", "damaged", "nak_sqns", "repaired", "repaired_locally", "late",
)  # fmt: skip


def _element_row(node: SimulatedNode) -> Report:
    return {"node": node.name} | {key: node.total(counter) for key, counter in ELEMENT_COUNTERS.items()}


def _receiver_row(world: World, node: SimulatedNode) -> Report:
    """Return the row of a receiver. Duplicates, disorder and damage would have ended the run, so their counts are 0."""
    streams = _receiver_application(node).all_streams
    ports = {stream.data_port for stream in node.plan.streams}
    have_all = {stream.tsi for stream in streams if stream.is_complete and stream.is_from_start}
    return {
        "node": node.name,
        "segment": node.plan.segments[0].name,
        "delivered": sum(stream.messages for stream in streams),
        "lost": sum(stream.lost_sqns for stream in streams),
        "duplicates": 0,
        "out_of_order": 0,
        "damaged": 0,
        "nak_sqns": node.total("nak_sqns"),
        "repaired": node.total("repaired_sqns"),
        "repaired_locally": node.total("repaired_locally"),
        "late": node.total("late_sqns"),
        # Every delivery was compared octet by octet with the offered messages, which is stronger than a hash.
        "sha256_ok": have_all == {tsi for tsi, ledger in world.ledgers.items() if ledger.data_port in ports},
    }


def _crowd_row(world: World, crowd: Crowd) -> Report:
    """Return the row of a model: the totals of all its members."""
    counters = crowd.counters
    ledgers = [ledger for ledger in world.ledgers.values() if ledger.data_port == crowd.plan.plan.streams[0].data_port]
    has_all = len(ledgers) == 1 and crowd.is_complete(ledgers[0].end - ledgers[0].first)
    return {
        "node": crowd.name,
        "segment": crowd.plan.plan.segments[0].name,
        "members": crowd.plan.count,
        "delivered": crowd.plan.count * ledgers[0].messages if has_all else crowd.delivered_sqns,
        "lost": 0,
        "duplicates": 0,
        "out_of_order": 0,
        "damaged": 0,
        "nak_packets": counters.nak_packets,
        "nak_sqns": counters.nak_sqns,
        "missing": counters.missing_sqns,
        "suppressed": counters.naks_suppressed,
        "repaired": counters.repaired_sqns,
        "repaired_locally": counters.repaired_locally,
        "late": counters.late_sqns,
        "sha256_ok": has_all,
    }


def _unsent(world: World) -> list[str]:
    """Return the sources that a fault ended early; unoffered messages count as complete at every receiver."""
    offers = {node.name: _source_application(node) for node in world.sources}
    return [
        f"{name}: ended with {application.offered} of {application.traffic.messages} messages offered"
        for name, application in offers.items()
        if application.offered < application.traffic.messages
    ]


def _problems(receivers: list[Report]) -> list[str]:
    problems = []
    for row in receivers:
        if row["lost"]:
            problems.append(f"{row['node']}: lost {row['lost']}")
        elif not row["sha256_ok"]:
            problems.append(f"{row['node']}: delivered {row['delivered']}, not all of every session")
    return problems
