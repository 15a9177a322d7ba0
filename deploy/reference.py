"""Files printed from tables, pages of the documentation mostly: `python -m deploy.reference --write`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from pgm.core.counters import ROWS as COUNTERS
from pgm.core.events import EVENTS
from pgm.core.recovery.repair_table import RECEIVER
from pgm.deprecated import TABLES as DEPRECATED
from pgm.flight.verdicts import reference as flight_reference
from pgm.parameters import ROWS, Unit
from pgm.topology import reference as topology_reference
from pgm.wire.control_packets import CONTROL
from pgm.wire.formats import UPSTREAM, Kind
from pgm.wire.options import OPTIONS, Option
from pgm.wire.rejects import REASONS

_SIZES = {
    Kind.U16: "2",
    Kind.U32: "4",
    Kind.PAD16: "2",
    Kind.NLA: "8 or 20",
    Kind.BARE_NLA: "4 or 16",
    Kind.U32S: "4 each",
    Kind.RAW: "any",
}


_STATES = (
    "## States for joiners",
    "",
    "A source whose application offers states has OPT_PGM_STATE on its SPMs, and a second session for the states. The top bit of the data port and of the data-source port differs from that",
    "of the stream. A joiner sends an SPMR of the stream with OPT_PGM_STATE to the path address of the SPMs, and relays send it to theirs. The option has the first sqn that the joiner can deliver.",
    "The source then sends SPMs of the second session, with the sqn after the state, and the state as one message: 4 octets for the kind (0: a state; 1: the state is too large and",
    "left out), 4 for the sqn after the state, 8 for its length, and the state. OPT_JOIN of these SPMs is the trail, which is the first packet of the newest state.",
    "",
)


def wire_page() -> str:
    """Return docs/reference/wire.md: packet types, bodies, options, rejects."""
    lines = [
        "# Wire formats",
        "",
        "Printed from the tables in `pgm/wire/formats.py`, `pgm/wire/control_packets.py` and `pgm/wire/options.py`. All fields are big-endian.",
        "Every packet begins with 16 octets: source port, destination port, type, options, checksum, global source id",
        "(6 octets), TSDU length. Packets that travel upstream carry the ports swapped. In ODATA and RDATA the sqn,",
        "trail, options and payload follow.",
        "",
        "## Control packets",
        "",
        "| type | name | direction | field | octets | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for kind, cls in CONTROL.items():
        direction = "up" if kind in UPSTREAM else "down"
        rows = [field for field in attrs.fields(cls) if "kind" in field.metadata]
        if not rows:
            lines.append(f"| 0x{kind:02X} | {kind.name} | {direction} | - | 0 | |")
        for field in rows:
            meta = field.metadata
            lines.append(
                f"| 0x{kind:02X} | {kind.name} | {direction} | `{field.name}` | {_SIZES[meta['kind']]} | {meta['doc']} |"
            )
    lines += [
        "",
        "## Options",
        "",
        "| type | name | on | network-significant | fields | bits of the fourth octet |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_option_row(number, option) for number, option in sorted(OPTIONS.items())]
    lines += [
        "",
        "## Requests of a late joiner",
        "",
        "A late joiner sends an SPMR with OPT_PGM_HELD by unicast to a repairer, an aggregator, or a source with no element between. The request asks for the first held sqn of the",
        "amount named in the option. A request without a set bit asks for the whole held history. The answer is the same packet by unicast, with",
        "`answers` and the sqn, or with `nothing`. The answer to a request `by_time` has that bit too, and repeats the amount as `number`. An element",
        "that holds too little asks its parents before the answer, for the whole history or `by_time`.",
        "",
        "A late joiner then sends NAKs, with the same option, for packets before the lead at the time of the request. These NAKs are confirmed and",
        "repaired by unicast, or to the segment if several late joiners have asked. Packets that no element holds are answered with `answers`,",
        "`nothing` and `by_sqn`, by unicast or to the segment: `number` packets from `amount` on. Other implementations know neither the option nor",
        "SPMRs by unicast, and answer with an SPM at most. Their sources are never asked, because their SPMs have no OPT_PGM_EPOCH.",
        "",
        *_STATES,
        "## Rejects",
        "",
        "A datagram that is no valid packet is counted by reason and changes nothing else.",
        "",
        "| reason | meaning |",
        "|---|---|",
    ]
    lines += [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    return "\n".join(lines) + "\n"


def _option_row(number: int, option: type[Option]) -> str:
    fields = [
        f"`{field.name}` ({_SIZES[field.metadata['kind']]}): {field.metadata['doc']}"
        for field in attrs.fields(option)
        if field.metadata.get("kind") not in (None, Kind.PAD16)
    ]
    flags = ", ".join(f"{name} 0x{mask:02X}" for name, mask in option.FLAGS.items()) or "-"
    carriers = ", ".join(sorted(kind.name for kind in option.CARRIERS))
    return f"| 0x{number:02X} | {option.NAME} | {carriers} | {'yes' if option.NETWORK else 'no'} | {'; '.join(fields) or '-'} | {flags} |"


def counters_page() -> str:
    """Return docs/reference/counters.md: every counter with its unit and meaning."""
    lines = [
        "# Counters",
        "",
        "Printed from `pgm/core/counters.py`. Every node has the same table; rows that do not concern its role stay 0.",
        "`pgm status FILE --json` shows the counters that are not 0.",
        "",
        "| counter | unit | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.name}` | {row.metadata['unit']} | {row.metadata['doc']} |" for row in COUNTERS]
    return "\n".join(lines) + "\n"


def repair_states_page() -> str:
    """Return docs/reference/repair-states.md: the state machine of RFC 3208 section 6.3, drawn from the table."""
    lines = [
        "# Recovery of a missing packet",
        "",
        "Printed from `pgm/core/recovery/repair_table.py`, which is RFC 3208 section 6.3 as a table. In every state the arrival of the data completes",
        "the recovery. The packet is lost when the trail passes it, or when a retry count exceeds its limit.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> BACK_OFF: gap found",
    ]
    for (state, event), row in RECEIVER.items():
        counts = f", count {row.counts.value}" if row.counts else ""
        lines.append(f"    {state.name} --> {row.next_state.name}: {event.value}, start {row.restarts.value}{counts}")
    lines += ["```", "", "| state | event | next state | timer started | count raised |", "|---|---|---|---|---|"]
    for (state, event), row in RECEIVER.items():
        lines.append(
            f"| {state.value} | {event.value} | {row.next_state.value} | {row.restarts.value.upper()} "
            f"| {row.counts.value.upper() if row.counts else '-'} |"
        )
    return "\n".join(lines) + "\n"


def events_page() -> str:
    """Return docs/reference/events.md: the events of sessions, with ids and remedies."""
    lines = [
        "# Events",
        "",
        "Printed from `pgm/core/events.py`. Every event of a session has an id that does not change. Programs get `Opened`, `Closed` and `Lost` in",
        "the stream, and notices by `on_notice`; `pgm.event_of(item)` returns the row of any of these events. `pgm run`, `pgm up`, `pgm send` and",
        "`pgm recv` print events on standard error as the events happen. After time and level a line has the id.",
        "With `--json` the account of these commands has `events`: a row for each id that occurred, with the count, the last text and the remedy.",
        "[receiving.md](../guide/receiving.md) has examples.",
        "",
        "| id | meaning | remedy |",
        "|---|---|---|",
    ]
    lines += [f"| `{row.id}` | {row.meaning} | {row.remedy or '-'} |" for row in EVENTS.values()]
    return "\n".join(lines) + "\n"


def deprecated_page() -> str:
    """Return docs/reference/deprecated.md: former names, present names, and how the former ones still work."""
    lines = [
        "# Deprecated names",
        "",
        "Printed from `pgm/deprecated.py`. Version 0.3 removes the former names.",
    ]
    for title, text, names in DEPRECATED:
        lines += ["", f"## {title}", "", text, "", "| former name | present name |", "|---|---|"]
        lines += [f"| `{former}` | `{name}` |" for former, name in names.items()]
    return "\n".join(lines) + "\n"


_TYPES = {
    Unit.DURATION: "Quantity",
    Unit.OCTETS: "Quantity",
    Unit.RATE: "Quantity",
    Unit.FRACTION: "Share",
    Unit.COUNT: "int",
    Unit.PER_SECOND: "int",
    Unit.SWITCH: "bool",
}


def parameter_types() -> str:
    """Return pgm/net/endpoint/parameter_types.py: the keywords of the openers, by the roles that read them."""
    lines = [
        '"""Types of the parameters that openers take. Printed from `pgm/parameters.py` by `python -m deploy.reference --write`."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Literal, TypedDict",
        "",
        "Quantity = int | str  # nanoseconds, octets or octets a second; or with a unit, as in the topology file",
        "Share = float | str  # a share of one; or with a percent sign",
    ]
    for name, base, doc, roles in (
        ("CommonParameters", "TypedDict", "Parameters of sources and of receivers.", {"source", "receiver"}),
        ("SourceParameters", "CommonParameters", "Parameters of `open_source`.", {"source"}),
        ("ReceiverParameters", "CommonParameters", "Parameters of `open_receiver`.", {"receiver"}),
    ):
        lines += ["", "", f"class {name}({base}, total=False):", f'    """{doc}"""', ""]
        for row in ROWS.values():
            if {"source", "receiver"}.intersection(row.roles) == roles:
                choices = ", ".join(f'"{choice}"' for choice in row.choices)
                lines.append(f"    {row.key}: {f'Literal[{choices}]' if choices else _TYPES[row.unit]}")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/wire.md": wire_page,
    "docs/reference/counters.md": counters_page,
    "docs/reference/events.md": events_page,
    "docs/reference/deprecated.md": deprecated_page,
    "docs/reference/repair-states.md": repair_states_page,
    "docs/reference/topology.md": topology_reference.render,
    "docs/reference/flight.md": flight_reference.render,
    "pgm/net/endpoint/parameter_types.py": parameter_types,
}


def page(name: str) -> str:
    """Return the text of the file `name`, a key of `PAGES`. Raises `KeyError` for another name."""
    return PAGES[name]()


def main() -> None:
    """Print the files, or write them with --write."""
    for name in PAGES:
        if "--write" in sys.argv[1:]:
            Path(name).write_text(page(name))
        else:
            print(page(name))


if __name__ == "__main__":
    main()
