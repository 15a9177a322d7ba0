"""Network elements: source path state, and packets that pass untouched (RFC 7.1, 7.7, 9, 13)."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.element.setup import ElementSetup
from pgm.units import SECOND
from pgm.wire import checksum
from pgm.wire.control_packets import Nak, Polr, Spm, encode, with_path
from pgm.wire.formats import PacketType
from pgm.wire.options import Fragment, Join, UnknownOption
from pgm.wire.train import Data, Train
from tests.reference import DATA_PORT, OTHER_TSI, TSI, data_packet
from tests.rfc.bench import BELOW, LAN, SOURCE, UP, A, B, Bench, C, as_received
from tests.unit.core.makers import MS, data_train, nak_packet, payload_of, spm_packet, spmr_packet

T = PacketType
NEIGHBOUR, OTHER_NEIGHBOUR = "10.0.0.2", "10.0.0.3"
NO_PARENTS = ElementSetup(UP, (A, B, C))


@pytest.mark.rfc("NE-01")
def test_spm_path_of_the_newest_spm_is_the_upstream_neighbour():
    """Path state is kept per TSI. An SPM that is not newer is neither recorded nor forwarded."""
    bench = Bench(setup=NO_PARENTS).begin(20, spm_sqn=5)
    bench.hear(spm_packet(6, 0, 19, path_nla=NEIGHBOUR), UP, SOURCE)
    bench.hear(spm_packet(9, 0, 5, path_nla=SOURCE, tsi=OTHER_TSI), UP, SOURCE)
    bench.log.clear()
    for stale in (6, 5, 0, 6 - (1 << 31)):
        assert bench.hear(spm_packet(stale, 0, 19, path_nla=OTHER_NEIGHBOUR), UP, SOURCE) == []
    bench.nak(A, 3)
    assert [send.to for _, send, _ in bench.sent(T.NAK)] == [NEIGHBOUR]
    bench.nak(A, 3, tsi=OTHER_TSI)
    assert [send.to for _, send, _ in bench.sent(T.NAK)] == [NEIGHBOUR, SOURCE]
    bench.hear(spm_packet(7, 0, 19, path_nla=OTHER_NEIGHBOUR), UP, SOURCE)
    bench.nak(A, 4)
    assert [send.to for _, send, _ in bench.sent(T.NAK)] == [NEIGHBOUR, SOURCE, OTHER_NEIGHBOUR]


@pytest.mark.rfc("NE-02", "W-11")
def test_spms_go_down_with_the_address_of_each_segment():
    """SPMs never go back up. All octets but path and checksum stay, and the checksum is correct."""
    bench = Bench()
    spm = as_received(spm_packet(7, 3, 30, Join(31), UnknownOption(number=0x44, value=b"kept")))
    bench.hear(Train.of(spm.octets), UP, SOURCE)
    found = [(send.segment, send.to, item) for _, send, item in bench.sent(T.SPM)]
    assert [(segment, to) for segment, to, _ in found] == [(A, None), (B, None), (C, None)]
    for segment, _, item in found:
        assert isinstance(item, Spm)
        assert item.path_nla == segment.address
        assert attrs.evolve(item, path_nla=SOURCE) == spm
        assert checksum.is_valid(item.octets)
        changed = [at for at in range(len(item.octets)) if item.octets[at] != spm.octets[at]]
        assert set(changed) <= {6, 7, 32, 33, 34, 35}


@pytest.mark.rfc("NE-01", "NE-02")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_stale_spms_are_not_forwarded(kind):
    bench = Bench(kind).begin(spm_sqn=5)
    for stale in (5, 4, 5 - (1 << 31)):
        bench.hear(spm_packet(stale, 0, 19), UP, SOURCE)
    assert bench.sent(T.SPM) == []
    bench.hear(spm_packet(6, 0, 19), UP, SOURCE)
    assert [send.segment for _, send, _ in bench.sent(T.SPM)] == [A, B, C]


@pytest.mark.rfc("NE-03", "NE-10")
def test_naks_follow_the_path_and_not_the_source_address_they_carry():
    bench = Bench(setup=NO_PARENTS)
    bench.hear(spm_packet(1, 0, 19, path_nla=NEIGHBOUR), UP, NEIGHBOUR)
    bench.nak(A, 3)
    [(_, send, _)] = bench.sent(T.NAK)
    assert (send.segment, send.to) == (UP, NEIGHBOUR)


@pytest.mark.rfc("NE-04")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_odata_passes_octet_for_octet(kind):
    """ODATA with known or unknown options goes down once on each segment."""
    options = (Fragment(5, 0, 24), UnknownOption(number=0x5F, octet2=0xF8, octet3=0x7F, value=b"\0" * 8))
    bench = Bench(kind).begin(5)
    train = data_train([5, 6], options=options)
    bench.hear(train, UP, SOURCE)
    for segment in (A, B, C):
        sent = [bytes(send.octets) for _, send in bench.log if send.segment is segment]
        assert b"".join(sent) == train.buffer.tobytes()


@pytest.mark.rfc("NE-04")
def test_pro_active_parity_does_not_disturb():
    """Pro-active parity goes down, and counts neither as data nor as a repair of its sqn."""
    bench = Bench().begin()
    bench.nak(A, 5)
    parity = data_packet(5, payload_of(5), parity=True)
    bench.log.clear()
    bench.hear(Train.of(parity), UP, SOURCE)
    assert [(send.segment.name, bytes(send.octets)) for _, send in bench.log] == [(one, parity) for one in "abc"]
    bench.ncf(5)
    bench.rdata(5)
    assert bench.where(T.RDATA) == [("a", (5,))]


@pytest.mark.rfc("NE-17")
def test_ne_session_of_a_nak_is_found_by_tsi_alone():
    """NAKs of OpenPGM's receivers carry the path's address as the source address.

    The element sends the true source address upstream (INT-Q3).
    """
    bench = Bench().begin()
    packet = nak_packet(5, source_nla=A.address, group_nla=A.group)
    bench.hear(packet, A, BELOW[A.index], is_group=False)
    [(_, send, nak)] = bench.sent(T.NAK)
    assert isinstance(nak, Nak)
    assert (send.segment, send.to, nak.source_nla, nak.group_nla) == (UP, SOURCE, SOURCE, UP.group)
    [(_, _, ncf)] = bench.sent(T.NCF)
    assert isinstance(ncf, Nak)
    assert (ncf.source_nla, ncf.group_nla) == (A.address, A.group)


@pytest.mark.rfc("NE-39", "SPMR-08")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_ne_spmr_is_answered_once_in_ihb_min_and_not_forwarded(kind):
    """For its receivers a relay is the sender of the stream, so the relay answers in place of the source."""
    bench = Bench(kind, ihb_min=50 * MS).begin()
    for step in range(200):
        bench.hear(spmr_packet(), A, BELOW[A.index], is_group=False, after=MS if step else 0)
    assert [at - bench.now + 199 * MS for at in bench.times(T.SPM)] == [0, 50 * MS, 100 * MS, 150 * MS]
    assert {send.segment.name for _, send, _ in bench.sent(T.SPM)} == {"a"}
    assert bench.sent(T.SPMR) == []


# Options that an element does not know


def significant(*, opx: int, octet3: int = 0x15, value: bytes = b"\x01\x02\x03\x04") -> UnknownOption:
    return UnknownOption(number=0x55, octet2=0xF8 | opx, octet3=octet3, value=value)


def with_flag(octets: bytes) -> bytes:
    """Return the packet with the network-significant bit set and a correct checksum."""
    head = octets[:5] + bytes([octets[5] | 0x02]) + b"\0\0" + octets[8:]
    return head[:6] + checksum.checksum(head) + head[8:]


def spm_with(opx: int, *, flag: bool = True) -> bytes:
    octets = encode(spm_packet(8, 0, 19, Join(3), significant(opx=opx), UnknownOption(number=0x56, value=b"")))
    return with_flag(octets) if flag else octets


@pytest.mark.rfc("NE-33", "W-26")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
@pytest.mark.parametrize(("opx", "flag"), [(0, True), (3, True), (1, False), (2, False)])
def test_unknown_options_are_left_alone(kind, opx, flag):
    """With OPX 00, or without a network-significant option, the element does not inspect options."""
    bench = Bench(kind).begin()
    octets = spm_with(opx, flag=flag)
    bench.hear(Train.of(octets), UP, SOURCE)
    found = [item for _, _, item in bench.sent(T.SPM)]
    assert len(found) == 3
    for item in found:
        assert isinstance(item, Spm)
        assert with_path(item, SOURCE) == octets


@pytest.mark.rfc("NE-33", "W-26", "W-27")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_ne_unknown_options_with_opx_01_are_invalidated(kind):
    """With OPX 01 the option type becomes 0x7F; only the checksum changes besides. OPT_END stays in place."""
    bench = Bench(kind).begin()
    octets = spm_with(1)
    bench.hear(Train.of(octets), UP, SOURCE)
    found = [item for _, _, item in bench.sent(T.SPM)]
    assert len(found) == 3
    at = octets.index(bytes([0x55, 8, 0xF9]))
    for item in found:
        assert isinstance(item, Spm)
        assert checksum.is_valid(item.octets)
        restored = with_path(item, SOURCE)
        assert [place for place in range(8, len(octets)) if restored[place] != octets[place]] == [at]
        assert restored[at] == 0x7F


@pytest.mark.rfc("NE-33", "W-26")
def test_the_last_option_keeps_opt_end_when_it_is_invalidated():
    bench = Bench().begin()
    octets = with_flag(encode(spm_packet(8, 0, 19, significant(opx=1))))
    bench.hear(Train.of(octets), UP, SOURCE)
    _, _, item = bench.sent(T.SPM)[0]
    assert isinstance(item, Spm)
    assert item.octets[octets.index(bytes([0xD5, 8, 0xF9]))] == 0xFF


@pytest.mark.rfc("NE-33", "W-26")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_ne_packets_with_unknown_opx_10_are_discarded(kind):
    """With OPX 10 the element discards and counts the whole packet, for every type that it handles."""
    bench = Bench(kind).begin()
    bench.hear(Train.of(spm_with(2)), UP, SOURCE)
    assert bench.sent(T.SPM) == []
    option = significant(opx=2)
    nak = attrs.evolve(nak_packet(5, source_nla=SOURCE, group_nla=A.group), options=(option,))
    bench.hear(Train.of(with_flag(encode(nak))), A, BELOW[A.index], is_group=False)
    assert bench.log == []
    bench.nak(A, 5)
    ncf = attrs.evolve(nak_packet(5, kind=T.NCF, source_nla=SOURCE, group_nla=UP.group), options=(option,))
    bench.hear(Train.of(with_flag(encode(ncf))), UP, SOURCE)
    rdata = with_flag(data_packet(5, payload_of(5), kind=T.RDATA, options=(option,)))
    bench.hear(Train.of(rdata), UP, SOURCE)
    if kind == "aggregator":  # a repairer has the packet from its cache
        assert bench.where(T.RDATA) == []
    assert bench.core.counters.opx_discarded == 4
    # The packet that would have been in sequence was not recorded either.
    bench.hear(spm_packet(8, 0, 19), UP, SOURCE)
    assert len(bench.sent(T.SPM)) == 3


@pytest.mark.rfc("NE-33", "W-26")
def test_repairs_are_forwarded_with_their_unknown_option_invalidated():
    bench = Bench().begin()
    bench.nak(A, 5)
    rdata = with_flag(data_packet(5, payload_of(5), kind=T.RDATA, options=(significant(opx=1),)))
    bench.hear(Train.of(rdata), UP, SOURCE)
    [(_, send, item)] = bench.sent(T.RDATA)
    assert isinstance(item, Data)
    octets = bytes(send.octets)
    assert [place for place in range(8, len(rdata)) if octets[place] != rdata[place]] == [28]
    assert octets[28] == 0xFF
    assert item.options == (UnknownOption(0x7F, 0xF9, 0x15, b"\x01\x02\x03\x04"),)


@pytest.mark.rfc("W-26")
def test_options_that_are_known_are_never_judged_by_opx():
    """OpenPGM leaves uninitialised memory in that octet (INT-Q7)."""
    bench = Bench().begin()
    octets = bytearray(encode(nak_packet(5, 7, source_nla=SOURCE, group_nla=A.group)))
    octets[36 + 4 + 2] = 0xFE  # the octet of the reserved bits, F and OPX of the NAK list
    octets[6:8] = b"\0\0"
    octets[6:8] = checksum.checksum(bytes(octets))
    bench.hear(Train.of(bytes(octets)), A, BELOW[A.index], is_group=False)
    assert bench.where(T.NCF) == [("a", (5, 7))]
    assert bench.where(T.NAK) == [("core", (5, 7))]


# Packets that elements leave to other nodes


def test_an_element_on_one_segment_sends_neither_spms_nor_data():
    bench = Bench(setup=ElementSetup(LAN, (LAN,), parents=(SOURCE,)))
    bench.hear(spm_packet(1, 0, 19), LAN, SOURCE)
    bench.hear(data_train(range(20)), LAN, SOURCE)
    bench.hear(spmr_packet(), LAN, "10.0.0.9", after=SECOND)
    assert bench.log == []


def test_ne_unsolicited_poll_responses_are_ignored():
    bench = Bench().begin()
    bench.hear(Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=1, poll_round=0), A, BELOW[A.index], is_group=False)
    assert bench.log == []
