"""Figures of one minute of a tree, for the tables that a job on Spark keeps. Each figure is that of a report.

A packet that several nodes lack is attributed to one link from the events of its minute. Events of one packet that lie on
both sides of a minute's end therefore count as losses of the nodes' own links.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np

from pgm.figures import losses, repairs
from pgm.figures.event_rows import EventRows, Groups
from pgm.figures.rules import Summary

MINUTE_S = 60
MINUTE_US = MINUTE_S * 1_000_000
FINDINGS_FILE = "findings.json"  # beside the tables: the changes of regime in them
_SECOND_US = 1_000_000

# table -> column -> Arrow type, meaning. Each row has its minute, too.
TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "links": {
        "link": ("string", "Link: the segment and its node, or the feeder and its segment."),
        "segment": ("string", "Segment of the link."),
        "node": ("string", "Node of the link. Null for the link of a feeder."),
        "packets": ("int64", "Data packets that the link carried, first transmissions."),
        "lost": ("int64", "Packets that the link lost."),
        "loss": ("double", "Share of the packets that were lost."),
        "bursts": ("int64", "Runs of lost packets."),
    },
    "repairs": {
        "link": ("string", "Link into the receiver."),
        "segment": ("string", "Segment of the receiver."),
        "node": ("string", "Receiver."),
        "repaired": ("int64", "Packets repaired."),
        "p50_ms": ("double", "Median time from the detection of a loss to its repair."),
        "p90_ms": ("double", "The same for 90 % of the packets."),
        "p95_ms": ("double", "The same for 95 %."),
        "p99_ms": ("double", "The same for 99 %."),
        "worst_ms": ("double", "Longest time."),
    },
    "excess_naks": {
        "window": ("string", "Start of the ten seconds, ISO 8601 in UTC."),
        "node": ("string", "Parent that was asked."),
        "segment": ("string", "Segment of the child."),
        "child": ("string", "Name or address of the child."),
        "asked": ("int64", "Packets that the child requested."),
        "usual": ("double", "Median of all children of the parent."),
        "times": ("double", "Ratio of both."),
    },
    "capacity": {
        "node": ("string", "Source or element."),
        "role": ("string", "Role of the node."),
        "segment": ("string", "Segment on which the node sends."),
        "sent": ("int64", "Data packets sent, first transmissions."),
        "rdata": ("int64", "Repairs sent."),
        "pps": ("double", "Packets a second, repairs included, the mean of the minute."),
        "peak_pps": ("double", "Data packets a second in the busiest row of the telemetry."),
        "limit_pps": ("double", "Limit of the node, for packets of full size. Null without a topology file."),
        "share": ("double", "Share of the limit that the mean took. Smaller packets take less than it says."),
    },
    "nodes": {
        "node": ("string", "Node."),
        "role": ("string", "Role of the node. Empty for rows about its log."),
        "events": ("int64", "Events of the minute that the tables use."),
        "overflow": ("int64", "Events that the node could not write."),
        "unread": ("int64", "Events that were deleted before they were read, or whose agent went away."),
        "late": ("int64", "Events that came after the minute of their time was closed. They are in no table."),
    },
    "agents": {
        "at": ("string", "Time, ISO 8601 in UTC."),
        "agent": ("string", "URL of the agent, or folder."),
        "state": ("string", "away or back."),
        "cause": ("string", "Reason."),
    },
}


@attrs.frozen
class Limits:
    """Limits of nodes: packets a second by the name of the node, and names of nodes by segment and address."""

    pps: Mapping[str, float] = attrs.field(factory=dict)
    names: Mapping[tuple[str, str], str] = attrs.field(factory=dict)


NO_LIMITS = Limits()


def of_minute(events: EventRows, limits: Limits = NO_LIMITS) -> dict[str, list[Summary]]:
    """Return the rows of the tables about the traffic of a minute: links, repairs, excess_naks, capacity."""
    found = losses.links(events, losses.Bursts.of(events))
    waits = repairs.latencies_by_node(events)
    naks = repairs.excess_naks(events)
    for row in waits:
        row["link"] = f"{row['segment']} > {row['node']}"
    for row in naks:
        row["child"] = limits.names.get((row["segment"], row["child"]), row["child"])
    tables = {"links": found, "repairs": waits, "excess_naks": naks, "capacity": _capacity(events, limits)}
    return {table: [{name: row[name] for name in TABLES[table]} for row in rows] for table, rows in tables.items()}


def _capacity(events: EventRows, limits: Limits) -> list[Summary]:
    rows = events.of_kind("sent", "rdata_sent")
    is_data = rows.has("kind", "sent")
    groups = Groups.of(rows["node"], rows["role"], rows["segment"])
    sent = groups.sums(np.where(is_data, rows["count"], 0))
    rdata = groups.sums(np.where(is_data, 0, rows["count"]))
    # A row sums up a second. One that ended sooner tells of no higher rate.
    peak = groups.most(np.where(is_data, rows["count"] * _SECOND_US // np.maximum(rows["value_us"], _SECOND_US), 0))
    found: list[Summary] = []
    for at, one in enumerate(groups.lead.tolist()):
        names = {name: rows.text(name, int(rows[name][one])) for name in ("node", "role", "segment")}
        pps = int(sent[at] + rdata[at]) / MINUTE_S
        limit = limits.pps.get(names["node"])
        found.append(
            {
                **names,
                "sent": int(sent[at]),
                "rdata": int(rdata[at]),
                "pps": pps,
                "peak_pps": float(peak[at]),
                "limit_pps": limit,
                "share": pps / limit if limit else None,
            }
        )
    return found


def as_markdown() -> str:
    """Return the tables of docs/guide/fleet-tables.md."""
    pages = []
    for table, columns in TABLES.items():
        lines = [f"| column of `{table}` | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {kind} | {doc} |" for name, (kind, doc) in columns.items()]
        pages.append("\n".join(lines))
    return "\n\n".join(pages) + "\n"
