"""Plan of a node from an address such as `pgm://GROUP:PORT?interface=lo&data_port=7500`, without a file.

ZeroMQ's addresses work too: `epgm://INTERFACE;GROUP:PORT`, with the same keys after a question mark.

The address becomes the tables of a topology file with one stream, one segment and one node. Each key therefore has the
meaning that it has in the file, and the same readers read its value. A number without a unit is in nanoseconds, octets,
octets a second, or a share of one, as for keywords of a program (`pgm.parameters.Row.take`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
from cattrs import BaseValidationError

from pgm.deprecated import current_parameter
from pgm.errors import UnitError, UsageError
from pgm.parameters import ROWS, Unit
from pgm.topology.addresses import parse_address
from pgm.topology.model import DEFAULT_PORT, VERSION, Topology
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_entry
from pgm.topology.problems import suggestion
from pgm.topology.rules import addresses as rules_addresses
from pgm.topology.rules import parity as rules_parity
from pgm.topology.rules import timers as rules_timers
from pgm.topology.rules.shape import NAME_REMEDY, is_name
from pgm.topology.structure import CONVERTER, read_errors_of
from pgm.topology.tree import Tree
from pgm.units import format_duration, format_rate

_NAME = "url"  # name of the only stream and the only segment
_EXAMPLE = "pgm://239.192.0.1:3056?interface=lo&data_port=7500"
_ZEROMQ_EXAMPLE = "epgm://eth0;239.192.1.1:5555"
_ZEROMQ = re.compile(r"epgm://(?P<interface>[^;?#]*);(?P<group>[^;,/?#]+):(?P<port>[0-9]{1,9})(\?(?P<query>[^#]*))?")
# Defaults of ZeroMQ's sockets.
_ZEROMQ_DEFAULTS = {"framing": "zeromq", "profile": "legacy", "rate": "100kbit/s", "multicast_hops": "1"}
# Keys that an epgm:// address sets by itself.
_ZEROMQ_OWN = ("interface", "data_port", "unicast_port", "framing")

# Key of the address -> table of the file, and meaning.
KEYS: Mapping[str, tuple[str, str]] = {
    "interface": ("segment", "Interface by name, address or network. The key is required."),
    "data_port": ("stream", "PGM's data-destination port. The key is required."),
    "address": ("node", "The node's own address. The default is the interface's address."),
    "transport": ("segment", "`udp`, or `ip` for IP protocol 113 without UDP."),
    "unicast_port": ("segment", "UDP port of the node's own address. The default is the group's port."),
    "parents": ("", "Addresses that receive the NAKs, in order of preference, separated by commas."),
    "stream": ("", "Name of the stream."),
    "name": ("", "Name of the node, by which `to=` addresses messages. The default is its role."),
    "rate": ("stream", "As in the file."),
    "window": ("stream", "As in the file."),
    "order": ("stream", "As in the file."),
    "flow": ("stream", "As in the file."),
    "framing": ("stream", "As in the file."),
    "profile": ("topology", "As in the file."),
    "rtt": ("topology", "As in the file."),
    "repair_budget": ("topology", "As in the file."),
}
_NUMBERS = ("data_port", "unicast_port")
# Quantities of keys that are no parameters, spelled from ns and octets a second.
_SPELL: Mapping[str, Callable[[int], str]] = {
    "rate": format_rate,
    "rtt": format_duration,
    "repair_budget": format_duration,
}
_WHOLE = re.compile(r"[0-9]{1,18}")
_SHARE = re.compile(r"[0-9](\.[0-9]{1,8})?")
# Rules about one node and its segment. Rules about the rest of a tree do not apply.
_RULES = [
    rule
    for rule in (*rules_addresses.RULES, *rules_timers.RULES, *rules_parity.RULES)
    if not rule.is_warning and rule.name not in ("address", "pool")
]


def is_url(text: str) -> bool:
    """Return whether a text is an address rather than the path of a file."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def plan_url(url: str, role: Role, name: str | None = None) -> NodePlan:
    """Return the plan of a source or a receiver that an address describes. Raises `UsageError`.

    `name` is the node's, in place of the name in the address.
    """
    if role not in (Role.SOURCE, Role.RECEIVER):
        raise UsageError(f"an address cannot describe the role {role.value}", remedy="write a topology file")
    group, port, query = _split(url)
    parents = _parents(query.pop("parents", ""), group, role)
    stream = query.pop("stream", _NAME)
    own = _require_name(query.pop("name", role.value) if name is None else name)
    document = _document(group, port, query, stream, role)
    try:
        topology: Topology = CONVERTER.structure(document, Topology)
    except BaseValidationError as error:
        flaw = next(read_errors_of(error))
        key = next((step for step in reversed(flaw.path) if isinstance(step, str)), "")
        message = flaw.message if flaw.message.startswith(key) else f"{key}: {flaw.message}"
        raise UsageError(f"{url}: {message}", remedy=flaw.remedy) from None
    tree = Tree.of(attrs.evolve(topology, path=url))
    for rule in _RULES:
        for finding in rule.find(tree):
            raise UsageError(f"{url}: {finding.message}", remedy=finding.remedy)
    plan = plan_entry(tree, topology.nodes[role.value])
    reasons = tuple((key, "address" if key in query else reason) for key, reason in plan.reasons)
    streams = tuple(
        attrs.evolve(stream, sources=(), allowed=None) for stream in plan.streams
    )  # other programs name no source
    # Receivers have an address of their own, perhaps without this port, and those of ZeroMQ cannot have another port.
    segments = tuple(
        attrs.evolve(one, hears_group_port=role is Role.SOURCE and one.transport == "udp") for one in plan.segments
    )
    return attrs.evolve(plan, name=own, parents=parents, reasons=reasons, streams=streams, segments=segments)


def _require_name(name: str) -> str:
    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a node", remedy=NAME_REMEDY)
    return name


def _split(url: str) -> tuple[str, int, dict[str, str]]:
    """Return group, port and query of an address. Raises `UsageError`."""
    if url.startswith("epgm:"):
        return _split_zeromq(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no address: {error}", remedy=f"write it as in {_EXAMPLE}") from None
    if parts.scheme != "pgm" or not host or parts.path.strip("/") or parts.fragment or parts.username is not None:
        raise UsageError(f"{url!r} is no address of a group", remedy=f"write it as in {_EXAMPLE}")
    query = _query(url, parts.query)
    for key in ("interface", "data_port"):
        if not query.get(key):
            raise UsageError(f"{url}: {key} is missing", remedy=f"add it, as in {_EXAMPLE}")
    return _host(url, host), DEFAULT_PORT if port is None else port, query


def _split_zeromq(url: str) -> tuple[str, int, dict[str, str]]:
    """Return group, port and query of a ZeroMQ address, with one port for all (INT-Z2). Raises `UsageError`."""
    match = _ZEROMQ.fullmatch(url)
    if match is None or not match["interface"]:
        # Without an interface OpenPGM uses the interface of the host's name, which is often loopback.
        raise UsageError(
            f"{url!r} names no interface, group and port",
            remedy=f"write it as in {_ZEROMQ_EXAMPLE}, with one group, and the interface by name, address or network",
        )
    query = _query(url, match["query"] or "")
    for key in _ZEROMQ_OWN:
        if key in query:
            raise UsageError(
                f"{url}: {key} does not go with epgm://, which sets it by itself",
                remedy=f"remove it, or write pgm:// as in {_EXAMPLE}&framing=zeromq",
            )
    own = {"interface": unquote(match["interface"]), "data_port": match["port"]}
    return _host(url, match["group"].strip("[]")), int(match["port"]), {**_ZEROMQ_DEFAULTS, **own, **query}


def _query(url: str, text: str) -> dict[str, str]:
    pairs = [(current_parameter(key), value) for key, value in parse_qsl(text, keep_blank_values=True)]
    query = dict(pairs)
    for key in query:
        if key not in KEYS and key not in ROWS:
            raise UsageError(f"{url}: unknown key {key!r}", remedy=suggestion(key, [*KEYS, *ROWS]))
        if sum(name == key for name, _ in pairs) > 1:
            raise UsageError(f"{url}: {key} is there twice", remedy="write it once")
    return query


def _host(url: str, text: str) -> str:
    try:
        return parse_address(unquote(text))
    except UnitError as error:
        raise UsageError(f"{url}: {error.message}", remedy=f"write the group's address, as in {_EXAMPLE}") from None


def _parents(text: str, group: str, role: Role) -> tuple[str, ...]:
    if text and role is Role.SOURCE:
        raise UsageError("a source has no parents", remedy="remove parents, or open a receiver")
    remedy = "write addresses with commas between them: parents=127.0.0.1,127.0.0.2"
    try:
        parents = tuple(parse_address(part) for part in text.split(",")) if text else ()
    except UnitError as error:
        raise UsageError(f"parents: {error.message}", remedy=remedy) from None
    for parent in parents:
        if (":" in parent) != (":" in group):
            raise UsageError(f"parents: {parent} and the group {group} are not of one family", remedy=remedy)
    return parents


def _document(group: str, port: int, query: Mapping[str, str], stream: str, role: Role) -> dict[str, Any]:
    """Return the equivalent topology file as tables."""
    tables: dict[str, dict[str, Any]] = {
        "topology": {"version": VERSION, "name": _NAME},
        "stream": {},
        "segment": {"group": group, "port": port},
        "node": {"role": role.value, "segment": _NAME, "streams": [stream], "parameters": {}},
    }
    for key, text in query.items():
        if key in KEYS:
            tables[KEYS[key][0]][key] = _value(key, text)
        else:
            tables["node"]["parameters"][key] = _parameter(key, text)
    return {
        **tables["topology"],
        "streams": {stream: tables["stream"]},
        "segments": {_NAME: tables["segment"]},
        "nodes": {role.value: tables["node"]},
    }


def _value(key: str, text: str) -> str | int:
    """Return a value of the query as the file has it. A number without a unit has the unit of the project."""
    if not _WHOLE.fullmatch(text):
        return text
    if key in _SPELL:
        return _SPELL[key](int(text))
    return int(text) if key in _NUMBERS or key == "window" else text


def _parameter(key: str, text: str) -> str | int | bool:
    """Return a parameter of the query as the file has it. A number without a unit means what the keyword means."""
    row = ROWS[key]
    if row.unit is Unit.SWITCH:
        return {"true": True, "false": False}.get(text, text)
    if row.unit is Unit.FRACTION and _SHARE.fullmatch(text):
        return row.spell(float(text))
    if not _WHOLE.fullmatch(text):
        return text
    return int(text) if row.unit in (Unit.COUNT, Unit.PER_SECOND) else row.spell(int(text))
