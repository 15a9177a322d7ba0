"""Records of tapes: what is written is read back, and damage ends a tape and raises nothing."""

import contextlib
import enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import TapeError
from pgm.tape import records
from pgm.tape.records import GivenRows, TapeRecordKind

KINDS = st.sampled_from([kind for kind in TapeRecordKind if kind is not TapeRecordKind.RECEIVE])
ENTRIES = st.lists(
    st.tuples(
        KINDS, st.integers(0, 255), st.integers(0, 65_535), st.integers(-(1 << 63), (1 << 63) - 1),
        st.integers(0, (1 << 32) - 1), st.binary(max_size=80),
    ),
    max_size=8,
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.binary(max_size=40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def octets_of(entries: list[tuple[TapeRecordKind, int, int, int, int, bytes]]) -> bytes:
    octets = b""
    for kind, flag, peer, now_ns, fold, body in entries:
        record = records.build(kind, (flag, peer), now_ns, fold, body)
        octets += record + records.padding(len(record))
    return octets


def read(octets: bytes) -> list[tuple[TapeRecordKind, int, int, int, int, bytes]]:
    return [
        (one.kind, one.flag, one.peer, one.now_ns, one.fold, bytes(one.body))
        for one in records.read_untrusted(memoryview(octets))
    ]


@given(ENTRIES)
def test_records_written_are_read_back(entries):
    assert read(octets_of(entries)) == entries


@given(ENTRIES, st.data())
def test_records_cut_anywhere_are_read_up_to_the_last_whole_one(entries, data):
    octets = octets_of(entries)
    found = read(octets[: data.draw(st.integers(0, len(octets)))])
    assert found == entries[: len(found)]


@given(ENTRIES, st.data())
def test_records_with_a_wrong_octet_are_read_up_to_it(entries, data):
    octets = bytearray(octets_of(entries))
    if octets:
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at] ^= data.draw(st.integers(1, 255))
    found = read(bytes(octets))
    assert found == entries[: len(found)]


@given(st.binary(max_size=400))
def test_records_of_random_octets_raise_nothing(octets):
    read(octets)


@given(VALUES)
def test_values_encoded_are_decoded(value):
    assert records.decode_untrusted(records.encode(value)) == value


@given(st.binary(max_size=60))
def test_values_of_random_octets_raise_tape_errors_alone(octets):
    with contextlib.suppress(TapeError):
        records.decode_untrusted(octets)


def test_values_keep_arrays_rows_views_and_enums():
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)

    class Cause(enum.Enum):
        FIN = "fin"

    array, given_rows, payloads, cause = records.decode_untrusted(
        records.encode([rows, GivenRows(rows), [memoryview(b"ab"), bytearray(b"c")], Cause.FIN])
    )
    assert np.array_equal(array, rows)
    assert (given_rows.count, given_rows.octets) == (3, 4)
    written = np.zeros((2, 4), np.uint8)
    given_rows.write(written, 1)
    assert np.array_equal(written, rows[1:])
    assert payloads == [b"ab", b"c"]
    assert cause == "fin"


def test_values_without_a_form_are_refused():
    with pytest.raises(TapeError):
        records.encode(object())


@given(st.binary(min_size=1, max_size=90), st.integers(0, 500), st.integers(1, 50), st.binary(max_size=6))
def test_trains_written_are_read_back(octets, offset, stride, part):
    body = records.TRAIN.pack(7, 1000, offset, len(octets), stride, 900, 100, len(part)) + part + octets
    train = records.train_untrusted(memoryview(body))
    assert (bytes(train.octets), train.offset, train.stride, train.part) == (octets, offset, stride, part)


@pytest.mark.parametrize(
    ("offset", "end", "room", "stride"), [(990, 0, 0, 1), (0, 1001, 0, 1), (0, 900, 101, 1), (0, 0, 0, 0)]
)
def test_trains_outside_of_their_chunk_are_refused(offset, end, room, stride):
    body = records.TRAIN.pack(7, 1000, offset, 20, stride, end, room, 0) + bytes(20)
    with pytest.raises(TapeError):
        records.train_untrusted(memoryview(body))
