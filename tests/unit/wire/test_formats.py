"""Packet types, addresses and the spelling of a TSI."""

import ipaddress
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import WireError
from pgm.wire.control_packets import packet_type_untrusted
from pgm.wire.formats import (
    DATA,
    UPSTREAM,
    PacketType,
    decode_nla_untrusted,
    encode_nla,
    pack_nla,
    tsi_text,
    unpack_nla,
)
from tests.strategies import nlas


def test_packet_types_have_the_numbers_of_the_table():
    """Covers table 1.2."""
    assert {kind.name: int(kind) for kind in PacketType} == {
        "SPM": 0x00,
        "POLL": 0x01,
        "POLR": 0x02,
        "ODATA": 0x04,
        "RDATA": 0x05,
        "NAK": 0x08,
        "NNAK": 0x09,
        "NCF": 0x0A,
        "SPMR": 0x0C,
        "ACK": 0x0D,
    }


@pytest.mark.rfc("W-04", "W-14")
def test_direction_is_a_table_and_not_a_range():
    """POLR travels upstream although its nibble is SPM-like, NCF downstream."""
    assert {kind.name for kind in UPSTREAM} == {"NAK", "NNAK", "SPMR", "POLR", "ACK"}
    assert {kind.name for kind in DATA} == {"ODATA", "RDATA"}


@pytest.mark.rfc("W-03")
def test_type_octet_is_compared_whole():
    """Version and reserved bits are not masked away."""
    for octet in range(256):
        if octet in {int(kind) for kind in PacketType}:
            assert packet_type_untrusted(octet) == octet
        else:
            with pytest.raises(WireError, match="type"):
                packet_type_untrusted(octet)


@pytest.mark.rfc("W-16")
@given(address=nlas, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_addresses_round_trip_with_their_family(address, before, after):
    octets = encode_nla(address)
    packed = ipaddress.ip_address(address).packed
    assert octets == (b"\0\1\0\0" if len(packed) == 4 else b"\0\2\0\0") + packed
    view = memoryview(before + octets + after)
    end = len(before) + len(octets)
    assert decode_nla_untrusted(view, len(before), len(view)) == (address, end)
    assert unpack_nla(pack_nla(address)) == address


@pytest.mark.rfc("SEC-06")
@given(address=nlas)
def test_addresses_are_never_read_past_the_end(address):
    octets = encode_nla(address)
    for end in range(len(octets)):
        # The octets are there: only the bound says that they are somebody else's.
        with pytest.raises(WireError, match="truncated"):
            decode_nla_untrusted(memoryview(octets), 0, end)


@pytest.mark.rfc("W-16")
def test_only_two_address_families_are_known():
    for afi in itertools.chain((0,), range(3, 20), (0x0100, 0xFFFF)):
        with pytest.raises(WireError, match="unknown_afi"):
            decode_nla_untrusted(memoryview(afi.to_bytes(2, "big") + bytes(18)), 0, 20)


@pytest.mark.rfc("W-12")
def test_tsi_text_is_the_customary_spelling():
    assert tsi_text(bytes.fromhex("0102ff000a0b1d4c")) == "1.2.255.0.10.11.7500"


def test_nonsense_is_no_address():
    with pytest.raises(ValueError):
        pack_nla("10.0.0.256")
