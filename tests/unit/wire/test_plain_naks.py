"""NAKs that are read alone in a few calls: what is read, and the NCF, is what the general way makes of the same octets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire.control_packets import encode_list, ncf_for
from pgm.wire.formats import PacketType
from pgm.wire.naks import PlainNaks, list_key
from pgm.wire.train import Train
from tests.reference import DATA_PORT, OTHER_TSI, TSI

ENDS = {"IPv4": ("10.0.0.1", "239.1.1.1"), "IPv6": ("fd00::1", "ff15::1"), "both": ("fd00::1", "239.1.1.1")}
SQNS = st.integers(0, (1 << 32) - 1)


def parsed(octets):
    [item], rejects = Train.of(octets).parse_untrusted()
    assert not rejects
    return item


@pytest.mark.rfc("W-32", "W-33")
@pytest.mark.parametrize("family", ENDS)
@given(sqns=st.lists(SQNS, min_size=2, max_size=63))
def test_a_list_and_its_confirmation(family, sqns):
    """Octet for octet, of any length."""
    octets = encode_list(PacketType.NAK, TSI, DATA_PORT, *ENDS[family], sqns)
    plain = PlainNaks(TSI, DATA_PORT, *ENDS[family])
    assert plain.read_untrusted(octets) == parsed(octets).sqns == tuple(sqns)
    assert plain.ncf_for(octets) == ncf_for(parsed(octets))
    assert plain.list_key(octets) == list_key(tuple(sqns))


@given(sqns=st.lists(SQNS, min_size=2, max_size=5), place=st.integers(0, 60), bits=st.integers(1, 255))
def test_plain_nak_with_damage_is_not_read(sqns, place, bits):
    octets = bytearray(encode_list(PacketType.NAK, TSI, DATA_PORT, *ENDS["IPv4"], sqns))
    octets[place % len(octets)] ^= bits
    assert PlainNaks(TSI, DATA_PORT, *ENDS["IPv4"]).read_untrusted(bytes(octets)) is None


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        bytes(60),
        encode_list(PacketType.NNAK, TSI, DATA_PORT, *ENDS["IPv4"], (1, 2)),
        encode_list(PacketType.NCF, TSI, DATA_PORT, *ENDS["IPv4"], (1, 2)),
        encode_list(PacketType.NAK, OTHER_TSI, DATA_PORT, *ENDS["IPv4"], (1, 2)),
        encode_list(PacketType.NAK, TSI, DATA_PORT + 1, *ENDS["IPv4"], (1, 2)),
        encode_list(PacketType.NAK, TSI, DATA_PORT, "10.0.0.2", "239.1.1.1", (1, 2)),
        encode_list(PacketType.NAK, TSI, DATA_PORT, "10.0.0.1", "239.1.1.2", (1, 2)),
        encode_list(PacketType.NAK, TSI, DATA_PORT, *ENDS["IPv6"], (1, 2)),
    ],
)
def test_plain_nak_for_other_source_is_not_read(octets):
    assert PlainNaks(TSI, DATA_PORT, *ENDS["IPv4"]).read_untrusted(octets) is None


def test_one_without_a_checksum_is_not_read():
    octets = encode_list(PacketType.NAK, TSI, DATA_PORT, *ENDS["IPv4"], (1, 2))
    assert PlainNaks(TSI, DATA_PORT, *ENDS["IPv4"]).read_untrusted(octets[:6] + bytes(2) + octets[8:]) is None
