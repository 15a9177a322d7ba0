"""Parity packets and parity requests: numbering, and every octet of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire.formats import OPTIONS_NETWORK, OPTIONS_PARITY, OPTIONS_PRESENT, OPTIONS_VAR_PKTLEN, PacketType
from pgm.wire.options import Fin, Fragment, ParityGrp, find
from pgm.wire.parity import (
    MOST_EXTRA_OCTETS,
    NO_FRAGMENT,
    ParityPacket,
    build_parity,
    counts_of,
    encoded_fragment,
    fragment_of_encoded,
    group_of,
    read_parity,
    request_sqn,
    requested,
)
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, data_packet

T = PacketType
SIZES = st.sampled_from([2, 8, 64, 128])


def built(packet: ParityPacket, size: int, kind: PacketType = T.RDATA, **more: object) -> bytes:
    return build_parity(kind, packet, tsi=TSI, data_port=DATA_PORT, size=size, trail=7, **more)


@pytest.mark.rfc("FEC-05", "FEC-07", "FEC-10")
@given(
    SIZES,
    st.integers(0, 1 << 40),
    st.integers(0, 300),
    st.binary(max_size=50),
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.binary(min_size=13, max_size=13)),
)
def test_parity_packet_built_is_read_back(size, number, index, payload, is_variable, is_short, fragment):
    actual = size - 1 if is_short else None
    packet = ParityPacket(number * size, index, payload, is_variable, actual, fragment)
    octets = built(packet, size)
    items, rejects = Train.of(octets).parse_untrusted()
    assert not rejects
    (item,) = items
    assert (item.tsi, item.data_port, item.parity, item.type) == (TSI, DATA_PORT, True, T.RDATA)
    assert item.wire_sqn == (number * size + index % size) & 0xFFFFFFFF
    assert read_parity(item, number * size + index % size, size) == [packet]
    more = find(item.options, ParityGrp)
    assert (more.group if more else 0) == index // size
    assert len(octets) <= 24 + len(payload) + MOST_EXTRA_OCTETS - 2


@pytest.mark.rfc("FEC-05", "FEC-10")
def test_the_flags_of_a_parity_packet():
    plain = built(ParityPacket(64, 3, b"abc", False), 8)
    assert plain[4:6] == bytes([T.RDATA, OPTIONS_PARITY])
    assert plain[16:24] == bytes.fromhex("00000043 00000007")
    variable = built(ParityPacket(64, 3, b"abc", True), 8, T.ODATA)
    assert variable[4:6] == bytes([T.ODATA, OPTIONS_PARITY | OPTIONS_VAR_PKTLEN])
    short = built(ParityPacket(64, 3, b"abc", False, actual=5), 8)
    assert short[5] == OPTIONS_PARITY | OPTIONS_PRESENT | OPTIONS_NETWORK
    assert short[24:36] == bytes.fromhex("0004000c 8a080000 00000005")
    later = built(ParityPacket(64, 19, b"abc", False), 8)
    assert later[16:20] == bytes.fromhex("00000043")
    assert later[24:36] == bytes.fromhex("0004000c 89080000 00000002")


@pytest.mark.rfc("FEC-11")
def test_an_encoded_option_keeps_its_head_and_says_f():
    octets = built(ParityPacket(64, 3, b"abc", False, fragment=bytes(range(0x80, 0x8D))), 8)
    assert octets[24:44] == bytes.fromhex("00040014 8110 04 80 8182838485868788898a8b8c")


@pytest.mark.rfc("FEC-12")
def test_the_first_option_of_a_type_counts_and_none_is_none():
    first, second = Fragment(1, 2, 3), Fragment(4, 5, 6)
    packet = data_packet(1, b"x", options=(Fin(), first, second))
    assert fragment_of_encoded(encoded_fragment(packet, len(packet) - 1)) == first
    assert encoded_fragment(data_packet(1, b"x", options=(Fin(),)), 32) is None
    assert fragment_of_encoded(NO_FRAGMENT) is None


@pytest.mark.rfc("FEC-13")
def test_marks_of_the_ends_are_on_parity_too():
    items, _ = Train.of(built(ParityPacket(0, 0, b"x", False), 8, marks=(Fin(),))).parse_untrusted()
    assert find(items[0].options, Fin) == Fin()


@pytest.mark.rfc("FEC-03", "FEC-08")
@given(SIZES, st.integers(0, 1 << 40), st.data())
def test_a_request_is_group_and_count(size, number, data):
    count = data.draw(st.integers(1, size))
    sqn = request_sqn(number * size, count)
    assert sqn % size == count - 1
    assert requested(sqn, size) == (number * size, count)
    assert group_of(sqn, size) == number * size


def test_of_several_counts_for_a_group_the_largest_counts():
    assert counts_of([8 + 1, 16 + 0, 8 + 4], 8) == [(8, 5), (16, 1)]


def test_parity_packets_that_lie_together_are_read_one_by_one():
    packets = [ParityPacket(8, at, bytes([at]) * 9, False) for at in range(3)]
    octets = b"".join(built(packet, 8) for packet in packets)
    (item,), rejects = Train.of(octets, len(octets) // 3).parse_untrusted()
    assert not rejects
    assert read_parity(item, 8, 8) == packets
