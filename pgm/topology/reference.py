"""Printer of docs/reference/topology.md: `python -m pgm.topology.reference`, or with `--write` to replace the page."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from pgm.parameters import PROFILES, ROWS, Parameters, ProfileInputs, Row, Unit
from pgm.topology.model import (
    CacheTable,
    FleetTable,
    LineTable,
    NodePlace,
    NodeTable,
    RecordTable,
    SegmentTable,
    StreamTable,
    Topology,
    keys_of,
)
from pgm.topology.rules import addresses as rules_addresses
from pgm.topology.rules import keys as rules_keys
from pgm.topology.rules import lines as rules_lines
from pgm.topology.rules import parity as rules_parity
from pgm.topology.rules import repairers as rules_repairers
from pgm.topology.rules import sealing as rules_sealing
from pgm.topology.rules import shape as rules_shape
from pgm.topology.rules import timers as rules_timers
from pgm.topology.rules import transport as rules_transport
from pgm.topology.rules import tree as rules_tree
from pgm.topology.rules import window_time as rules_window_time
from pgm.topology.rules.rule import Rule
from pgm.topology.structure import IMPAIRMENT_KEYS
from pgm.topology.url import KEYS
from pgm.units import MILLISECOND, format_duration

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "reference" / "topology.md"
_EXAMPLE = _ROOT / "deploy" / "topologies" / "trading-floor.toml"

_HEAD = """\
# The topology file

One TOML file describes a complete tree. Every process reads the same file and takes its own part of it. This page is
printed by `python -m pgm.topology.reference --write` from the tables that load, check and plan the file.

```toml
{example}```

More examples are in `deploy/topologies/`. Quantities carry their unit: `"50ms"`, `"64MiB"`, `"200Mbit/s"`, `"2%"`.
Unknown keys are errors. All errors come at once, each with file, line and remedy.

## Layouts

A **segment** is one multicast domain, or a **unicast leg** if the network between its nodes carries no multicast. A
**relay** has one segment `upstream` and others `downstream`, and forwards the data from the first to the others. The relay
alone sends SPMs on its downstream segments. Its standby stays silent until the relay fails. An aggregator or repairer with
one `segment` is **on-LAN**: all nodes receive the data directly, and the element serves only repairs. A node with one `*`
in its name is a **pattern** of any number of receivers: `desk-*` stands for `desk-1`, `desk-2` and so on. The nodes of a
pattern take the addresses of `addresses` in that order.

On loopback every node, receivers included, has an address of its own in 127.0.0.0/8. Every segment has its own group.
"""

_PRECEDENCE = """\
## Precedence of values

A later level overrides an earlier level:

1. the default of the table below (`max_tpdu` is 20 octets less for a source whose streams reach an IPv6 segment),
2. the profile, computed from `rtt` and `repair_budget`,
3. `[parameters]`,
4. the stream: `parameters`, `window` (at its source), `rate`,
5. the segment's `parameters`,
6. the node: `cache`, `record`, `parameters`.

A source sends at most the `rate` of its stream. An element or receiver with several streams gets the sum of their rates. A
relay takes the parameters about its own NAKs from its upstream segment. A relay takes the parameters about its answers,
which are the parameters that sources read too, from its downstream segments. `pgm plan` prints for every node the values
that differ from the defaults, with their reasons.
"""

_TABLES: tuple[tuple[str, str, type[attrs.AttrsInstance]], ...] = (
    ("The file", "At the top, before the first header.", Topology),
    ("Streams", "`[streams.NAME]`: one flow of messages.", StreamTable),
    ("Segments", "`[segments.NAME]`: one multicast domain.", SegmentTable),
    ("Nodes", '`[nodes.NAME]` or `[nodes."NAME-*"]`: one process, or a pattern of receivers.', NodeTable),
    ("Places", "`upstream`, and each entry of `downstream`.", NodePlace),
    ("Lines", "Each entry of `lines`.", LineTable),
    ("Cache", "`cache` of a repairer.", CacheTable),
    ("Record", "`record` of a repairer or a receiver.", RecordTable),
    ("Fleet", "`[fleet]`: the agents of the hosts.", FleetTable),
)


def render() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD.format(example=_EXAMPLE.read_text("utf-8"))]
    parts += [_keys(*table) for table in _TABLES]
    parts += [_losses(), _PRECEDENCE, _profiles(), _parameters(), _rules(), _address()]
    return "\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _keys(title: str, intro: str, kind: type[attrs.AttrsInstance]) -> str:
    def rows() -> Iterator[list[str]]:
        for name, key in keys_of(kind).items():
            example = f"`{key.example}`" if key.example else "tables"
            must = f"yes, unless `{key.unless}`" if key.unless else "yes"
            yield [f"`{name}`", must if key.is_required else "", example, key.doc]

    return f"## {title}\n\n{intro}\n\n{_table(['key', 'required', 'example', 'meaning'], rows())}"


def _losses() -> str:
    rows = ([f"`{name}`", f"`{example}`", doc] for name, (_, example, doc) in IMPAIRMENT_KEYS.items())
    intro = "`loss` of a segment: injected losses, drawn for each node separately from the packets that the node reads there."
    return f"## Loss\n\n{intro}\n\n{_table(['key', 'example', 'meaning'], rows)}"


def _profiles() -> str:
    """Return the table of the values that each profile computes for a short and a long round trip."""
    columns = [
        (name, rtt)
        for name in PROFILES
        for rtt in (MILLISECOND, 50 * MILLISECOND)
        if name != "legacy" or rtt == MILLISECOND
    ]
    values = [PROFILES[name](ProfileInputs(rtt=rtt)) for name, rtt in columns]
    keys = [key for key in ROWS if any(key in column for column in values)]
    head = [
        "parameter",
        "default",
        *(name if name == "legacy" else f"{name}, {format_duration(rtt)}" for name, rtt in columns),
    ]
    rows = (
        [
            f"`{key}`",
            ROWS[key].spell(ROWS[key].default),
            *(ROWS[key].spell(column[key]) if key in column else "" for column in values),
        ]
        for key in keys
    )
    docs = "".join(f"- `{name}`: {' '.join((profile.__doc__ or '').split())}\n" for name, profile in PROFILES.items())
    intro = 'Values of each profile with `repair_budget = "10s"`, for the round trips of the head. An empty cell means the default.'
    return f"## Profiles\n\n{docs}\n{intro}\n\n{_table(head, rows)}"


def _parameters() -> str:
    rows = (
        [f"`{key}`", f"`{_spelled(row)}`", _bounds(row), ", ".join(row.roles), row.rfc, row.doc]
        for key, row in ROWS.items()
    )
    intro = (
        "Each parameter may stand in `parameters` of the file, a stream, a segment or a node. "
        f"There are {len(attrs.fields(Parameters))} parameters. The column RFC gives the section of RFC 3208."
    )
    head = ["parameter", "default", "bounds", "read by", "RFC", "meaning"]
    return f"## Parameters\n\n{intro}\n\n{_table(head, rows)}"


def _spelled(row: Row) -> str:
    text = row.spell(row.default)
    return text if row.unit in (Unit.COUNT, Unit.PER_SECOND, Unit.SWITCH) else f'"{text}"'


def _bounds(row: Row) -> str:
    if row.choices:
        return ", ".join(row.choices)
    return "" if isinstance(row.default, bool) else f"{row.spell(row.low)} to {row.spell(row.high)}"


def _rules() -> str:
    sections = {
        "Entries": rules_shape.RULES,
        "The tree": (*rules_tree.RULES, *rules_repairers.RULES),
        "Lines": rules_lines.RULES,
        "Addresses": rules_addresses.RULES,
        "Transport": rules_transport.RULES,
        "Timers and sizes": (*rules_timers.RULES, *rules_window_time.RULES),
        "Parity": rules_parity.RULES,
        "Keys": (*rules_keys.RULES, *rules_sealing.RULES),
    }
    intro = "A warning does not prevent the tree from running."
    return f"## Rules of `pgm check`\n\n{intro}\n\n" + "\n".join(_rule_table(*section) for section in sections.items())


def _rule_table(title: str, rules: Iterable[Rule]) -> str:
    rows = ([f"`{rule.name}`", "warning" if rule.is_warning else "error", rule.sentence] for rule in rules)
    return f"### {title}\n\n{_table(['rule', 'kind', 'condition'], rows)}"


def _address() -> str:
    rows = ([f"`{key}`", doc] for key, (_, doc) in KEYS.items())
    intro = (
        "A source or receiver also opens without a file:\n\n"
        "```\npgm://239.192.0.1:3056?interface=lo&data_port=7500&address=127.0.0.9&nak_bo_ivl=50ms&parents=127.0.0.1,127.0.0.2\n```\n\n"
        "An IPv6 group stands in brackets. The query takes these keys and every parameter. A number without a unit is in nanoseconds, octets, octets a second, or a share of one, as for a keyword of a program. ZeroMQ's addresses, such as "
        "`epgm://eth0;239.192.1.1:5555`, take the same keys after a question mark; see [zeromq.md](../guide/zeromq.md)."
    )
    return f"## Without a file\n\n{intro}\n\n{_table(['key', 'meaning'], rows)}"


def main(arguments: list[str]) -> int:
    """Print or write the page. Return the exit status."""
    if arguments == ["--write"]:
        PAGE.write_text(render(), "utf-8")
    elif arguments:
        sys.stderr.write("usage: python -m pgm.topology.reference [--write]\n")
        return 2
    else:
        sys.stdout.write(render())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
