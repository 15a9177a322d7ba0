"""Values in CBOR: objects with fields, numpy and times go out as plain values, and come back by a type."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any

import attrs
import cbor2
import numpy as np
import numpy.typing as npt
import pytest

from pgm.errors import UsageError
from pgm.messages.objects import CBOR, BadObject
from pgm.messages.structures import require_structure, structure_untrusted

NAIVE = datetime(2026, 3, 1, 12, 30, 0, 5)
KEY = uuid.UUID(int=7)


class Side(enum.Enum):
    BUY = "buy"


@dataclasses.dataclass(frozen=True)
class Level:
    price: float
    size: int = 1


@attrs.frozen
class Order:
    key: uuid.UUID
    at: datetime
    side: Side
    levels: list[Level]
    limit: Decimal | None
    number: np.int32
    weights: npt.NDArray[np.float32]
    day: date = date(2026, 1, 1)
    host: IPv4Address = IPv4Address("10.0.0.1")
    note: str | int | None = None


def there_and_back(value: Any) -> Any:
    return CBOR.decode(CBOR.encode(value))


def test_attrs_and_dataclasses_come_back_by_their_type() -> None:
    order = Order(
        KEY, NAIVE, Side.BUY, [Level(1.5), Level(2.0, 3)], Decimal("1.10"), np.int32(-4), np.arange(3, dtype=np.float32)
    )
    got = structure_untrusted(there_and_back(order), Order)
    assert isinstance(got, Order)
    fields = {field.name for field in attrs.fields(Order)} - {"weights"}
    assert all(getattr(got, name) == getattr(order, name) for name in fields)
    assert type(got.number) is np.int32
    assert got.weights.dtype == np.float32
    assert got.weights.tolist() == [0, 1, 2]


def test_objects_without_a_type_are_tables_of_their_fields() -> None:
    assert there_and_back([Level(1.5), {"a": Level(2.0, 3)}]) == [
        {"price": 1.5, "size": 1},
        {"a": {"price": 2.0, "size": 3}},
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (NAIVE, "2026-03-01T12:30:00.000005"),
        (NAIVE.replace(tzinfo=UTC), NAIVE.replace(tzinfo=UTC)),
        ({"at": NAIVE, "set": {1, 2}}, {"at": "2026-03-01T12:30:00.000005", "set": {1, 2}}),
        (KEY, KEY),
        (np.float32(0.5), 0.5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.datetime64("2026-03-01T12:30:00.000000001"), "2026-03-01T12:30:00.000000001"),
        (np.array(["2026-03-01"], "datetime64[D]"), ["2026-03-01"]),
        (np.array([True, False]), [True, False]),
        (np.array([["a", "b"]]), [["a", "b"]]),
        (Side.BUY, "buy"),
    ],
)
def test_value_has_a_plain_form(value: Any, plain: Any) -> None:
    got = there_and_back(value)
    assert type(got) is type(plain) or isinstance(plain, datetime)
    assert got == plain


@pytest.mark.parametrize("name", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), (), (1, 0, 2)])
def test_array_comes_back_as_an_array(name: str, order: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).astype(order + name).reshape(shape)
    got = there_and_back({"a": array})["a"]
    assert got.dtype == array.dtype.newbyteorder("<")
    assert got.shape == shape
    assert got.tolist() == array.tolist()


def test_array_has_the_octets_of_rfc_8746() -> None:
    """The first example is that of RFC 8746, 2.1, as little-endian; the second has its dimensions (3.1.1)."""
    assert CBOR.encode(np.array([1, 256], "<u2")) == bytes.fromhex("d845 44 0100 0001")
    assert CBOR.encode(np.array([[2, 4, 8], [4, 16, 256]], ">u2")) == bytes.fromhex(
        "d828 82 82 02 03 d845 4c 0200 0400 0800 0400 1000 0001"
    )
    big_endian = bytes.fromhex("d828 82 82 02 03 d841 4c 0002 0004 0008 0004 0010 0100")
    assert CBOR.decode(big_endian).tolist() == [[2, 4, 8], [4, 16, 256]]


@pytest.mark.parametrize(
    "value",
    [
        cbor2.CBORTag(69, b"123"),
        cbor2.CBORTag(64, "text"),
        cbor2.CBORTag(64, 10**6),
        cbor2.CBORTag(40, [[2, 2], cbor2.CBORTag(64, b"123")]),
        cbor2.CBORTag(40, 5),
        cbor2.CBORTag(40, [[1] * 100, cbor2.CBORTag(64, b"1")]),
        {"deep": [cbor2.CBORTag(40, [["a"], 1, 2])]},
    ],
)
def test_array_that_is_none_is_a_bad_object(value: Any) -> None:
    with pytest.raises(BadObject):
        CBOR.decode(cbor2.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [np.timedelta64(1, "s")],
        np.timedelta64(1, "ns"),
        np.array([1], "timedelta64[ns]"),
        {"a": {Level(1.0): object()}},
        lambda: 0,
    ],
)
def test_value_that_is_not_known_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="that CBOR does not know"):
        CBOR.encode(value)


def test_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = [NAIVE]
    value.append(value)
    with pytest.raises(UsageError):
        CBOR.encode(value)


@attrs.frozen
class Other:
    octets: bytes
    count: int = 0
    names: list[str] = attrs.Factory(list)
    array: npt.NDArray[np.float64] | None = None
    small: npt.NDArray[np.int32] | None = None
    number: np.int32 = np.int32(0)
    pair: tuple[str, str] = ("", "")
    letters: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        [],
        {},
        {"octets": 10**12},  # bytes(10 ** 12) would take that much memory
        {"octets": "text"},
        {"octets": b"", "count": "1"},
        {"octets": b"", "count": 1.5},
        {"octets": b"", "count": True},
        {"octets": b"", "names": "abc"},
        {"octets": b"", "names": [1]},
        {"octets": b"", "pair": "ab"},
        {"octets": b"", "pair": ["a"]},
        {"octets": b"", "letters": "ab"},
        {"octets": b"", "small": [2**40]},
        {"octets": b"", "small": [1.5]},
        {"octets": b"", "small": np.array([2**40])},
        {"octets": b"", "number": 2**40},
        {"octets": b"", "number": float("nan")},
        {"octets": b"", "number": True},
        {"octets": b"", "array": ["a", "b" * 1000]},
        {"octets": b"", "array": [[1], [1, 2]]},
        {"octets": b"", "array": 10**9},
    ],
)
def test_value_that_does_not_fit_the_type_is_a_bad_object(value: Any) -> None:
    with pytest.raises(BadObject):
        structure_untrusted(there_and_back(value), Other)


def test_lists_of_numbers_become_arrays_of_their_type() -> None:
    got = structure_untrusted({"octets": b"1", "array": [[1, 2], [3, 4]]}, Other)
    assert got.array.dtype == np.float64
    assert got.array.tolist() == [[1, 2], [3, 4]]
    assert structure_untrusted(["2026-03-01"], npt.NDArray[np.datetime64])[0] == np.datetime64("2026-03-01")
    assert structure_untrusted([True], np.ndarray).dtype == np.bool_


def test_lists_become_the_collection_of_a_type() -> None:
    value = {"octets": b"1", "pair": ["a", "b"], "letters": ["a"], "small": np.array([7], np.int16)}
    got = structure_untrusted(there_and_back(value), Other)
    assert (got.pair, got.letters) == (("a", "b"), {"a"})
    assert got.small.dtype == np.int32
    assert structure_untrusted([1, 2], tuple[int, ...]) == (1, 2)
    assert structure_untrusted([1], Sequence[int]) == [1]
    assert structure_untrusted({1}, list[int]) == [1]
    assert structure_untrusted([1], deque[int]) == deque([1])


def test_plain_types_are_types_too() -> None:
    assert structure_untrusted({"a": [1]}, dict[str, list[int]]) == {"a": [1]}
    assert structure_untrusted("2026-03-01T00:00:00", datetime) == datetime(2026, 3, 1)
    assert structure_untrusted(str(KEY), uuid.UUID) == KEY
    assert structure_untrusted(1, float) == 1.0


def test_a_type_that_no_value_becomes_is_refused() -> None:
    class Plain:
        """Class without fields."""

        def __init__(self, value: int) -> None:
            self.value = value

    require_structure(Order)
    require_structure(None)
    with pytest.raises(UsageError, match="dataclass"):
        require_structure(Plain)
