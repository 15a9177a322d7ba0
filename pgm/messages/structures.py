"""Values of messages as objects of a type: dataclasses, attrs classes, and types of their fields, by cattrs.

Values come from a network. So nothing is converted by a call that could take much memory or time, such as `bytes(n)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from typing import Any, get_args, get_origin
from uuid import UUID

import cattrs
import numpy as np
from cattrs.errors import StructureHandlerNotFoundError
from cattrs.strategies import configure_union_passthrough

from pgm.errors import UsageError
from pgm.messages.objects import BadObject

_MOST_TEXT = 500  # characters of an error

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
    if not isinstance(value, str if issubclass(kind, np.datetime64) else (bool, int, float, complex)):
        raise _refuse(value, kind)
    return kind(value)


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) is np.ndarray


def _array(value: Any, kind: Any) -> Any:
    """Return an array of the item type that `kind` names: of an array, or of lists of numbers."""
    scalar: Any = next(iter(get_args(get_args(kind)[1])), None) if get_args(kind) else None
    dtype = np.dtype(scalar) if _is_scalar(scalar) and not scalar.__subclasses__() else None
    if isinstance(value, (list, tuple)):
        leaf = str if dtype is not None and dtype.kind == "M" else (bool, int, float, complex)
        _require_leaves(value, leaf)
    elif not isinstance(value, np.ndarray):
        raise _refuse(value, "array")
    return np.asarray(value, dtype)


def _require_leaves(values: list[Any] | tuple[Any, ...], leaf: Any) -> None:
    """Raise TypeError unless all items of nested lists are numbers, which take few octets each in an array."""
    for value in values:
        if isinstance(value, (list, tuple)):
            _require_leaves(value, leaf)
        elif not isinstance(value, leaf):
            raise _refuse(value, "number")
