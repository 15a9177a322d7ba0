"""What a protocol event looks like: the columns of a telemetry row and the kinds of events, read by writers, jobs and docs.

Rows stand for runs of sqns, not for packets. Sqns are the 32-bit numbers of the wire, the only ones that all nodes
agree on without having heard the session's epoch; a run that crosses their end is two rows. Sqns come again after 2^32
packets, so joins across nodes also bound the difference in time.
"""

from __future__ import annotations

from typing import Any

import attrs

VERSION = 1  # of the columns; files say it in their metadata

# column -> Arrow type, what it holds
COLUMNS: dict[str, tuple[str, str]] = {
    "time": ("timestamp", "When, UTC, by the node's clock."),
    "node": ("string", "Which node."),
    "role": ("string", "Its role."),
    "segment": ("string", "On which segment; empty where it does not matter."),
    "kind": ("string", "What happened, see below."),
    "tsi": ("string", "Of which session; empty for events of the node."),
    "first": ("int64", "First sqn of the run, 32 bits."),
    "count": ("int32", "Sqns in the run."),
    "peer": ("string", "Address of the other side."),
    "value_us": ("int64", "A time in microseconds, see below; null where there is none."),
    "tries": ("int32", "Retries so far."),
    "cause": ("string", "Why, or in which state."),
    "local": ("bool", "Of a repair: whether a repairer of the receiver's own segment sent it from its cache."),
}

# kind -> who writes it, what it means
KINDS: dict[str, tuple[str, str]] = {
    "address": (
        "all",
        "Written at the start, for each segment: `peer` is the node's own address, `cause` is up, down or both.",
    ),
    "timer": (
        "all but sources",
        "Written at the start: `cause` names a timer of the node, `value_us` is its interval.",
    ),
    "sent": ("sources, relays", "ODATA sent: `count` packets in `value_us`, from `first` on."),
    "received": ("all but sources", "ODATA read: `count` packets in `value_us`; `peer` sent them."),
    "line": (
        "receivers, repairers",
        "One of several lines up to `first`: `count` packets that it lost in this time, `value_us` behind the first line.",
    ),
    "rdata_heard": ("all but sources", "RDATA read, wanted or not: `count` packets in `value_us`; `peer` sent them."),
    "delivered": ("receivers", "Handed to the application: `count` packets in `value_us`."),
    "gap": ("all but sources", "Found missing."),
    "repaired": (
        "all but sources",
        "Missing, then arrived as RDATA of `peer`: `value_us` since found, `cause` is the state until then.",
    ),
    "late": ("all but sources", "Missing, then arrived as ODATA: reordered, or recovered by the relay above."),
    "skipped": ("receivers, repairers", "Found missing, and never sent: a group of parity ended before it."),
    "gave_up": ("all but sources", "Will not be asked for any more: `value_us` since found."),
    "lost": ("receivers", "Reported to the application as lost, `cause` says why."),
    "nak_sent": ("all but sources", "Asked for, of `peer`."),
    "nak_in": ("all but receivers", "A NAK of `peer` came."),
    "ncf_sent": ("all but receivers", "Confirmed: `peer` is empty for an NCF to everybody."),
    "rdata_sent": ("all but receivers", "Repairs sent or passed on: `peer` is empty for repairs to everybody."),
    "confirmed": ("receivers, repairers", "An NCF answers the node's own NAK: `value_us` since it was sent."),
    "suppressed": ("receivers, repairers", "Somebody else asked first: `value_us` since it was found missing."),
    "ncf_timeout": ("receivers, repairers", "No NCF within `value_us`."),
    "rdata_timeout": ("receivers, repairers", "No RDATA within `value_us` of the NCF."),
    "opened": ("receivers", "A session begins, or goes on, at `first`."),
    "closed": ("receivers", "A session ends, or falls silent, at `first`."),
    "parent": ("all but sources", "`peer` is asked from now on, and not `cause`."),
    "overflow": ("all", "`count` rows were left out since they could not be written in time."),
}


@attrs.define
class Event:
    """One row. `time_us` is the node's wall clock in microseconds since 1970."""

    time_us: int
    node: str
    role: str
    segment: str
    kind: str
    tsi: str = ""
    first: int = 0
    count: int = 0
    peer: str = ""
    value_us: int | None = None
    tries: int = 0
    cause: str = ""
    local: bool = False

    def values(self) -> tuple[Any, ...]:
        """By column."""
        return attrs.astuple(self, recurse=False)


def as_markdown() -> str:
    """The tables of docs/guide/telemetry.md."""
    lines = ["| column | type | what |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {doc} |" for name, (kind, doc) in COLUMNS.items()]
    lines += ["", "| kind | written by | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {who} | {doc} |" for name, (who, doc) in KINDS.items()]
    return "\n".join(lines) + "\n"
