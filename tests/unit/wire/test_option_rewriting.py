"""OPT_NAK_BO_IVL in SPMs that are passed on: taken out or put in, and nothing else touched."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire import checksum
from pgm.wire.control_packets import Ack, Spm, decode_control_untrusted, encode, with_path
from pgm.wire.formats import OPTIONS_NETWORK, OPTIONS_PRESENT, PacketType
from pgm.wire.option_rewriting import code_of, covered_octets, with_back_off, with_checksum, with_code, without_code
from pgm.wire.options import (
    NO_OPTIONS,
    ControlCode,
    Epoch,
    Fin,
    Join,
    NakBoIvl,
    NakBoRng,
    UnknownOption,
    encode_options,
    find,
)
from tests.reference import DATA_PORT, TSI, sealed, without_checksum
from tests.strategies import packets_of

MINE = (NakBoIvl(ivl_us=5000, ivl_sqn=9),)
OTHERS = st.lists(
    st.sampled_from(
        [
            NakBoIvl(1, 2),
            NakBoRng(4, 3),
            Join(7),
            Fin(),
            Epoch(1, 2, 3),
            UnknownOption(number=0x44, octet2=0xFA, octet3=0x81, value=b"as it was"),
        ]
    ),
    unique_by=lambda option: option.NAME,
    max_size=6,
)


def spm(*options, path="10.0.0.1"):
    packet = Spm(tsi=TSI, data_port=DATA_PORT, spm_sqn=3, trail=5, lead=9, path_nla=path, options=tuple(options))
    return decode_control_untrusted(encode(packet))


@pytest.mark.rfc("IMP-09", "NE-34", "W-21", "W-22", "W-23", "W-11", "W-28")
@given(options=OTHERS, advertised=st.sampled_from([NO_OPTIONS, MINE]), path=st.sampled_from(["10.0.0.1", "fe80::1"]))
def test_only_the_back_off_changes(options, advertised, path):
    """The rest stays in order and octet for octet; lengths, OPT_END, flags and checksum follow."""
    before = spm(*options, path=path)
    octets = with_back_off(before, before.octets, advertised)
    after = decode_control_untrusted(octets)
    kept = tuple(one for one in before.options if not isinstance(one, NakBoIvl))
    assert find(after.options, NakBoIvl) == (advertised[0] if advertised else None)
    assert tuple(one for one in after.options if not isinstance(one, NakBoIvl)) == kept
    assert attrs.evolve(after, options=NO_OPTIONS) == attrs.evolve(before, options=NO_OPTIONS)
    assert checksum.is_valid(octets)
    expected, is_network = encode_options((*advertised, *kept), PacketType.SPM)
    assert octets.endswith(expected)
    assert len(octets) == len(encode(attrs.evolve(before, options=NO_OPTIONS))) + len(expected)
    assert bool(octets[5] & OPTIONS_PRESENT) == bool(expected)
    if not any(isinstance(one, UnknownOption) for one in kept):
        assert bool(octets[5] & OPTIONS_NETWORK) == is_network


@pytest.mark.rfc("NE-02", "NE-34")
@pytest.mark.parametrize(("path", "own"), [("10.0.0.1", "fe80::1"), ("fe80::1", "10.0.0.1")])
def test_an_spm_whose_path_is_of_another_family_by_now(path, own):
    """A relay between IPv4 and IPv6 has put its own address in already."""
    before = spm(NakBoIvl(1, 2), Join(7), path=path)
    after = decode_control_untrusted(with_back_off(before, with_path(before, own), MINE))
    assert (after.path_nla, after.options) == (own, (*MINE, Join(7)))


@pytest.mark.rfc("NE-04", "W-28")
def test_a_packet_without_it_stays_the_same_object():
    before = spm(Join(7))
    assert with_back_off(before, before.octets, NO_OPTIONS) is before.octets


@pytest.mark.rfc("W-25", "W-26")
def test_reserved_bits_of_others_stay_as_they_came():
    """OpenPGM leaves memory of its own in them (INT-Q7)."""
    octets = bytearray(spm(NakBoIvl(1, 2), NakBoRng(4, 3), Fin()).octets)
    at = octets.index(bytes([0x05, 12]))
    octets[at + 2] = 0xCF
    before = decode_control_untrusted(sealed(bytes(octets)))
    after = with_back_off(before, before.octets, NO_OPTIONS)
    assert after[after.index(bytes([0x05, 12])) + 2] == 0xCF


@pytest.mark.rfc("W-11")
def test_a_packet_without_a_checksum_gets_none():
    octets = without_checksum(spm(NakBoIvl(1, 2)).octets)
    after = with_back_off(decode_control_untrusted(octets), octets, MINE)
    assert after[6:8] == b"\0\0"
    assert find(decode_control_untrusted(after).options, NakBoIvl) == MINE[0]


CODE = b"i" * 10 + b"n" * 8 + b"c" * 16
CODED = st.sampled_from(sorted(ControlCode.CARRIERS)).flatmap(packets_of)


@given(packet=CODED)
def test_codes_are_last_and_leave_no_trace(packet):
    """The octets without the code come back with a valid checksum."""
    packet = attrs.evolve(packet, options=tuple(one for one in packet.options if not isinstance(one, ControlCode)))
    before = encode(packet)
    after = decode_control_untrusted(with_code(before, CODE))
    assert after.options == (*decode_control_untrusted(before).options, ControlCode(CODE))
    assert checksum.is_valid(after.octets)
    assert attrs.evolve(after, options=packet.options) == attrs.evolve(packet, octets=b"")
    assert (code_of(after), with_checksum(without_code(after))) == (CODE, before)
    assert without_code(after) == covered_octets(before)


def test_codes_that_are_not_last_count_as_none():
    first = Ack(
        tsi=TSI, data_port=DATA_PORT, rx_max=1, bitmap=0, options=(ControlCode(CODE), UnknownOption(number=0x44))
    )
    assert code_of(decode_control_untrusted(encode(first))) is None
    assert code_of(decode_control_untrusted(encode(attrs.evolve(first, options=NO_OPTIONS)))) is None
