"""The option table: every row there and back, the bit positions as fixed vectors, and the walker's limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import WireError
from pgm.wire.formats import PacketType
from pgm.wire.options import (
    MAX_NAK_LIST,
    MAX_OPTIONS,
    OP_ENCODED,
    OP_ENCODED_NULL,
    OPT_END,
    OPT_INVALID,
    OPTIONS,
    SEGMENT_KEY_OCTETS,
    Acker,
    ControlCode,
    Cr,
    Crqst,
    CurrTgsize,
    Epoch,
    Fin,
    Flow,
    ForAsker,
    Fragment,
    HeldHistory,
    Join,
    Members,
    NakBoIvl,
    NakBoRng,
    NakList,
    NbrUnreach,
    Opx,
    ParityGrp,
    ParityPrm,
    PathNla,
    PgmccData,
    PgmccFeedback,
    Redirect,
    Rst,
    SegmentKey,
    SourceFile,
    SpmSignature,
    StateOffer,
    Syn,
    UnknownOption,
    decode_options_untrusted,
    encode_options,
    find,
    is_network_significant,
    names,
    options_end_untrusted,
)
from tests.strategies import option_sets, options_of, u32s, unknown_options

ALL = sorted(OPTIONS.values(), key=lambda cls: cls.TYPE)
T = PacketType


def decode(octets):
    return decode_options_untrusted(memoryview(octets), 0, len(octets))


def reason(octets):
    with pytest.raises(WireError) as caught:
        decode(octets)
    return caught.value.reason


def chain(*options, total=None):
    """OPT_LENGTH and raw option octets."""
    body = b"".join(options)
    return b"\0\4" + (4 + len(body) if total is None else total).to_bytes(2, "big") + body


@pytest.mark.rfc("W-21", "W-22", "W-29")
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.NAME)
@given(data=st.data())
def test_every_option_round_trips_on_every_carrier(cls, data):
    """Covers table 1.4."""
    option = data.draw(options_of(cls))
    for carrier in cls.CARRIERS:
        octets, _ = encode_options((option,), carrier)
        assert decode(octets) == ((option,), len(octets))
        assert options_end_untrusted(memoryview(octets), 0, len(octets)) == len(octets)


@pytest.mark.rfc("W-26", "W-28", "W-29")
@given(option=unknown_options)
def test_unknown_options_are_kept_octet_for_octet(option):
    octets, _ = encode_options((option,), T.SPM)
    assert decode(octets)[0] == (option,)
    assert octets[6:] == bytes([option.octet2, option.octet3]) + option.value


@pytest.mark.rfc("W-06", "W-21", "W-22", "W-23")
@given(kind=st.sampled_from(sorted(PacketType)), data=st.data())
def test_options_round_trip_with_network_significant_first(kind, data):
    options = data.draw(option_sets(kind))
    octets, network = encode_options(options, kind)
    if not options:
        assert (octets, network) == (b"", False)
        return
    found, end = decode(octets)
    assert end == len(octets) == int.from_bytes(octets[2:4], "big")
    assert octets[:2] == b"\0\4"
    assert sorted(map(repr, found)) == sorted(map(repr, options))
    significant = [is_network_significant(option, kind) for option in found]
    assert significant == sorted(significant, reverse=True)
    assert network == any(significant)
    at, ends = 4, []
    while at < len(octets):
        ends.append(bool(octets[at] & OPT_END))
        at += octets[at + 1]
    assert ends == [False] * (len(found) - 1) + [True]


# Type octet with OPT_END, length, third and fourth octet, value: tables 1.3 and 1.4 in hex.
VECTORS = [
    (Fragment(first_sqn=0x01020304, offset=0x05060708, apdu_length=0x090A0B0C), T.ODATA,
     "81 10 00 00 01020304 05060708 090a0b0c"),
    (NakList(sqns=(1, 0xFFFFFFFF)), T.NAK, "82 0c 00 00 00000001 ffffffff"),
    (Join(min_sqn=0x11223344), T.SPM, "83 08 00 00 11223344"),
    (NakBoIvl(ivl_us=0x0A, ivl_sqn=0x0B), T.NCF, "84 0c 00 00 0000000a 0000000b"),
    (NakBoRng(max_us=0x0A, min_us=0x0B), T.SPM, "85 0c 00 00 0000000a 0000000b"),
    (Redirect(dlr_nla="10.1.2.3"), T.POLR, "87 0c 00 00 0001 0000 0a010203"),
    (Redirect(dlr_nla="fe80::1"), T.POLR, "87 18 00 00 0002 0000 fe80000000000000 0000000000000001"),
    (ParityPrm(tgsize=8, proactive=True), T.SPM, "88 08 00 02 00000008"),
    (ParityPrm(tgsize=8, on_demand=True), T.SPM, "88 08 00 01 00000008"),
    (ParityGrp(group=7), T.RDATA, "89 08 00 00 00000007"),
    (CurrTgsize(size=5), T.SPM, "8a 08 00 00 00000005"),
    (NbrUnreach(), T.NCF, "8b 04 00 00"),
    (PathNla(path_nla="10.1.2.3"), T.NCF, "8c 08 00 00 0a010203"),
    (PathNla(path_nla="fe80::1"), T.NCF, "8c 14 00 00 fe80000000000000 0000000000000001"),
    (Syn(), T.ODATA, "8d 04 00 00"),
    (Fin(), T.SPM, "8e 04 00 00"),
    (Rst(no_naks=True), T.SPM, "8f 04 00 40"),
    (Rst(error=0x3F), T.SPM, "8f 04 00 3f"),
    (Cr(lead=1, ne_wl=2, ne_wp=3, rx_wp=4, receiver="10.1.2.3", has_ne_wl=True), T.NAK,
     "90 18 00 04 00000001 0002 0003 0004 0000 0001 0000 0a010203"),
    (Cr(lead=1, ne_wl=2, ne_wp=3, rx_wp=4, receiver="fe80::1", has_ne_wp=True), T.NAK,
     "90 24 00 02 00000001 0002 0003 0004 0000 0002 0000 fe80000000000000 0000000000000001"),
    (Crqst(wants_ne_wl=True), T.SPM, "91 04 00 04"),
    (Crqst(wants_ne_wp=True), T.SPM, "91 04 00 02"),
    (Crqst(wants_rx_wp=True), T.SPM, "91 04 00 01"),
    (PgmccData(timestamp_ms=9, acker="10.1.2.3"), T.ODATA, "92 10 00 00 00000009 0001 0000 0a010203"),
    (PgmccFeedback(timestamp_ms=9, afi=1, loss_rate=0xFFFF, reporter="10.1.2.3"), T.ACK,
     "93 10 00 00 00000009 0001 ffff 0a010203"),
    (Epoch(next_upper=1, start_s=2, start_ns=3), T.SPM, "e5 10 00 00 00000001 00000002 00000003"),
    (Flow(window=1, every=2, ivl_us=3, expiry_us=4, stall_us=5), T.SPM,
     "e6 18 00 00 00000001 00000002 00000003 00000004 00000005"),
    (Members(members=7, holder="10.1.2.3", is_element=True, joins=True), T.ACK,
     "e7 10 00 09 00000007 0001 0000 0a010203"),
    (Acker(acker="10.1.2.3"), T.SPM, "e8 0c 00 00 0001 0000 0a010203"),
    (HeldHistory(amount=1500, by_count=True), T.SPMR, "e9 0c 00 02 000005dc 00000000"),
    (HeldHistory(amount=17, answers=True), T.SPMR, "e9 0c 00 01 00000011 00000000"),
    (SpmSignature(7, 9, b"i" * 10 + b"s" * 64), T.SPM, "eb 56 00 00 00000007 00000009" + "69" * 10 + "73" * 64),
    (ControlCode(b"i" * 10 + b"n" * 8 + b"c" * 16), T.NAK, "ec 26 00 00" + "69" * 10 + "6e" * 8 + "63" * 16),
    (SegmentKey(b""), T.SPMR, "ed 04 00 00"),
    (SegmentKey(b"i" * 10 + b"k" * 32), T.SPMR, "ed 2e 00 00" + "69" * 10 + "6b" * 32),
    (SourceFile(1, 2, 3, 4), T.SPM, "ee 14 00 00 00000001 00000002 00000003 00000004"),
    (ForAsker(), T.NCF, "ef 04 00 00"),
    (StateOffer(sqn=17), T.SPMR, "ea 08 00 00 00000011"),
    (StateOffer(sqn=17, details=True), T.SPMR, "ea 08 00 01 00000011"),
]  # fmt: skip


@pytest.mark.rfc("W-34", "CC-17")
@pytest.mark.parametrize(("option", "carrier", "octets"), VECTORS, ids=lambda value: getattr(value, "NAME", ""))
def test_option_octets(option, carrier, octets):
    """Covers E-02, E-03, E-04, E-05, the layouts of table 1.4."""
    expected = bytes.fromhex(octets)
    assert encode_options((option,), carrier)[0] == chain(expected)
    assert decode(chain(expected))[0] == (option,)


def test_every_option_has_a_vector():
    assert {type(option) for option, _, _ in VECTORS} == set(ALL)


@pytest.mark.rfc("W-06")
def test_option_numbers_and_significance_match_the_table():
    """Covers table 1.4."""
    assert {cls.NAME: cls.TYPE for cls in ALL} == {
        "OPT_FRAGMENT": 0x01,
        "OPT_NAK_LIST": 0x02,
        "OPT_JOIN": 0x03,
        "OPT_NAK_BO_IVL": 0x04,
        "OPT_NAK_BO_RNG": 0x05,
        "OPT_REDIRECT": 0x07,
        "OPT_PARITY_PRM": 0x08,
        "OPT_PARITY_GRP": 0x09,
        "OPT_CURR_TGSIZE": 0x0A,
        "OPT_NBR_UNREACH": 0x0B,
        "OPT_PATH_NLA": 0x0C,
        "OPT_SYN": 0x0D,
        "OPT_FIN": 0x0E,
        "OPT_RST": 0x0F,
        "OPT_CR": 0x10,
        "OPT_CRQST": 0x11,
        "OPT_PGMCC_DATA": 0x12,
        "OPT_PGMCC_FEEDBACK": 0x13,
        "OPT_PGM_EPOCH": 0x65,
        "OPT_PGM_FLOW": 0x66,
        "OPT_PGM_MEMBERS": 0x67,
        "OPT_PGM_ACKER": 0x68,
        "OPT_PGM_HELD": 0x69,
        "OPT_PGM_SIGNATURE": 0x6B,
        "OPT_PGM_CODE": 0x6C,
        "OPT_PGM_SEGMENT_KEY": 0x6D,
        "OPT_PGM_FILE": 0x6E,
        "OPT_PGM_ASKER": 0x6F,
        "OPT_PGM_STATE": 0x6A,
    }
    assert {cls.NAME for cls in ALL if not cls.NETWORK} == {
        "OPT_FRAGMENT",
        "OPT_JOIN",
        "OPT_PARITY_GRP",
        "OPT_SYN",
        "OPT_FIN",
        "OPT_RST",
        "OPT_PGMCC_DATA",
        "OPT_PGMCC_FEEDBACK",
        "OPT_PGM_EPOCH",
        "OPT_PGM_FLOW",
        "OPT_PGM_MEMBERS",
        "OPT_PGM_ACKER",
        "OPT_PGM_HELD",
        "OPT_PGM_SIGNATURE",
        "OPT_PGM_CODE",
        "OPT_PGM_SEGMENT_KEY",
        "OPT_PGM_FILE",
        "OPT_PGM_ASKER",
        "OPT_PGM_STATE",
    }
    assert (OPT_END, OPT_INVALID, OP_ENCODED, OP_ENCODED_NULL) == (0x80, 0x7F, 0x04, 0x80)


@pytest.mark.rfc("W-06")
def test_a_short_groups_size_matters_to_elements_except_on_odata():
    assert encode_options((CurrTgsize(size=5),), T.ODATA)[1] is False
    assert encode_options((CurrTgsize(size=5),), T.RDATA)[1] is True
    assert encode_options((CurrTgsize(size=5),), T.SPM)[1] is True


@pytest.mark.rfc("W-23")
def test_a_fragment_behind_a_group_size():
    """On RDATA the group size comes first, whatever the order asked for."""
    octets, _ = encode_options((Fragment(1, 0, 10), CurrTgsize(size=5)), T.RDATA)
    assert names(decode(octets)[0]) == ["OPT_CURR_TGSIZE", "OPT_FRAGMENT"]


def test_options_are_refused_on_packets_that_do_not_carry_them():
    with pytest.raises(ValueError, match="OPT_CR does not belong on SPM"):
        encode_options((Cr(1, 2, 3, 4, "10.0.0.1"),), T.SPM)


@pytest.mark.rfc("W-25", "W-26")
@pytest.mark.parametrize("octet2", [0, 0x26, 0x94, 0xCF, 0xFF])
def test_reserved_bits_of_known_options_are_ignored(octet2):
    """OpenPGM sends stack memory there."""
    for octet3 in range(256):
        assert decode(chain(bytes([0x8E, 4, octet2, octet3])))[0] == (Fin(),)
        found = decode(chain(bytes([0x8F, 4, octet2, octet3])))[0][0]
        assert found == Rst(no_naks=bool(octet3 & 0x40), error=octet3 & 0x3F)
        if not octet3 & 0x03:
            continue  # no parity offered: that one is malformed
        found = decode(chain(bytes([0x88, 8, octet2, octet3, 0, 0, 0, 8])))[0][0]
        assert found == ParityPrm(8, proactive=bool(octet3 & 0x02), on_demand=bool(octet3 & 0x01))


@pytest.mark.rfc("W-26")
@pytest.mark.parametrize(("bits", "opx"), [(0, Opx.IGNORE), (1, Opx.INVALIDATE), (2, Opx.DISCARD), (3, Opx.RESERVED)])
def test_opx_is_the_low_two_bits_of_the_third_octet(bits, opx):
    """Covers E-06."""
    found = decode(chain(bytes([0x80 | 0x44, 4, 0xFC | bits, 0])))[0][0]
    assert isinstance(found, UnknownOption)
    assert found.opx is opx


@pytest.mark.rfc("W-27")
def test_invalidated_options_are_skipped_by_length():
    found, _ = decode(chain(bytes([0x7F, 8, 0, 0, 1, 2, 3, 4]), bytes([0x8E, 4, 0, 0])))
    assert [option.NAME for option in found] == ["unknown", "OPT_FIN"]


@pytest.mark.rfc("W-24", "W-29", "SEC-06")
@pytest.mark.parametrize("size", range(4))
@pytest.mark.parametrize("number", [0x03, 0x83, 0x44, 0xC4])
def test_option_shorter_than_its_head_stops_the_walk(number, size):
    """Length 0 once made others loop for ever."""
    assert reason(chain(bytes([number, size, 0, 0, 0, 0, 0, 0]))) == "option_length"


@pytest.mark.rfc("W-29", "SEC-06")
def test_option_longer_than_the_rest():
    assert reason(chain(bytes([0xC4, 9, 0, 0, 0, 0, 0, 0]))) == "option_length"
    assert reason(chain(bytes([0xC4, 255, 0, 0, 0, 0, 0, 0])) + bytes(255)) == "option_length"


@pytest.mark.rfc("W-21", "SEC-06")
@pytest.mark.parametrize("total", [0, 1, 4, 7, 9, 12, 13, 0xFFFF])
def test_total_that_disagrees_with_the_options_or_the_packet(total):
    """A total that leaves no option has no place for OPT_END."""
    octets = chain(bytes([0x8E, 4, 0, 0]), total=total) + bytes(4)
    assert reason(octets) == "option_total"


@pytest.mark.rfc("W-22")
def test_missing_opt_end():
    assert reason(chain(bytes([0x0E, 4, 0, 0]))) == "no_opt_end"


@pytest.mark.rfc("W-22")
def test_options_behind_opt_end():
    assert reason(chain(bytes([0x8E, 4, 0, 0]), bytes([0x8D, 4, 0, 0]))) == "option_total"


@pytest.mark.rfc("W-21", "SEC-06")
@pytest.mark.parametrize("head", [b"\1\4", b"\0\3", b"\0\5", b"\0\0", b"\x03\x08"])
def test_first_option_must_be_opt_length(head):
    assert reason(head + b"\0\x08\x8e\4\0\0") == "no_opt_length"


@pytest.mark.rfc("W-24")
def test_sixteen_options_are_accepted_and_seventeen_are_not():
    """Covers E-19."""
    one = bytes([0x44, 4, 0, 0])
    last = bytes([0xC4, 4, 0, 0])
    assert len(decode(chain(*[one] * (MAX_OPTIONS - 1), last))[0]) == 16
    assert reason(chain(*[one] * MAX_OPTIONS, last)) == "too_many_options"
    assert reason(chain(*[one] * 300, last)) == "too_many_options"


@pytest.mark.rfc("W-33")
@given(sqns=st.lists(u32s, min_size=MAX_NAK_LIST, max_size=MAX_NAK_LIST))
def test_longest_nak_list(sqns):
    octets, network = encode_options((NakList(sqns=tuple(sqns)),), T.NCF)
    assert octets[5] == 252
    assert network
    assert decode(octets)[0] == (NakList(sqns=tuple(sqns)),)


@pytest.mark.rfc("W-33", "SEC-06")
@pytest.mark.parametrize(
    ("size", "expected"), [(4, "nak_list"), (5, "option_length"), (7, "option_length"), (255, "option_length")]
)
def test_nak_lists_that_make_no_sense(size, expected):
    """Empty, or a length that is no multiple of four."""
    assert reason(chain(bytes([0x82, size, 0, 0]) + bytes(size - 4))) == expected


# Options whose value ends early, or goes on behind its fields.
@pytest.mark.rfc("W-29", "SEC-06")
@pytest.mark.parametrize("cls", [cls for cls in ALL if cls is not NakList], ids=lambda cls: cls.NAME)
@given(data=st.data())
def test_options_of_a_wrong_size_are_refused(cls, data):
    octets = encode_options((data.draw(options_of(cls)),), min(cls.CARRIERS))[0]
    size = octets[5]
    wrong = data.draw(st.integers(4, 60).filter(lambda wrong: wrong != size))
    body = (octets[8:] + bytes(60))[: wrong - 4]
    found = None
    try:
        found = decode(chain(bytes([octets[4], wrong, 0, 0]) + body))[0][0]
    except WireError as error:
        assert error.reason in ("option_length", "unknown_afi")  # noqa: PT017
    # An address without family is told by its length, so two lengths are right (E-04), as for requests and answers.
    others = {PathNla: 12, PgmccFeedback: 12, SegmentKey: SEGMENT_KEY_OCTETS}
    assert found is None or abs(wrong - size) == others.get(cls)


@pytest.mark.rfc("SEC-06")
def test_option_reader_stops_at_the_end_it_was_given():
    """What lies behind belongs to another packet."""
    octets = chain(bytes([0x8E, 4, 0, 0]))
    for end in range(len(octets)):
        with pytest.raises(WireError):
            decode_options_untrusted(memoryview(octets), 0, end)


def test_find_gives_the_first_of_a_class():
    options = (Fin(), Join(1), Join(2))
    assert find(options, Join) == Join(1)
    assert find(options, Syn) is None
