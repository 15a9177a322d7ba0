"""Schema of protocol events: columns of a telemetry row and kinds of events, for writers, jobs and docs.

Rows stand for runs of sqns, not for packets. Sqns are the 32-bit numbers of the wire, because all nodes agree on these
without the session's epoch. A run that wraps around is two rows. Sqns repeat after 2^32 packets, so joins across nodes must
also bound the difference in time.
"""

from __future__ import annotations

from typing import Any

import attrs

VERSION = 1  # of the columns, in the metadata of each file

# column -> Arrow type, meaning
COLUMNS: dict[str, tuple[str, str]] = {
    "time": ("timestamp", "Time of the event in UTC, by the node's clock."),
    "node": ("string", "Name of the node."),
    "role": ("string", "Role of the node."),
    "segment": ("string", "Name of the segment. Empty if the event concerns no segment."),
    "kind": ("string", "Kind of the event, see below."),
    "tsi": ("string", "TSI of the session. Empty for events of the node."),
    "first": ("int64", "First sqn of the run, of 32 bits."),
    "count": ("int32", "Sqns in the run."),
    "peer": ("string", "Address of the other node."),
    "value_us": ("int64", "A time in microseconds, see below. Null if the kind has no time."),
    "tries": ("int32", "Retries so far."),
    "cause": ("string", "Cause of the event, or the state."),
    "local": ("bool", "For a repair: whether a repairer on the receiver's own segment sent it from its cache."),
}

# kind -> roles that write it, meaning
KINDS: dict[str, tuple[str, str]] = {
    "address": (
        "all",
        "Written at the start for each segment. `peer` is the node's own address, `cause` is up, down or both.",
    ),
    "timer": (
        "all but sources",
        "Written at the start for each timer. `cause` names the timer, `value_us` is its interval.",
    ),
    "sent": ("sources, relays", "ODATA sent. `count` packets were sent in `value_us`, from `first` on."),
    "received": ("all but sources", "ODATA read. `count` packets of `peer` arrived in `value_us`."),
    "line": (
        "receivers, repairers",
        "Progress of one of several lines, up to `first`. The line lost `count` packets in this time, and is `value_us` behind the first line.",
    ),
    "rdata_heard": ("all but sources", "RDATA read, needed or not. `count` packets of `peer` arrived in `value_us`."),
    "delivered": ("receivers", "Delivered to the application: `count` packets in `value_us`."),
    "gap": ("all but sources", "Sqns detected as missing."),
    "repaired": (
        "all but sources",
        "Missing sqns that arrived as RDATA of `peer`. `value_us` is the time since detection, `cause` is the state before.",
    ),
    "late": ("all but sources", "Missing sqns that arrived as ODATA: reordered, or recovered by the relay above."),
    "skipped": (
        "receivers, repairers",
        "Sqns detected as missing that were never sent, because a parity group ended before them.",
    ),
    "gave_up": ("all but sources", "Sqns that will not be requested again. `value_us` is the time since detection."),
    "conflict": (
        "receivers",
        "Two different copies of the sqns came. `cause` is delivered if the application had the first copy, otherwise dropped.",
    ),
    "forged": (
        "receivers",
        "Delivered sqns that the source has not sent (`cause` forged), or for which no proof came (`cause` unproved).",
    ),
    "lost": ("receivers", "Sqns reported to the application as lost. `cause` is the cause of the loss."),
    "nak_sent": ("all but sources", "Sqns requested from `peer`."),
    "nak_in": ("all but receivers", "Sqns in a NAK received from `peer`."),
    "ncf_sent": ("all but receivers", "Sqns confirmed by an NCF. `peer` is empty for a multicast NCF."),
    "rdata_sent": ("all but receivers", "Repairs sent or forwarded. `peer` is empty for multicast repairs."),
    "confirmed": (
        "receivers, repairers",
        "Sqns whose own NAK was answered by an NCF. `value_us` is the time since the NAK.",
    ),
    "suppressed": (
        "receivers, repairers",
        "Sqns that another node requested first. `value_us` is the time since detection.",
    ),
    "ncf_timeout": ("receivers, repairers", "Sqns without an NCF within `value_us`."),
    "rdata_timeout": ("receivers, repairers", "Sqns without RDATA within `value_us` after the NCF."),
    "opened": ("receivers", "A session begins or resumes at `first`."),
    "closed": ("receivers", "A session ends or becomes silent at `first`."),
    "parent": ("all but sources", "`peer` replaces `cause` as the parent that receives the NAKs."),
    "clock_step": (
        "all",
        "The node's clock was set: it was `value_us` behind. Rows before this one have times of the former clock.",
    ),
    "overflow": ("all", "`count` rows were dropped because they could not be written in time."),
    "unread": (
        "readers of event logs",
        "`count` rows of the node were not read: their files were deleted before, or `cause` tells why. 0: unknown.",
    ),
    "away": (
        "readers of event logs",
        "The agent or folder `peer` does not answer since `time`. `cause` is the reason.",
    ),
    "back": ("readers of event logs", "The agent or folder `peer` answers again."),
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
        """Return the values in the order of the columns."""
        return attrs.astuple(self, recurse=False)


def as_markdown() -> str:
    """Return the tables of docs/guide/telemetry.md."""
    lines = ["| column | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {doc} |" for name, (kind, doc) in COLUMNS.items()]
    lines += ["", "| kind | written by | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {writers} | {doc} |" for name, (writers, doc) in KINDS.items()]
    return "\n".join(lines) + "\n"
