"""Control packets: there and back, port order, bit positions, and what a relay may change."""

import ipaddress

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import WireError
from pgm.wire import checksum
from pgm.wire.control_packets import (
    CONTROL,
    Ack,
    Nak,
    Poll,
    Polr,
    Spm,
    Spmr,
    _decode_untrusted,
    _encode,
    decode_control_untrusted,
    encode,
    ncf_for,
    with_addresses,
    with_path,
)
from pgm.wire.formats import PacketType
from pgm.wire.options import OPT_END, Fin, Join, NakBoIvl, NakList, NbrUnreach, Syn, UnknownOption
from pgm.wire.sequence_numbers import spans_of
from pgm.wire.train import Train
from tests.reference import checksum_of, data_packet, sealed, without_checksum
from tests.strategies import ipv4s, ipv6s, nak_lists, nlas, packets, packets_of, port_order

T = PacketType
TSI = bytes.fromhex("010203040506 1d4c")
HEAD = {"tsi": TSI, "data_port": 0x2233}

# Every field of every type of table 1.3, IPv4 and IPv6, in hex. The checksum is put in by the book.
VECTORS = [
    (Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3"),
     "1d4c 2233 00 00 0000 010203040506 0000 00000001 00000002 00000003 0001 0000 0a010203"),
    (Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="fe80::1"),
     "1d4c 2233 00 00 0000 010203040506 0000 00000001 00000002 00000003 0002 0000 fe800000000000000000000000000001"),
    (Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3", options=(Join(4),)),
     "1d4c 2233 00 01 0000 010203040506 0000 00000001 00000002 00000003 0001 0000 0a010203 0004000c 8308000000000004"),
    (Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3", options=(NakBoIvl(5, 6), Fin())),
     "1d4c 2233 00 03 0000 010203040506 0000 00000001 00000002 00000003 0001 0000 0a010203"
     "00040014 040c00000000000500000006 8e040000"),
    (Poll(**HEAD, poll_sqn=1, poll_round=2, sub_type=1, path_nla="10.1.2.3", bo_ivl_us=4, rand=5, mask=6),
     "1d4c 2233 01 00 0000 010203040506 0000 00000001 0002 0001 0001 0000 0a010203 00000004 00000005 00000006"),
    (Poll(**HEAD, poll_sqn=1, poll_round=2, sub_type=0, path_nla="fe80::1", bo_ivl_us=4, rand=5, mask=6),
     "1d4c 2233 01 00 0000 010203040506 0000 00000001 0002 0000 0002 0000 fe800000000000000000000000000001"
     "00000004 00000005 00000006"),
    (Polr(**HEAD, poll_sqn=1, poll_round=2), "2233 1d4c 02 00 0000 010203040506 0000 00000001 0002 0000"),
    (Nak(**HEAD, sqn=1, source_nla="10.1.2.3", group_nla="239.1.2.3"),
     "2233 1d4c 08 00 0000 010203040506 0000 00000001 0001 0000 0a010203 0001 0000 ef010203"),
    (Nak(**HEAD, sqn=1, source_nla="fe80::1", group_nla="ff02::2"),
     "2233 1d4c 08 00 0000 010203040506 0000 00000001 0002 0000 fe800000000000000000000000000001"
     "0002 0000 ff020000000000000000000000000002"),
    (Nak(**HEAD, sqn=1, source_nla="fe80::1", group_nla="239.1.2.3", kind=T.NNAK),
     "2233 1d4c 09 00 0000 010203040506 0000 00000001 0002 0000 fe800000000000000000000000000001 0001 0000 ef010203"),
    (Nak(**HEAD, sqn=1, source_nla="10.1.2.3", group_nla="ff02::2", kind=T.NCF),
     "1d4c 2233 0a 00 0000 010203040506 0000 00000001 0001 0000 0a010203 0002 0000 ff020000000000000000000000000002"),
    (Nak(**HEAD, sqn=1, source_nla="10.1.2.3", group_nla="239.1.2.3", options=(NakList((2, 3)),)),
     "2233 1d4c 08 03 0000 010203040506 0000 00000001 0001 0000 0a010203 0001 0000 ef010203"
     "00040010 820c00000000000200000003"),
    (Nak(**HEAD, sqn=1, source_nla="10.1.2.3", group_nla="239.1.2.3", parity=True),
     "2233 1d4c 08 80 0000 010203040506 0000 00000001 0001 0000 0a010203 0001 0000 ef010203"),
    (Spmr(**HEAD), "2233 1d4c 0c 00 0000 010203040506 0000"),
    (Ack(**HEAD, rx_max=1, bitmap=0x80000000), "2233 1d4c 0d 00 0000 010203040506 0000 00000001 80000000"),
]  # fmt: skip


@pytest.mark.rfc("W-05", "W-06", "W-14", "W-16", "W-32")
@pytest.mark.parametrize(("packet", "octets"), VECTORS, ids=lambda value: getattr(value, "type", ""))
def test_packet_octets(packet, octets):
    """Covers E-01, tables 1.1 to 1.3."""
    expected = sealed(bytes.fromhex(octets))
    assert encode(packet) == expected
    assert decode_control_untrusted(expected) == packet


def test_every_control_type_has_a_vector():
    assert {packet.type for packet, _ in VECTORS} == set(CONTROL)


@pytest.mark.rfc("W-02", "W-06", "W-14", "W-16", "W-21")
@given(packet=packets)
def test_every_packet_round_trips(packet):
    """Covers tables 1.2 to 1.4."""
    octets = encode(packet)
    found = decode_control_untrusted(octets)
    # Options come back with the network-significant ones first (W-23).
    assert attrs.evolve(found, options=()) == attrs.evolve(packet, options=())
    assert sorted(map(repr, found.options)) == sorted(map(repr, packet.options))
    assert encode(found) == found.octets == octets
    assert octets[:4] == port_order(packet.type, packet.tsi, packet.data_port)
    assert octets[4] == packet.type
    assert int.from_bytes(octets[6:8], "big") == checksum_of(octets) != 0
    assert octets[8:14] == packet.tsi[:6]
    assert octets[14:16] == b"\0\0"
    items, rejects = Train.of(octets).parse_untrusted()
    assert (items, rejects) == ([found], [])


@pytest.mark.parametrize("kind", sorted(CONTROL))
@given(data=st.data())
def test_options_begin_where_the_table_says(kind, data):
    """Covers table 1.2: the offsets for IPv4 and IPv6."""
    packet = data.draw(packets_of(kind))
    body = {T.SPM: 16, T.POLL: 24, T.POLR: 8, T.NAK: 12, T.NNAK: 12, T.NCF: 12, T.SPMR: 0, T.ACK: 8}[kind]
    addresses = [getattr(packet, name) for name in ("path_nla", "source_nla", "group_nla") if hasattr(packet, name)]
    body += sum(len(ipaddress.ip_address(address).packed) for address in addresses)
    at = 16 + body
    octets = encode(packet)
    if packet.options:
        assert octets[at : at + 2] == b"\0\4"
        assert octets[5] & 0x01
    else:
        assert len(octets) == at
        assert not octets[5] & 0x03


@pytest.mark.rfc("W-05", "W-06")
def test_option_flags_follow_the_options():
    """0x01 present, 0x02 network-significant, 0x80 parity."""
    spm = Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3")
    assert encode(spm)[5] == 0x00
    assert encode(attrs.evolve(spm, options=(Fin(),)))[5] == 0x01
    assert encode(attrs.evolve(spm, options=(NbrUnreach(), Fin())))[5] == 0x03
    assert encode(attrs.evolve(spm, parity=True))[5] == 0x80


def test_options_are_refused_where_they_do_not_belong():
    with pytest.raises(ValueError, match="OPT_SYN"):
        encode(Spmr(**HEAD, options=(Syn(),)))


@pytest.mark.rfc("W-33", "RCV-48")
def test_nak_tells_all_its_sqns():
    """The header's sqn comes first."""
    nak = Nak(**HEAD, sqn=9, source_nla="10.1.2.3", group_nla="239.1.2.3", options=(NakList((2, 3)),))
    assert nak.sqns == (9, 2, 3)
    assert attrs.evolve(nak, options=()).sqns == (9,)


# Forwarding


def hostile_options(spm):
    """Reserved bits set everywhere and options in an order that we would not use: none of it is ours to tidy."""
    options = bytes.fromhex(
        "0004 0018 83 08 f8 ff 00000001 45 06 fb 7f abcd 84 0c 26 94 0000000100000002".replace(" ", "")
    )
    options = options[:2] + len(options).to_bytes(2, "big") + options[4:]
    octets = encode(attrs.evolve(spm, options=()))
    # OPT_END on the last option only.
    options = options[:4] + bytes([options[4] & ~OPT_END]) + options[5:]
    return sealed(octets[:5] + bytes([octets[5] | 0x03]) + octets[6:] + options)


def replaced(octets, at, old_octets, new):
    return sealed(octets[:at] + new + octets[at + old_octets :])


def afi_and_address(address):
    packed = ipaddress.ip_address(address).packed
    return (b"\0\1\0\0" if len(packed) == 4 else b"\0\2\0\0") + packed


@pytest.mark.rfc("NE-02", "W-11", "W-28")
@given(spm=packets_of(T.SPM), address=nlas)
def test_with_path_changes_the_path_and_nothing_else(spm, address):
    """Unknown options and odd bits stay octet for octet, between families too."""
    for octets in (encode(spm), hostile_options(spm)):
        received = decode_control_untrusted(octets)
        old = 4 + len(ipaddress.ip_address(spm.path_nla).packed)
        assert with_path(received, address) == replaced(octets, 28, old, afi_and_address(address))


@pytest.mark.rfc("NE-10", "W-11", "W-28")
@given(nak=packets_of(T.NAK), source=nlas, group=nlas)
def test_with_addresses_changes_the_addresses_and_nothing_else(nak, source, group):
    """Covers INT-Q3."""
    octets = encode(nak)
    received = decode_control_untrusted(octets)
    old = sum(4 + len(ipaddress.ip_address(address).packed) for address in (nak.source_nla, nak.group_nla))
    new = afi_and_address(source) + afi_and_address(group)
    assert with_addresses(received, source, group) == replaced(octets, 20, old, new)


@pytest.mark.rfc("W-11")
def test_forwarding_keeps_damage_visible():
    """The checksum is patched, so what a relay's memory loses is found below."""
    octets = bytearray(encode(Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3")))
    octets[20] ^= 0x10
    spm = decode_control_untrusted(bytes(octets))
    for address in ("10.9.9.9", "fe80::1"):
        assert not checksum.is_valid(with_path(spm, address))


@pytest.mark.rfc("W-11")
def test_forwarding_leaves_an_absent_checksum_absent():
    """A box that changes the header recomputes the checksum or leaves it out."""
    spm = decode_control_untrusted(
        without_checksum(encode(Spm(**HEAD, spm_sqn=1, trail=2, lead=3, path_nla="10.1.2.3")))
    )
    assert with_path(spm, "10.9.9.9")[6:8] == b"\0\0"
    assert with_path(spm, "fe80::1")[6:8] == b"\0\0"


@given(spm=packets_of(T.SPM), address=st.one_of(ipv4s, ipv6s))
def test_a_packet_of_our_own_is_forwarded_too(spm, address):
    """A standby relay forwards SPMs that it holds as values; those have no octets."""
    found = decode_control_untrusted(with_path(attrs.evolve(spm, octets=b""), address))
    assert found.path_nla == address
    assert attrs.evolve(found, path_nla="", options=()) == attrs.evolve(spm, path_nla="", options=())


@given(nak=packets_of(T.NAK), source=nlas, group=nlas)
def test_a_nak_of_our_own_is_forwarded_too(nak, source, group):
    found = decode_control_untrusted(with_addresses(nak, source, group))
    assert (found.source_nla, found.group_nla) == (source, group)
    assert attrs.evolve(found, source_nla="", group_nla="", options=()) == attrs.evolve(
        nak, source_nla="", group_nla="", options=()
    )


@pytest.mark.parametrize("octets", [b"", bytes(15), data_packet(1), data_packet(1, kind=T.RDATA)])
def test_control_codec_with_invalid_octets_raises(octets):
    with pytest.raises(WireError) as caught:
        decode_control_untrusted(octets)
    assert caught.value.reason == ("truncated" if len(octets) < 16 else "type")


@pytest.mark.rfc("W-32", "W-14")
@given(nak=packets_of(T.NAK), more=nak_lists())
def test_ncf_is_the_nak_with_its_ports_turned_round(nak, more):
    """Same sqn, addresses, list and parity bit; nothing that belongs on NAKs alone."""
    for options in ((), (more,), (*nak.options, UnknownOption(number=0x44)), (more, UnknownOption(number=0x44))):
        asked = decode_control_untrusted(encode(attrs.evolve(nak, options=options)))
        octets = ncf_for(asked)
        ncf = decode_control_untrusted(octets)
        assert ncf.kind is T.NCF
        assert octets[:4] == asked.octets[2:4] + asked.octets[:2]
        assert attrs.evolve(ncf, kind=T.NAK, options=()) == attrs.evolve(asked, options=())
        assert ncf.sqns == asked.sqns
        assert octets[5] & 0x80 == asked.octets[5] & 0x80
        assert octets[5] & 0x03 == (0x03 if len(ncf.sqns) > 1 else 0)
        assert checksum.is_valid(octets)


def _read(read, octets):
    try:
        return read(octets)
    except WireError as error:
        return error.reason


@given(
    nak=st.sampled_from([T.NAK, T.NNAK, T.NCF]).flatmap(packets_of),
    more=nak_lists(),
    parity=st.booleans(),
    damage=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=2),
    cut=st.integers(0, 12),
)
def test_lists_are_read_and_written_on_forms_as_anything_else(nak, more, parity, damage, cut):
    """A form is remembered by what lies around the sqns; whatever is there, the general way says the same of it."""
    listed = attrs.evolve(nak, options=(more,), parity=parity)
    octets = bytearray(encode(listed))
    assert octets == _encode(listed)
    assert attrs.evolve(decode_control_untrusted(bytes(octets)), octets=b"") == listed
    for at, octet in damage:
        octets[min(at, len(octets) - 1)] = octet
    spoiled = bytes(octets[: len(octets) - cut])
    for _ in range(2):
        assert _read(decode_control_untrusted, spoiled) == _read(_decode_untrusted, spoiled)


@given(first=st.integers(0, (1 << 32) - 1), steps=st.lists(st.integers(-3, 9), max_size=20))
def test_spans_are_of_each_sqn_once_and_in_order(first, steps):
    sqns = [first]
    for step in steps:
        sqns.append((sqns[-1] + step) % (1 << 32))
    nak = Nak(**HEAD, sqn=first, source_nla="10.1.2.3", group_nla="239.1.2.3", options=(NakList(tuple(sqns[1:])),))
    near = [(sqn - first + (1 << 31)) % (1 << 32) - (1 << 31) for sqn in sqns]
    assert nak.spans == tuple(spans_of(near))
    for base in (first, first + (1 << 32), first + (1 << 33)):
        assert nak.spans_from(base) == [(base + low, base + end) for low, end in nak.spans]
