"""Conversion of TOML values into the model, by one strict reader for each kind of value.

cattrs walks the tables and keeps the paths. A reader raises `UnitError` with a remedy. Readers never coerce a value: a text
in place of a number is an error, because a wrong guess would show only in operation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
from cattrs import BaseValidationError, Converter, IterableValidationError
from cattrs.errors import AttributeValidationNote, ForbiddenExtraKeysError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from pgm.deprecated import PARAMETERS
from pgm.errors import UnitError
from pgm.impairments import Impairment
from pgm.parameters import PROFILES, ROWS, Row, Unit
from pgm.topology.addresses import AddressPool, parse_address, parse_interface, parse_pool, short
from pgm.topology.locate import KeyPath
from pgm.topology.model import (
    VERSION,
    CacheOctets,
    CacheSeconds,
    Count,
    Duration,
    Host,
    Interface,
    KeyLists,
    Overrides,
    Port,
    Profile,
    Rate,
    RecordOctets,
    RecordSeconds,
    Revocations,
    RoundTrip,
    SegmentOctets,
    WindowTable,
    keys_of,
)
from pgm.topology.problems import suggestion
from pgm.trust.public_keys import PublicKeys, is_key_id, parse_line
from pgm.units import MICROSECOND, MILLISECOND, SECOND, parse_fraction

T = TypeVar("T")
Reader = Callable[[Any], Any]
Hook = Callable[[Any, Any], Any]  # value and type, as cattrs passes them

MOST_NODES = 100_000  # maximum of one pattern
MOST_KEYS = 2  # of a node: the current keys, and the next ones
_SIZE_UNITS = ("B",)

_ROUND_TRIP = Row("rtt", Unit.DURATION, MILLISECOND, MICROSECOND, 4 * SECOND, (), "-", "")
_BUDGET = Row("repair_budget", Unit.DURATION, 10 * SECOND, MILLISECOND, 3600 * SECOND, (), "-", "")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise UnitError(f"{short(value)} is not text", remedy='write it in quotes, as in "core"')


def _whole(value: object, low: int, high: int, noun: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise UnitError(
        f"{short(value)} is not {noun}", remedy=f"write a whole number from {low} to {high}, without quotes"
    )


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise UnitError(f"{short(value)} is neither true nor false", remedy="write true or false, without quotes")


def _version(value: object) -> int:
    if value == VERSION and not isinstance(value, bool):
        return VERSION
    raise UnitError(f"{short(value)} is no known version of the format", remedy=f"write version = {VERSION}")


def _from_row(row: Row) -> Reader:
    def read(value: object) -> int | float | bool | str:
        try:
            return row.read(value)
        except OverflowError:
            raise UnitError(
                f"{row.key} = {short(value)} is out of range",
                remedy=f"choose from {row.spell(row.low)} to {row.spell(row.high)}",
            ) from None

    return read


def _window(value: object) -> WindowTable:
    if isinstance(value, int) and not isinstance(value, bool):
        key = "txw_sqns"
    elif isinstance(value, str):
        key = "txw_bytes" if value.rstrip().endswith(_SIZE_UNITS) else "txw_secs"
    else:
        raise UnitError(
            f"{short(value)} is not a window", remedy='write a time "10s", a size "256MiB" or a number of packets'
        )
    size = _from_row(ROWS[key])(value)
    if not size:
        raise UnitError(
            f"a window of {short(value)} keeps nothing",
            remedy='write a time "10s", a size "256MiB" or a number of packets',
        )
    return WindowTable(key, int(size))


def _seconds_of(row: Row) -> Reader:
    return lambda value: _whole(value, 1, int(row.high) // SECOND, "a number of seconds") * SECOND


def _overrides(value: object) -> Mapping[str, Any]:
    table = _table(value)
    names = {key: PARAMETERS.get(key, key) for key in table}

    def read(key: str, item: object) -> object:
        name = names[key]
        if name not in ROWS:
            raise UnitError(f"unknown parameter {key!r}", remedy=suggestion(key, ROWS))
        if name != key and name in table:
            raise UnitError(f"{key} is the former name of {name}, which is set too", remedy=f"remove {key}")
        return _from_row(ROWS[name])(item)

    return {names[key]: item for key, item in _each(Overrides, table.items(), read).items()}


def _table(value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    raise UnitError(
        f"{short(value)} is not a table", remedy="write it in braces, as in { key = value }, or under a [header]"
    )


def _list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    raise UnitError(f"{short(value)} is not a list", remedy="write it in brackets, as in [first, second]")


def _each(kind: Any, items: Iterable[tuple[Any, object]], read: Callable[[Any, object], T]) -> dict[Any, T]:
    """Read all items of a collection by key or index. Raises `IterableValidationError` with the errors of all items."""
    values: dict[Any, T] = {}
    errors: list[Exception] = []
    for place, item in items:
        try:
            values[place] = read(place, item)
        except (UnitError, BaseValidationError) as error:
            error.add_note(IterableValidationNote("", place, kind))
            errors.append(error)
    if errors:
        raise IterableValidationError("", errors, kind)
    return values


def _key_lists(value: object) -> Mapping[str, tuple[PublicKeys, ...]]:
    """Read the public keys of all nodes: one or two lines for each."""

    def read(_: str, lines: object) -> tuple[PublicKeys, ...]:
        entries = _list(lines)
        if not 1 <= len(entries) <= MOST_KEYS:
            raise UnitError(
                f"a list of {len(entries)} public keys",
                remedy="list the current keys, and during a rotation the next ones",
            )
        return tuple(_each(KeyLists, enumerate(entries), lambda _, entry: parse_line(entry)).values())

    return _each(KeyLists, _table(value).items(), read)


def _revocations(value: object) -> Mapping[str, str]:
    """Read the ids of revoked keys, with the reasons."""

    def read(key_id: str, reason: object) -> str:
        if not is_key_id(key_id):
            raise UnitError(f"{short(key_id)} is not the id of keys", remedy="the id is the second word of their line")
        return _text(reason)

    return _each(Revocations, _table(value).items(), read)


def _share(value: object) -> float:
    return parse_fraction(_text(value))


def _burst_length(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1e6:
        return float(value)
    raise UnitError(
        f"{short(value)} is not a mean length of bursts", remedy="write a number of packets from 1 to 1000000"
    )


def _reorder_ivl(value: object) -> int:
    row = Row("reorder_ivl", Unit.DURATION, 2 * MILLISECOND, 0, 60 * SECOND, (), "-", "")
    return int(_from_row(row)(value))


# Keys of a loss table: reader, example, meaning.
# fmt: off
IMPAIRMENT_KEYS: Mapping[str, tuple[Reader, str, str]] = {
    "loss": (_share, '"2%"', "Share of packets lost independently."),
    "burst_loss": (_share, '"1%"', "Share of packets lost in bursts."),
    "burst_length": (_burst_length, "8", "Mean length of a burst in packets."),
    "duplicate": (_share, '"1%"', "Share of packets that arrive twice. Only the simulator uses the key."),
    "reorder": (_share, '"1%"', "Share of packets that arrive late. Only the simulator uses the key."),
    "reorder_ivl": (_reorder_ivl, '"2ms"', "Extra delay of late packets."),
}
# fmt: on


def _impairment(value: object) -> Impairment:
    def read(key: str, item: object) -> Any:
        if key not in IMPAIRMENT_KEYS:
            raise UnitError(f"unknown key {key!r}", remedy=suggestion(key, IMPAIRMENT_KEYS))
        return IMPAIRMENT_KEYS[key][0](item)

    return Impairment(**_each(Impairment, _table(value).items(), read))


def _choice(choices: Iterable[str]) -> Reader:
    known = list(choices)

    def read(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        remedy = suggestion(value, known) if isinstance(value, str) else f"choose one of {', '.join(known)}"
        raise UnitError(f"{short(value)} is unknown", remedy=remedy)

    return read


_READERS: Mapping[Any, Reader] = {
    str: _text,
    int: _version,
    bool: _switch,
    Port: lambda value: _whole(value, 1, 65_535, "a port"),
    Count: lambda value: _whole(value, 0, MOST_NODES, "a number of nodes"),
    Duration: _from_row(_BUDGET),
    RoundTrip: _from_row(_ROUND_TRIP),
    Rate: _from_row(ROWS["txw_max_rte"]),
    CacheOctets: _from_row(ROWS["cache_bytes"]),
    CacheSeconds: _seconds_of(ROWS["cache_secs"]),
    RecordOctets: _from_row(ROWS["record_bytes"]),
    RecordSeconds: _seconds_of(ROWS["record_secs"]),
    SegmentOctets: _from_row(ROWS["record_segment_bytes"]),
    Host: parse_address,
    Interface: parse_interface,
    Profile: _choice(PROFILES),
    Overrides: _overrides,
    KeyLists: _key_lists,
    Revocations: _revocations,
    WindowTable: _window,
    AddressPool: parse_pool,
    Impairment: _impairment,
}


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    factories: list[tuple[Callable[[Any], bool], Callable[[Any], Hook]]] = [
        (attrs.has, lambda kind: _table_reader(kind, converter)),
        (_is_generic(tuple), lambda kind: _tuple_reader(kind, converter)),
        (_is_generic(Mapping), lambda kind: _named_reader(kind, converter)),
        (_is_generic(Literal), lambda kind: _hook(_choice(get_args(kind)))),
        (_is_enum, _enum_reader),
    ]
    for applies, factory in factories:
        converter.register_structure_hook_factory(applies, factory)
    for kind, reader in _READERS.items():
        if isinstance(kind, type):
            converter.register_structure_hook(kind, _hook(reader))
        else:  # a NewType
            converter.register_structure_hook_func(_is_exactly(kind), _hook(reader))
    return converter


def _is_generic(origin: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is origin


def _is_exactly(kind: Any) -> Callable[[Any], bool]:
    return lambda candidate: candidate is kind


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _hook(reader: Reader) -> Hook:
    return lambda value, _: reader(value)


def _table_reader(kind: type[attrs.AttrsInstance], converter: Converter) -> Hook:
    hidden: dict[str, Any] = {
        field.name: override(omit=True) for field in attrs.fields(kind) if field.name not in keys_of(kind)
    }
    generated = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **hidden)
    return lambda value, target: generated(_table(value), target)


def _tuple_reader(kind: Any, converter: Converter) -> Hook:
    item = get_args(kind)[0]
    reader = converter.get_structure_hook(item)
    return lambda value, _: tuple(_each(kind, enumerate(_list(value)), lambda _, entry: reader(entry, item)).values())


def _named_reader(kind: Any, converter: Converter) -> Hook:
    """Return a reader of tables by name, which also stores the name in each stream, segment or node."""
    item = get_args(kind)[1]
    reader = converter.get_structure_hook(item)

    def read(name: str, table: object) -> Any:
        return attrs.evolve(reader(table, item), name=name)

    return lambda value, _: _each(kind, _table(value).items(), read)


def _enum_reader(kind: type[enum.Enum]) -> Hook:
    read = _choice(str(member.value) for member in kind)
    return lambda value, _: kind(read(value))


CONVERTER = _converter()


@attrs.frozen
class ReadError:
    """One value that could not be read."""

    path: KeyPath
    message: str
    remedy: str
    is_unknown_key: bool = False


def read_errors_of(error: Exception, path: KeyPath = ()) -> Iterator[ReadError]:
    """Yield the single errors behind an error of the converter, one for each value."""
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from read_errors_of(inner, (*path, *_step_of(inner)))
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield ReadError(
                (*path, key), f"unknown key {key!r}", _unknown_key_remedy(key, error.cl), is_unknown_key=True
            )
    elif isinstance(error, UnitError):
        yield ReadError(path, error.message, error.remedy)
    else:
        raise error


def _step_of(error: BaseException) -> KeyPath:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return (note.name,)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()


def _unknown_key_remedy(key: str, table: type[attrs.AttrsInstance]) -> str:
    known = keys_of(table)
    if key in ROWS and "parameters" in known:
        return f"it is a parameter: write parameters = {{ {key} = ... }}"
    return suggestion(key, known)
