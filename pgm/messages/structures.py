"""Values of messages as objects of a type: dataclasses, attrs classes, and types of their fields, by cattrs.

Values come from a network. So nothing is converted by a call that could take much memory or time, such as `bytes(n)`.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from typing import Any, get_args, get_origin
from uuid import UUID

import cattrs
import numpy as np
from cattrs.cols import is_any_set, is_sequence, list_structure_factory
from cattrs.errors import StructureHandlerNotFoundError
from cattrs.strategies import configure_union_passthrough

from pgm.errors import UsageError
from pgm.messages.objects import BadObject

_MOST_TEXT = 500  # characters of an error
_NUMBERS = (bool, int, float, complex)
# Python's types of a value, by numpy's type: a number that would be cut is refused.
_LEAVES: tuple[tuple[type, tuple[type, ...]], ...] = (
    (np.datetime64, (str,)),
    (np.bool_, (bool,)),
    (np.integer, (int,)),
    (np.floating, (float, int)),
    (np.generic, _NUMBERS),
)
_ITEMS = (list, tuple, set, frozenset)  # what becomes a list, a tuple or a set: text and octets have items too

# Types that CBOR has: a value of another type is an error.
_SAME: dict[type, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    complex: (complex, float, int),
    str: (str,),
    bytes: (bytes,),
    Decimal: (Decimal,),
    Fraction: (Fraction,),
}
# Types that are themselves in CBOR, or text; each with the maker from text.
_OF_TEXT: dict[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    IPv4Address: IPv4Address,
    IPv6Address: IPv6Address,
}


def structure_untrusted(value: Any, kind: Any) -> Any:
    """Return a value as an object of type `kind`. Raises `BadObject` if it does not fit."""
    try:
        return _converter().structure(value, kind)
    except Exception as error:  # constructors and validators of the application raise what they like
        text = "; ".join(cattrs.transform_error(error, path="value")) or type(error).__name__
        raise BadObject(text[:_MOST_TEXT]) from error


def require_structure(kind: Any) -> None:
    """Raise `UsageError` for a type that no value can become. None stands for no type."""
    if kind is None:
        return
    try:
        _converter().get_structure_hook(kind)
    except (StructureHandlerNotFoundError, NameError, TypeError) as error:
        raise UsageError(
            f"no value of a message becomes a {kind!r}: {error}",
            remedy="give a dataclass, an attrs class, or a type of plain values",
        ) from error


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for kind, kinds in _SAME.items():
        converter.register_structure_hook(kind, functools.partial(_same, kinds))
    for kind, make in _OF_TEXT.items():
        converter.register_structure_hook(kind, functools.partial(_of_text, make))
    converter.register_structure_hook_func(_is_scalar, _scalar)
    converter.register_structure_hook_func(_is_array, _array)
    converter.register_structure_hook_factory(_has_items, _items_hook)
    configure_union_passthrough(bool | int | float | str | bytes | None, converter)
    return converter


def _refuse(value: Any, kind: Any) -> TypeError:
    return TypeError(f"a {type(value).__name__} is no {getattr(kind, '__name__', kind)}")


def _same(kinds: tuple[type, ...], value: Any, kind: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise _refuse(value, kind)
    return value if isinstance(value, kind) else kind(value)


def _of_text(make: Callable[[str], Any], value: Any, kind: type) -> Any:
    if isinstance(value, str):
        return make(value)
    if not isinstance(value, kind):
        raise _refuse(value, kind)
    return value


def _is_scalar(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, (np.number, np.bool_, np.datetime64))


def _scalar(value: Any, kind: Any) -> Any:
    _require_leaves([value], kind)
    return kind(value)


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) is np.ndarray


def _array(value: Any, kind: Any) -> Any:
    """Return an array of the item type that `kind` names: of an array, or of lists of numbers."""
    scalar: Any = next(iter(get_args(get_args(kind)[1])), None) if get_args(kind) else None
    dtype = np.dtype(scalar) if _is_scalar(scalar) and not scalar.__subclasses__() else None
    if isinstance(value, (list, tuple)):
        _require_leaves(value, np.generic if dtype is None else dtype.type)
        return np.array(value, dtype)
    if not isinstance(value, np.ndarray):
        raise _refuse(value, "array")
    return value if dtype is None else value.astype(dtype, casting="safe", copy=False)


def _require_leaves(values: list[Any] | tuple[Any, ...], kind: type) -> None:
    """Raise TypeError unless all items of nested lists fit a type of numpy, and take few octets each in an array."""
    leaf = next(leaves for base, leaves in _LEAVES if issubclass(kind, base))
    for value in values:
        if isinstance(value, (list, tuple)):
            _require_leaves(value, kind)
        elif not isinstance(value, leaf) or (isinstance(value, bool) and bool not in leaf):
            raise _refuse(value, kind)


def _has_items(kind: Any) -> bool:
    return is_sequence(kind) or is_any_set(kind) or get_origin(kind) is tuple


def _items_hook(kind: Any, converter: cattrs.BaseConverter) -> Callable[[Any, Any], Any]:
    """Return the hook of a type of lists, tuples or sets."""
    origin: Any = get_origin(kind) or kind
    make: Any = next((made for made in (list, tuple, set, frozenset, deque) if origin is made), None)
    if make is None:
        make = frozenset if is_any_set(kind) else list
    parts = get_args(kind)
    if origin is tuple and parts and parts[-1] is not ...:
        hooks = [converter.get_structure_hook(part) for part in parts]
        return functools.partial(_items, lambda value, _: _parts(value, parts, hooks), make)
    return functools.partial(_items, list_structure_factory(kind, converter), make)


def _items(structure: Callable[[Any, Any], Any], make: Callable[[Any], Any], value: Any, kind: Any) -> Any:
    if not isinstance(value, _ITEMS):
        raise _refuse(value, kind)
    return make(structure(value, kind))


def _parts(value: Any, kinds: tuple[Any, ...], hooks: Sequence[Callable[[Any, Any], Any]]) -> list[Any]:
    if len(value) != len(kinds):
        raise TypeError(f"{len(value)} items are not {len(kinds)}")
    return [hook(item, kind) for hook, item, kind in zip(hooks, value, kinds, strict=True)]
