"""Building data packets: ODATA for new payloads, RDATA and first sendings of what was kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.window.reassembly import fragment_options
from pgm.wire import checksum
from pgm.wire.data_packets import as_rdata, build_first_sending, build_rdata, write_odata
from pgm.wire.formats import FRAGMENT_OCTETS, PacketType
from pgm.wire.options import CurrTgsize, Fin, Fragment, encode_options
from pgm.wire.sequence_numbers import MASK
from pgm.wire.single_odata import SingleOdataWriter
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, checksum_of, data_packet, sealed
from tests.strategies import ports, tsis, u32s

T = PacketType
firsts = st.one_of(st.integers(0, 1 << 40), st.integers((1 << 32) - 8, (1 << 32) + 8), u32s)


@pytest.mark.rfc("W-05", "W-08", "W-14", "W-15", "W-17", "SRC-06")
@given(
    tsi=tsis, port=ports, first=firsts, trail=firsts, count=st.integers(1, 8), size=st.integers(0, 40), data=st.data()
)
def test_odata_is_what_the_tables_say(tsi, port, first, trail, count, size, data):
    payloads = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(count)]
    rows = np.full((count, 24 + size), 0xEE, np.uint8)
    rows[:, 24:] = np.frombuffer(b"".join(payloads), np.uint8).reshape(count, size)
    write_odata(rows, tsi=tsi, data_port=port, first=first, trail=trail)
    for index, payload in enumerate(payloads):
        expected = data_packet(first + index, payload, trail=trail, tsi=tsi, data_port=port)
        assert rows[index].tobytes() == expected


@pytest.mark.rfc("W-08", "W-15")
@given(tsi=tsis, port=ports, sqn=firsts, trail=firsts, payload=st.binary(max_size=2000))
def test_a_packet_made_alone_is_the_same(tsi, port, sqn, trail, payload):
    expected = data_packet(sqn, payload, trail=trail, tsi=tsi, data_port=port)
    for one in (payload, bytearray(payload), memoryview(payload)):
        assert SingleOdataWriter(tsi, port).packet(one, sqn, trail) == expected


def test_odata_octets():
    """Covers E-01, table 1.3: fixed octets, checksum by the book."""
    rows = np.zeros((1, 26), np.uint8)
    rows[0, 24:] = (0xAB, 0xCD)
    write_odata(rows, tsi=bytes.fromhex("0102030405061d4c"), data_port=0x2233, first=7, trail=5)
    assert rows[0].tobytes() == sealed(bytes.fromhex("1d4c22330400000001020304050600020000000700000005abcd"))


@pytest.mark.rfc("W-05", "W-06")
@pytest.mark.parametrize(("option", "flags"), [(Fin(), 0x01), (CurrTgsize(4), 0x01)])
def test_options_of_odata_are_marked(option, flags):
    """Neither matters to network elements on ODATA."""
    octets, network = encode_options((option,), T.ODATA)
    rows = np.zeros((3, 24 + len(octets) + 5), np.uint8)
    write_odata(rows, tsi=TSI, data_port=DATA_PORT, first=1, trail=1, option_octets=octets, network_significant=network)
    assert set(rows[:, 5]) == {flags}
    for index in range(3):
        assert rows[index].tobytes() == data_packet(1 + index, bytes(5), trail=1, options=(option,))


@pytest.mark.rfc("W-06")
def test_network_significant_options_of_data_are_marked():
    octets, _ = encode_options((Fin(),), T.ODATA)
    rows = np.zeros((1, 24 + len(octets)), np.uint8)
    write_odata(rows, tsi=TSI, data_port=DATA_PORT, first=1, trail=1, option_octets=octets, network_significant=True)
    assert rows[0, 5] == 0x03


@pytest.mark.rfc("SRC-47", "W-34")
@given(first=firsts, start=st.integers(0, 50), count=st.integers(1, 8), size=st.integers(1, 30))
def test_fragments_are_numbered_by_octets(first, start, count, size):
    """All name the first sqn and the length, each its own offset."""
    rows = np.zeros((count, 24 + FRAGMENT_OCTETS + size), np.uint8)
    offsets = range(start * size, (start + count) * size, size)
    options = fragment_options(first - start, 100 * size)
    write_odata(
        rows, tsi=TSI, data_port=DATA_PORT, first=first, trail=0, option_octets=options, fragment_offsets=offsets
    )
    for index in range(count):
        fragment = Fragment((first - start) & MASK, (start + index) * size, 100 * size)
        assert rows[index].tobytes() == data_packet(first + index, bytes(size), options=(fragment,))


def kept_run(packets):
    items, rejects = Train.of(b"".join(packets), len(packets[0])).parse_untrusted()
    assert rejects == []
    return items[0].run(items[0].wire_sqn)


@pytest.mark.rfc("W-08", "W-11", "W-31", "SRC-07")
@given(trail=firsts, old_trail=u32s, first=u32s, count=st.integers(1, 6), size=st.integers(0, 9), fin=st.booleans())
def test_rdata_differs_from_odata_in_type_trail_and_checksum(trail, old_trail, first, count, size, fin):
    options = (Fin(),) if fin else ()
    packets = [data_packet(first + i, bytes([i]) * size, trail=old_trail + i, options=options) for i in range(count)]
    run = kept_run(packets)
    before = run.buffer.tobytes()
    rows = build_rdata([run], trail)
    for index in range(count):
        expected = data_packet(first + index, bytes([index]) * size, trail=trail, options=options, kind=T.RDATA)
        assert rows[index].tobytes() == expected
    assert run.buffer.tobytes() == before  # what was kept is never written


@pytest.mark.rfc("W-31")
@given(kind=st.sampled_from([T.ODATA, T.RDATA]), count=st.integers(1, 4))
def test_repairs_can_be_repaired_and_sent_first(kind, count):
    """A cache holds ODATA and RDATA alike; either may leave as either."""
    packets = [data_packet(5 + i, b"abc", trail=3, kind=kind) for i in range(count)]
    run = kept_run(packets)
    assert build_rdata([run], 4).tobytes() == b"".join(
        data_packet(5 + i, b"abc", trail=4, kind=T.RDATA) for i in range(count)
    )
    assert build_first_sending(run).tobytes() == b"".join(data_packet(5 + i, b"abc", trail=3) for i in range(count))


@pytest.mark.rfc("W-11")
@given(at=st.integers(24, 40), bit=st.integers(0, 7), trail=u32s)
def test_damage_to_kept_octets_stays_visible_in_repairs(at, bit, trail):
    """The checksum is patched, so the receiver finds what our memory lost."""
    run = kept_run([data_packet(5, bytes(17), trail=1), data_packet(6, bytes(17), trail=1)])
    octets = bytearray(run.rows.tobytes())
    octets[at] ^= 1 << bit
    damaged = type(run)(run.first, run.count, np.frombuffer(octets, np.uint8), 0, run.stride, run.payload_at)
    alone = build_rdata([damaged.part(5, 6)], trail)
    assert alone.tobytes() == build_rdata([damaged], trail)[0].tobytes()
    for rows in (build_rdata([damaged], trail), build_first_sending(damaged)):
        assert (checksum.residues(rows) != 0).tolist() == [True, False]
        items, rejects = Train.of(rows.reshape(-1), rows.shape[1]).parse_untrusted()
        assert rejects == ["checksum"]
        assert [item.wire_sqn for item in items] == [6]


@pytest.mark.rfc("W-09", "W-11")
def test_a_repair_whose_sum_is_zero_carries_all_ones():
    for trail in range(1 << 16):
        packet = data_packet(5, b"\0\0", trail=trail, kind=T.RDATA)
        if packet[6:8] == b"\xff\xff":
            break
    run = kept_run([data_packet(5, b"\0\0", trail=1)])
    assert build_rdata([run], trail)[0].tobytes() == packet
    assert checksum_of(packet) == 0xFFFF


@pytest.mark.rfc("W-11", "W-31")
@given(trail=u32s, rows=st.lists(st.binary(min_size=27, max_size=27), min_size=1, max_size=60))
def test_repairs_are_the_same_whether_they_are_few_or_many(trail, rows):
    """Whatever is kept: nothing but type, trail and checksum changes, and what was wrong stays wrong by as much."""
    kept = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
    many = as_rdata(np.concatenate([kept, np.zeros((60, 27), np.uint8)]), trail)[: len(rows)]
    few = np.concatenate([as_rdata(row.reshape(1, -1).copy(), trail) for row in kept])
    assert many.tobytes() == few.tobytes() == as_rdata(kept.copy(), trail).tobytes()
    assert (checksum.residues(many) == checksum.residues(kept)).all()
    assert (checksum.stored(many) != 0).all()
