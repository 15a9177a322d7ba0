"""The parser is total: whatever comes gives items and known reasons, never an exception, never an endless loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire.control_packets import CONTROL, Nak, Spm, Spmr, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import Fragment, NakList
from pgm.wire.rejects import REASONS
from pgm.wire.train import Data, Train
from tests.reference import DATA_PORT, TSI, data_packet, sealed, without_checksum
from tests.strategies import packets, packets_of

T = PacketType
HEAD = {"tsi": TSI, "data_port": DATA_PORT}
NAK = encode(Nak(**HEAD, sqn=1, source_nla="10.1.2.3", group_nla="239.1.2.3", options=(NakList((2, 3)),)))
SPM = encode(Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3"))
FRAGMENT = data_packet(7, b"payload", trail=3, options=(Fragment(7, 0, 20),))


def parse(octets, stride=0):
    items, rejects = Train.of(octets, stride).parse_untrusted()
    assert set(rejects) <= set(REASONS)
    for item in items:
        assert item.type in PacketType
    packets_found = sum(item.count if isinstance(item, Data) else 1 for item in items)
    assert packets_found + len(rejects) == -(-len(octets) // (stride or max(1, len(octets))))
    return items, rejects


def reason(octets):
    items, rejects = parse(octets)
    assert items == []
    return rejects[0]


@pytest.mark.rfc("SEC-06")
@given(octets=st.binary(max_size=300), stride=st.integers(1, 100))
def test_random_octets(octets, stride):
    parse(octets, stride)


@pytest.mark.rfc("SEC-06")
@given(octets=st.binary(max_size=120), kind=st.sampled_from(sorted(PacketType)), flags=st.sampled_from([0, 1, 3, 0x81]))
def test_random_octets_behind_a_plausible_header(octets, kind, flags):
    """Past the checksum, the type and the flags."""
    head = bytes([0x1D, 0x4C, 0x22, 0x33, kind, flags, 0, 0]) + TSI[:6] + b"\0\0"
    parse(sealed(head + octets))
    if kind not in (T.ODATA, T.RDATA):
        parse(head + octets)


@pytest.mark.rfc("SEC-06")
@given(octets=st.binary(max_size=120), flags=st.sampled_from([0x01, 0x03]))
def test_random_octets_behind_opt_length(octets, flags):
    """Into the option walker."""
    options = b"\0\4" + (4 + len(octets)).to_bytes(2, "big") + octets
    for packet in (NAK[:36], data_packet(1)):
        parse(sealed(packet[:5] + bytes([flags]) + packet[6:] + options))


@pytest.mark.rfc("SEC-06")
@given(packet=packets, at=st.integers(0, 1 << 16), octet=st.integers(0, 255))
def test_valid_packets_with_one_octet_changed(packet, at, octet):
    """The sum is right again, so it is the parser that has to cope."""
    octets = bytearray(encode(packet))
    octets[at % len(octets)] = octet
    parse(sealed(bytes(octets)))
    parse(without_checksum(bytes(octets)))


@pytest.mark.rfc("SEC-06", "W-15")
@pytest.mark.parametrize("kind", sorted(CONTROL))
@given(data=st.data())
def test_control_packets_cut_at_every_octet(kind, data):
    """Nothing shorter than a packet is that packet."""
    octets = encode(data.draw(packets_of(kind)))
    for end in range(len(octets)):
        for part in (sealed(octets[:end]), without_checksum(octets[:end])):
            if end >= 16:
                parse(part)
                assert reason(part)
            elif end:
                assert reason(octets[:end]) == "truncated"


@pytest.mark.rfc("SEC-06", "W-15")
@pytest.mark.parametrize(
    "packet", [data_packet(7, b"payload"), FRAGMENT, data_packet(1)], ids=["plain", "fragment", "empty"]
)
def test_data_packets_cut_at_every_octet(packet):
    for end in range(1, len(packet)):
        assert reason(sealed(packet[:end]) if end >= 16 else packet[:end]) in ("truncated", "length", "option_total")
    items, rejects = parse(packet)
    assert len(items) == 1
    assert rejects == []


@pytest.mark.rfc("W-02", "W-15")
@pytest.mark.parametrize("packet", [SPM, NAK, FRAGMENT], ids=["spm", "nak", "fragment"])
def test_octets_behind_a_packet(packet):
    """A SPM with a tail is no SPM, and nothing of it is delivered."""
    assert reason(sealed(packet + b"x")) == "length"
    assert reason(sealed(packet + bytes(40))) == "length"


@pytest.mark.rfc("W-02")
def test_control_packets_carry_no_payload():
    """The TSDU length of a control packet is 0."""
    assert reason(sealed(SPM[:14] + b"\0\1" + SPM[16:])) == "length"
    assert reason(sealed(SPM[:14] + b"\0\1" + SPM[16:] + b"x")) == "length"


def with_options(option_octets, packet=NAK[:36]):
    return sealed(packet[:5] + b"\1" + packet[6:] + option_octets)


FIN = bytes([0x8E, 4, 0, 0])
CASES = {
    "truncated": [SPM[:15], sealed(SPM[:30]), sealed(NAK[:35]), sealed(FRAGMENT[:23]), with_options(b"\0\4\0")],
    "type": [sealed(SPM[:4] + bytes([octet]) + SPM[5:]) for octet in (0x03, 0x06, 0x0B, 0x10, 0x40, 0x48, 0x80)],
    "flags": [sealed(SPM[:5] + b"\x40" + SPM[6:]), sealed(FRAGMENT[:5] + b"\x41" + FRAGMENT[6:])],
    "length": [sealed(data_packet(1, b"abc")[:-1]), sealed(data_packet(1, b"abc") + b"d")],
    "checksum": [SPM[:-1] + bytes([SPM[-1] ^ 1]), FRAGMENT[:-1] + bytes([FRAGMENT[-1] ^ 0x80])],
    "no_checksum": [without_checksum(FRAGMENT), without_checksum(data_packet(1, kind=T.RDATA))],
    "unknown_afi": [sealed(SPM[:28] + b"\0\3" + SPM[30:]), sealed(NAK[:28] + b"\0\0" + NAK[30:])],
    "no_opt_length": [with_options(FIN + bytes(4)), with_options(b"\0\5\0\x08" + FIN)],
    "option_total": [with_options(b"\0\4\0\7" + FIN), with_options(b"\0\4\0\x0c" + FIN), with_options(b"\0\4\0\4")],
    "option_length": [with_options(b"\0\4\0\x08" + bytes([0x8E, size, 0, 0])) for size in (0, 1, 2, 3, 5, 255)],
    "too_many_options": [with_options(b"\0\4" + (4 + 4 * 17).to_bytes(2, "big") + bytes([0x44, 4, 0, 0]) * 16 + FIN)],
    "no_opt_end": [with_options(b"\0\4\0\x08" + bytes([0x0E, 4, 0, 0]))],
    "nak_list": [with_options(b"\0\4\0\x08" + bytes([0x82, 4, 0, 0]))],
    "parity": [
        *(
            with_options(b"\0\4\0\x0c" + bytes([0x88, 8, 0, offer, 0, 0, 0, size]))
            for offer, size in ((0, 8), (3, 6), (1, 0))
        ),
        *(with_options(b"\0\4\0\x0c" + bytes([kind, 8, 0, 0, 0, 0, 0, 0])) for kind in (0x89, 0x8A)),
    ],
}


@pytest.mark.rfc(
    "SEC-06", "W-03", "W-07", "W-10", "W-15", "W-16", "W-21", "W-22", "W-24", "W-29", "W-33", "FEC-02", "FEC-04"
)
def test_every_reason_can_be_reached_and_is_the_right_one():
    assert set(CASES) == set(REASONS)
    for expected, packets_of_it in CASES.items():
        for packet in packets_of_it:
            assert reason(packet) == expected, packet.hex()


@pytest.mark.rfc("W-16")
def test_mixed_families_in_a_nak_do_not_read_past_the_end():
    """Covers table 1.3: an IPv6 source and an IPv4 group, cut anywhere."""
    octets = encode(Nak(**HEAD, sqn=1, source_nla="fe80::1", group_nla="239.1.2.3"))
    assert len(octets) == 48
    for end in range(16, 48):
        assert reason(sealed(octets[:end])) == "truncated"


def test_parsing_is_remembered():
    """A train that reaches a thousand nodes of a simulation is read once."""
    train = Train.of(SPM + SPM, len(SPM))
    first = train.parse_untrusted()
    assert train.parse_untrusted() is first
    assert len(first[0]) == 2


def test_empty_train():
    assert Train.of(b"").parse_untrusted() == ([], [])
    assert Train.of(b"").count == 0


def test_trains_of_arrays_and_bytearrays():
    for octets in (bytearray(SPM), np.frombuffer(SPM, np.uint8)):
        items, rejects = Train.of(octets).parse_untrusted()
        assert [type(item) for item in items] == [Spm]
        assert rejects == []


def test_spmr_is_a_header_and_nothing_else():
    """Covers table 1.2."""
    items, _ = parse(encode(Spmr(**HEAD)))
    assert items == [Spmr(**HEAD)]
