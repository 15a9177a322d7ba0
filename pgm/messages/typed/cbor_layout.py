"""Layout of a flat CBOR map: the octets before each value, which values of one producer share."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

MOST_FIELDS = 64  # of a layout; larger maps take the general path
MOST_CONSTANT = 1024  # octets between two values of a layout

INTEGERS = (0, 1)
OCTETS, TEXT, MAP, TAG, SIMPLE = 2, 3, 5, 6, 7  # major types (RFC 8949, 3.1)
_LIST = 4
_DIRECT = 24  # arguments below are in the head itself
WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}  # of the arguments behind the head
SKIPPED = -1  # value that no column takes


class _NotFlat(Exception):
    """Value that has no layout."""


@attrs.frozen
class CborLayout:
    """Keys of a flat map, each with the octets from the end of the former value to the begin of its value.

    `places` has the index of the field of each value, or `SKIPPED`.
    """

    constants: tuple[bytes, ...]
    places: tuple[int, ...]


def layout_of(payload: bytes, fields: Mapping[str, int]) -> CborLayout | None:
    """Return the layout of an untrusted value, with the places of its fields; None for a value that is no flat map."""
    try:
        return _layout_of(payload, fields)
    except (_NotFlat, IndexError, UnicodeDecodeError):
        return None


def _layout_of(payload: bytes, fields: Mapping[str, int]) -> CborLayout:
    major, count, at = _head(payload, 0)
    if major != MAP or not 0 < count <= MOST_FIELDS:
        raise _NotFlat
    constants: list[bytes] = []
    names: list[bytes] = []
    places: list[int] = []
    begin = 0
    for _ in range(count):
        key = at
        major = payload[at] >> 5
        if major not in (*INTEGERS, OCTETS, TEXT):
            raise _NotFlat
        at = _end(payload, at)
        name = payload[key:at]
        constants.append(payload[begin:at])
        if at - begin > MOST_CONSTANT:
            raise _NotFlat
        names.append(name)
        places.append(fields.get(_text(name), SKIPPED) if major == TEXT else SKIPPED)
        begin = at = _end(payload, at)
    if len(set(names)) < len(names) or len(set(places) - {SKIPPED}) < len(places) - places.count(SKIPPED):
        raise _NotFlat  # a repeated key, which the general path decides
    return CborLayout(tuple(constants), tuple(places))


def _text(item: bytes) -> str:
    _, size, begin = _head(item, 0)
    return item[begin : begin + size].decode()


def _head(payload: bytes, at: int) -> tuple[int, int, int]:
    """Return major type, argument, and the place behind the head. Raises `_NotFlat`, IndexError."""
    major, low = payload[at] >> 5, payload[at] & 31
    if low < _DIRECT:
        return major, low, at + 1
    width = WIDTHS.get(low)
    if width is None or at + 1 + width > len(payload):
        raise _NotFlat  # an indefinite length, or the end
    return major, int.from_bytes(payload[at + 1 : at + 1 + width], "big"), at + 1 + width


def _end(payload: bytes, at: int) -> int:
    """Return the place behind an item without parts. Raises `_NotFlat`, IndexError."""
    major, argument, at = _head(payload, at)
    if major == TAG:
        major, argument, at = _head(payload, at)
    if major in (_LIST, MAP, TAG):
        raise _NotFlat
    if major in (OCTETS, TEXT):
        at += argument
    if at > len(payload):
        raise _NotFlat
    return at
