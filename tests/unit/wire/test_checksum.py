"""The checksum of one packet and of whole trains, against the sum by the book."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire import checksum
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.train import Train
from tests.reference import TSI, checksum_of, data_packet, ones_complement_sum, sealed, without_checksum

packet_octets = st.binary(min_size=16, max_size=200)


@st.composite
def rows_of_octets(draw, least=16):
    count = draw(st.integers(1, 9))
    stride = draw(st.integers(least, 70))
    octets = draw(st.binary(min_size=count * stride, max_size=count * stride))
    return np.frombuffer(octets, np.uint8).reshape(count, stride).copy()


def swapped(residues):
    """Native-order residues as the book counts them: sums in network order, folded."""
    return [int(value) % 0xFFFF for value in np.asarray(residues).astype(np.uint16).byteswap()]


@pytest.mark.rfc("W-08", "W-09")
@given(packet=packet_octets)
def test_checksum_of_one_packet_is_the_one_by_the_book(packet):
    blank = without_checksum(packet)
    assert int.from_bytes(checksum.checksum(blank), "big") == checksum_of(packet)


@pytest.mark.rfc("W-08", "W-09")
@given(rows=rows_of_octets())
def test_checksums_of_a_train_are_those_of_its_packets(rows):
    """Odd lengths among them."""
    packets = [row.tobytes() for row in rows]
    checksum.fill(rows)
    assert [row.tobytes() for row in rows] == [sealed(packet) for packet in packets]


@pytest.mark.rfc("W-08")
@given(rows=rows_of_octets(least=1))
def test_residues_are_those_of_the_folded_sums_of_each_row(rows):
    assert swapped(checksum.residues(rows)) == [ones_complement_sum(row.tobytes()) % 0xFFFF for row in rows]


@pytest.mark.rfc("W-08")
@given(packet=packet_octets, at=st.integers(0, 8 * 200 - 1))
def test_every_single_bit_of_damage_is_detected(packet, at):
    good = sealed(packet)
    assert checksum.is_valid(good)
    damaged = bytearray(good)
    at %= 8 * len(good)
    damaged[at // 8] ^= 1 << at % 8
    assert not checksum.is_valid(bytes(damaged))
    rows = np.frombuffer(bytes(damaged), np.uint8).reshape(1, -1)
    assert checksum.residues(rows)[0] != 0


@pytest.mark.rfc("W-11")
@given(rows=rows_of_octets(least=20), data=st.data())
def test_patch_gives_what_a_new_sum_would(rows, data):
    """A patched 0 is 0xFFFF too."""
    checksum.fill(rows)
    # Past the field and on even offsets, as the callers do it.
    at = data.draw(st.integers(4, (rows.shape[1] - 2) // 2)) * 2
    width = 2 * data.draw(st.integers(1, (rows.shape[1] - at) // 2))
    old = rows[:, at : at + width].copy()
    new = data.draw(st.binary(min_size=old.size, max_size=old.size))
    rows[:, at : at + width] = np.frombuffer(new, np.uint8).reshape(old.shape)
    expected = rows.copy()
    checksum.fill(expected)
    checksum.patch(rows, old, at)
    assert rows.tobytes() == expected.tobytes()


@pytest.mark.rfc("W-11")
@given(packet=packet_octets, data=st.data())
def test_patched_field_gives_what_a_new_sum_would(packet, data):
    """The new octets may be more or fewer than the old ones."""
    at = data.draw(st.integers(4, len(packet) // 2)) * 2
    size = 2 * data.draw(st.integers(0, (len(packet) - at) // 2))
    new = data.draw(st.binary(max_size=20).map(lambda octets: octets[: len(octets) & ~1]))
    before = sealed(packet)
    after = packet[:at] + new + packet[at + size :]
    assert checksum.patched(before[6:8], packet[at : at + size], new) == checksum_of(after).to_bytes(2, "big")


@pytest.mark.rfc("W-11")
@given(rows=rows_of_octets(least=26), bit=st.integers(0, 8 * 26 - 1))
def test_patch_keeps_damage_elsewhere_visible(rows, bit):
    """What a relay changes must not bless what its memory lost."""
    checksum.fill(rows)
    at = 16 + bit // 8 % 4 + 6  # behind the patched field
    rows[:, at] ^= np.uint8(1 << bit % 8)
    old = rows[:, 20:22].copy()
    rows[:, 20:22] = 0x5A
    checksum.patch(rows, old, 20)
    assert (checksum.residues(rows) != 0).all()


@pytest.mark.rfc("W-09")
def test_computed_zero_is_sent_as_all_ones():
    packet = bytearray(without_checksum(data_packet(1, bytes(2))))
    packet[-2:] = (0xFFFF - ones_complement_sum(bytes(packet))).to_bytes(2, "big")
    assert ones_complement_sum(bytes(packet)) == 0xFFFF
    assert checksum.checksum(bytes(packet)) == b"\xff\xff"
    rows = np.frombuffer(bytes(packet), np.uint8).reshape(1, -1).copy()
    checksum.fill(rows)
    assert rows[0, 6:8].tobytes() == b"\xff\xff"
    items, rejects = Train.of(rows.tobytes()).parse_untrusted()
    assert len(items) == 1
    assert rejects == []


@pytest.mark.rfc("W-09", "W-11")
def test_patch_to_a_sum_of_zero_is_stored_as_all_ones():
    packet = bytearray(data_packet(1, bytes(2)))
    rows = np.frombuffer(bytes(packet), np.uint8).reshape(1, -1).copy()
    old = rows[:, -2:].copy()
    rest = ones_complement_sum(without_checksum(bytes(packet)))
    rows[0, -2:] = np.frombuffer((0xFFFF - rest).to_bytes(2, "big"), np.uint8)
    checksum.patch(rows, old, rows.shape[1] - 2)
    assert rows[0, 6:8].tobytes() == b"\xff\xff"


@pytest.mark.rfc("W-10")
def test_zero_is_accepted_on_control_and_refused_on_data():
    spmr = without_checksum(encode(Spmr(tsi=TSI, data_port=7500)))
    items, rejects = Train.of(spmr).parse_untrusted()
    assert [type(item) for item in items] == [Spmr]
    assert rejects == []
    items, rejects = Train.of(without_checksum(data_packet(1, b"x"))).parse_untrusted()
    assert items == []
    assert rejects == ["no_checksum"]


@pytest.mark.rfc("W-08")
@pytest.mark.parametrize("stride", [16, 17, 18, 19, 64, 65, 66, 67])
def test_longest_trains_do_not_overflow_the_sums(stride):
    """All ones give the largest sums there are."""
    rows = np.full((3, 65_507 - stride), 0xFF, np.uint8)
    assert swapped(checksum.residues(rows)) == [ones_complement_sum(rows[0].tobytes()) % 0xFFFF] * 3
