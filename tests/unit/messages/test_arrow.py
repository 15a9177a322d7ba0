"""Arrow tables as messages: round trips, and refusal of tables that need more memory than a message may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.messages.objects import ARROW, ArrowCodec, BadObject
from pgm.units import KIB, MIB

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

TABLE = pa.table({
    "number": pa.array(range(1000), pa.int64()),
    "text": [f"row {number}" if number % 3 else None for number in range(1000)],
    "kind": pa.array(["bid", "ask"] * 500).dictionary_encode(),
})  # fmt: skip


def packed(table, compression, rows=100):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_packed_or_not_a_table_comes_back(compression):
    assert ARROW.decode(packed(TABLE, compression)).equals(TABLE)
    assert ARROW.decode(ARROW.encode(TABLE)).equals(TABLE)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_arrow_oversized_table_is_refused_before_unpacking(compression):
    bomb = packed(pa.table({"zeros": np.zeros(9 * MIB, np.int64)}), compression, rows=MIB)
    assert len(bomb) < MIB
    before = pa.total_allocated_bytes()
    with pytest.raises(BadObject, match=r"75497472 octets when unpacked, of 67108864"):
        ARROW.decode(bomb)
    assert pa.total_allocated_bytes() == before
    assert ArrowCodec(most_octets=80 * MIB).decode(bomb).num_rows == 9 * MIB


def test_a_dictionary_counts_too_and_so_do_rows_that_take_nothing():
    names = pa.array([f"{number:01000}" for number in range(1000)]).dictionary_encode()
    with pytest.raises(BadObject, match="when unpacked"):
        ArrowCodec(most_octets=100 * KIB).decode(packed(pa.table({"names": names}), "zstd"))
    few = ARROW.encode(pa.RecordBatch.from_arrays([pa.nulls(77_777)], ["nothing"]))
    octets = few.replace((77_777).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little"))
    assert len(octets) < KIB
    with pytest.raises(BadObject, match="1099511627776 rows"):
        ARROW.decode(octets)


GOOD = [packed(TABLE, "zstd"), packed(TABLE, None), ARROW.encode(TABLE)]


@given(
    st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=8), st.booleans()
)
def test_damaged_octets_are_a_table_or_refused(octets, changes, is_cut):
    damaged = bytearray(octets)
    for at, value in changes:
        damaged[at % len(damaged)] = value
    before = pa.total_allocated_bytes()
    try:
        table = ArrowCodec(most_octets=MIB).decode(bytes(damaged[: len(damaged) // 2] if is_cut else damaged))
    except BadObject:
        return
    assert table.num_rows <= 8 * MIB
    assert pa.total_allocated_bytes() - before <= 2 * MIB
