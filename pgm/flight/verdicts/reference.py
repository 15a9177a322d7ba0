"""Page docs/reference/flight.md, printed from the tables of the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgm.flight.record import DROPPING, FIELDS, KINDS, RECORD, RECORD_OCTETS, SHEDDING
from pgm.flight.ring import HEAD_OCTETS, MOST_SESSIONS, SESSIONS_AT
from pgm.flight.verdicts.json_schema import SCHEMA
from pgm.flight.verdicts.loss_place import LOSS_KINDS
from pgm.flight.verdicts.repair_story import STEP_KINDS


def render() -> str:
    """Return the page."""
    lines = [
        "# Flight recorder: files, JSON and verdicts",
        "",
        "This page is printed from the tables in `pgm/flight`. [Explain](../guide/explain.md) shows how to use the recorder.",
        "",
        "## The file",
        "",
        "Each node writes `NODE.flight` beside its status socket, in the folder of its topology under `$PGM_RUNTIME_DIR`, `$XDG_RUNTIME_DIR/pgm` or",
        "`/tmp/pgm-UID`. Further processes of the same node write `NODE@2.flight` to `NODE@4.flight`. The file has the mode 0600, and stays when its",
        f"process ends. All numbers are little-endian. The head has {HEAD_OCTETS:,} octets:",
        "",
        "| offset | content |",
        "|---|---|",
        "| 0 | `pgmflght`, layout (u32, 1), octets of a record (u32) |",
        "| 16 | Time of day minus the monotonic clock, ns (i64), renewed each second |",
        "| 24 | Boot id, 40 octets. A file of another boot begins anew |",
        "| 64 | Octets of the facts (u32), their CRC-32 (u32), and the facts as JSON: topology, node, role, host, segments, streams, parents, timers, causes |",
        f"| {SESSIONS_AT:,} | Sessions, {MOST_SESSIONS:,} at most, of 16 octets: TSI (8), data port (u16), used (u8) |",
        "",
        f"Records of {RECORD_OCTETS} octets follow. A reader sorts them by `number`, and takes only those with the right check.",
        "",
        "| offset | field | type | meaning |",
        "|---|---|---|---|",
        *_fields(),
        "",
        "## Kinds of records",
        "",
        "| number | kind | written by | meaning |",
        "|---|---|---|---|",
        *(f"| {kind.value} | `{kind.name.lower()}` | {roles} | {doc} |" for kind, (roles, doc) in KINDS.items()),
        "",
        f"`shed` names one of these counters: {_names(SHEDDING)}. `dropped` names one of these: {_names(DROPPING)}.",
        "[Counters](counters.md) describes them. The causes of other records are states of a repair, and causes of losses and ends.",
        "",
        *_verdicts(),
    ]
    return "\n".join(lines)


def _verdicts() -> list[str]:
    """Return the sections on verdicts and JSON."""
    return [
        "## Verdicts",
        "",
        "The place of a loss (`loss.kind`):",
        "",
        "| kind | meaning | remedy |",
        "|---|---|---|",
        *(f"| `{kind}` | {doc} | {remedy or '-'} |" for kind, (doc, remedy) in LOSS_KINDS.items()),
        "",
        "Steps of a repair (`steps[].kind`), and what it was late for (`repair.kind`):",
        "",
        "| kind | meaning | remedy |",
        "|---|---|---|",
        *(f"| `{kind}` | {doc} | {remedy or '-'} |" for kind, (doc, remedy) in STEP_KINDS.items()),
        "",
        "## JSON",
        "",
        "`pgm explain --json` prints one object, in the manner of [qlog](https://datatracker.ietf.org/doc/draft-ietf-quic-qlog-main-schema/): one trace for each node, with named events",
        "at relative times. `python -c 'from pgm.flight.verdicts.json_schema import SCHEMA; print(SCHEMA)'` prints its JSON Schema.",
        "",
        "| key | type | meaning |",
        "|---|---|---|",
        *_keys("", SCHEMA),
        "",
        "`pgm explain --worst N --json` prints one object with `troubles`: `node`, `tsi`, `first`, `count`, `lost`, `cause`, `took_ms`, `time_ns`, and `loss` and",
        "`repair` as above.",
        "",
    ]


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _fields() -> Iterator[str]:
    assert RECORD.fields is not None
    for name, (dtype, offset) in ((name, RECORD.fields[name][:2]) for name in RECORD.names or ()):
        kind = "16 octets" if dtype.kind == "V" else f"{dtype.kind}{dtype.itemsize * 8}"
        yield f"| {offset} | `{name}` | {kind} | {FIELDS[name]} |"


def _keys(prefix: str, schema: dict[str, Any]) -> Iterator[str]:
    for name, row in schema["properties"].items():
        kind = row.get("type", "constant")
        kinds = " or ".join(kind) if isinstance(kind, list) else kind
        yield f"| `{prefix}{name}` | {kinds} | {row.get('description', '')} |"
        if kind == "object" and "properties" in row:
            yield from _keys(f"{prefix}{name}.", row)
        elif kind == "array" and "properties" in row["items"]:
            yield from _keys(f"{prefix}{name}[].", row["items"])
