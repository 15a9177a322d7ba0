"""JSON Schema of the topology file, by which editors complete, explain and check keys.

The schema comes from the model and the parameter table, as the loader and the reference page do. A schema knows the form
of one value and not its range if the value has a unit, nor the rules between values: `pgm check` knows all.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs

from pgm.deprecated import PARAMETERS
from pgm.impairments import Impairment
from pgm.parameters import PROFILES, ROWS, Row, Unit
from pgm.topology import model
from pgm.topology.addresses import AddressPool
from pgm.topology.model import FileKey, Topology, WindowTable, keys_of
from pgm.topology.structure import IMPAIRMENT_KEYS, MOST_KEYS, MOST_NODES
from pgm.units import MOST_CHARACTERS, RATE_UNITS, SECOND, SIZE_UNITS, TIME_UNITS

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_KEY_LINE = r"^pgm1 [a-z2-7]{16} \d{4}-\d\d-\d\d \d{4}-\d\d-\d\d [A-Za-z0-9_-]{86}$"
_KEY_ID = "^[a-z2-7]{16}$"
_ADDRESS = r"[0-9A-Fa-f.:]+"
_IP: Schema = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}


def schema() -> Schema:
    """Return the schema of a whole file, with a definition for each kind of table."""
    definitions: dict[str, Schema] = {}
    root = _table(Topology, definitions)
    return {"$schema": DIALECT, "title": "pgm topology file", **root, "$defs": dict(sorted(definitions.items()))}


def _table(kind: type[attrs.AttrsInstance], definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a table, and add those of the tables in it to `definitions`."""
    types = get_type_hints(kind)
    keys = keys_of(kind)
    required = [name for name, key in keys.items() if key.is_required and not key.unless]
    properties = {name: _described(_of(types[name], definitions), key) for name, key in keys.items()}
    made: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        made["required"] = required
    either = [
        {"anyOf": [{"required": [name]}, {"required": [key.unless], "properties": {key.unless: {"const": True}}}]}
        for name, key in keys.items()
        if key.unless
    ]
    return made | ({"allOf": either} if either else {})


def _described(value: Schema, key: FileKey) -> Schema:
    if not key.example:
        return value | {"description": key.doc}
    return value | {"description": f"{key.doc}\n\nExample: {key.example}"}


def _of(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type of the model."""
    inner = [one for one in get_args(kind) if one is not type(None)]
    if kind in _SHARED:
        definitions[_SHARED[kind]] = _LEAVES[kind]()
        return {"$ref": f"#/$defs/{_SHARED[kind]}"}
    if kind in _LEAVES:
        return _LEAVES[kind]()
    if get_origin(kind) is Literal:
        return {"enum": list(inner)}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _of(inner[0], definitions)}
    if get_origin(kind) is not None and issubclass(_plain(kind), Mapping):
        return {"type": "object", "additionalProperties": _of(inner[1], definitions)}
    if inner:  # or None, which no file can write
        return _of(inner[0], definitions)
    if issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # a table may contain its own kind
        definitions[kind.__name__] = _table(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _plain(kind: Any) -> type:
    origin = get_origin(kind)
    return origin if isinstance(origin, type) else object


def _quantity(units: Iterable[str]) -> Schema:
    pattern = rf"^\s*\d+(\.\d+)?\s*({'|'.join(units)})\s*$"
    return {"type": "string", "pattern": pattern, "maxLength": MOST_CHARACTERS}


def _whole(low: float, high: float) -> Schema:
    return {"type": "integer", "minimum": int(low), "maximum": int(high)}


def of_parameter(row: Row) -> Schema:
    """Return the schema of a parameter's value."""
    if row.unit is Unit.CHOICE:
        return {"enum": list(row.choices)}
    if row.unit is Unit.SWITCH:
        return {"type": "boolean"}
    if row.unit in (Unit.COUNT, Unit.PER_SECOND):
        return _whole(row.low, row.high)
    if row.unit is Unit.FRACTION:
        return _SHARE
    return _quantity(_UNITS[row.unit])


_SHARE: Schema = {"type": "string", "pattern": r"^\s*(100(\.0+)?|\d{1,2}(\.\d+)?)\s*%\s*$"}
_UNITS: Mapping[Unit, Iterable[str]] = {
    Unit.DURATION: TIME_UNITS,
    Unit.OCTETS: SIZE_UNITS,
    Unit.RATE: RATE_UNITS,
}


def _parameters() -> Schema:
    made = {
        row.key: of_parameter(row) | {"description": f"{row.doc}\n\nDefault: {row.spell(row.default)}{_range_of(row)}"}
        for row in ROWS.values()
    }
    former = {old: of_parameter(ROWS[new]) | {"deprecated": True} for old, new in PARAMETERS.items()}
    return {"type": "object", "additionalProperties": False, "properties": made | former}


def _range_of(row: Row) -> str:
    return "" if row.choices or row.unit is Unit.SWITCH else f"; {row.spell(row.low)} to {row.spell(row.high)}"


def _losses() -> Schema:
    length = {"type": "number", "minimum": 1, "maximum": 1e6}
    values = {"burst_length": length, "reorder_ivl": _quantity(TIME_UNITS)}
    made = {name: values.get(name, _SHARE) | {"description": doc} for name, (_, _, doc) in IMPAIRMENT_KEYS.items()}
    return {"type": "object", "additionalProperties": False, "properties": made}


def _pool() -> Schema:
    one = {"type": "string", "pattern": f"^{_ADDRESS}(-{_ADDRESS})?$"}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def _key_lists() -> Schema:
    lines = {"type": "array", "items": {"type": "string", "pattern": _KEY_LINE}, "minItems": 1, "maxItems": MOST_KEYS}
    return {"type": "object", "additionalProperties": lines}


def _revocations() -> Schema:
    return {"type": "object", "propertyNames": {"pattern": _KEY_ID}, "additionalProperties": _TEXT}


def _window() -> Schema:
    packets = _whole(1, ROWS["txw_sqns"].high)
    return {"anyOf": [of_parameter(ROWS["txw_secs"]), of_parameter(ROWS["txw_bytes"]), packets]}


def _seconds(key: str) -> Callable[[], Schema]:
    return lambda: _whole(1, ROWS[key].high // SECOND)


def _row(key: str) -> Callable[[], Schema]:
    return lambda: of_parameter(ROWS[key])


# An interface by name has no "/", and a network has a prefix length that fits.
_INTERFACE: Schema = {
    "type": "string",
    "pattern": r"^([^\s/]{1,15}|[0-9.]+(/([12]?\d|3[0-2]))?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(/(\d\d?|1[01]\d|12[0-8]))?)$",
}

# Schemas that many tables share, by the names of their definitions.
_SHARED: Mapping[Any, str] = {model.Overrides: "Parameters", Impairment: "Loss"}

_LEAVES: Mapping[Any, Callable[[], Schema]] = {
    str: lambda: _TEXT,
    int: lambda: {"const": model.VERSION},
    bool: lambda: {"type": "boolean"},
    model.Port: lambda: _whole(1, 65_535),
    model.Count: lambda: _whole(0, MOST_NODES),
    model.Duration: lambda: _quantity(TIME_UNITS),
    model.RoundTrip: lambda: _quantity(TIME_UNITS),
    model.Rate: _row("txw_max_rte"),
    model.CacheOctets: _row("cache_bytes"),
    model.CacheSeconds: _seconds("cache_secs"),
    model.RecordOctets: _row("record_bytes"),
    model.RecordSeconds: _seconds("record_secs"),
    model.SegmentOctets: _row("record_segment_bytes"),
    model.Host: lambda: _IP,
    model.Interface: lambda: _INTERFACE,
    model.Profile: lambda: {"enum": list(PROFILES)},
    model.Overrides: _parameters,
    model.KeyLists: _key_lists,
    model.Revocations: _revocations,
    WindowTable: _window,
    AddressPool: _pool,
    Impairment: _losses,
}
