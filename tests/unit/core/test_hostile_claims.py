"""What single packets may claim: members, round trips, terms, groups, numbers. Each of these once did harm."""

from __future__ import annotations

import cbor2
import pytest

from pgm.archive.errors import BadRequest
from pgm.archive.requests import RangeRequest
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.congestion.reports import report_packet
from pgm.core.effects import Notice, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel
from pgm.files.manifest import Manifest
from pgm.files.names import BadManifest
from pgm.files.packets import Announcement, BadPacket, TransferAnswer
from pgm.messages.objects import CBOR, BadObject
from pgm.parameters import ROWS
from pgm.units import MICROSECOND, SECOND
from pgm.wire.control_packets import Ack, Spmr, decode_control_untrusted, encode
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from pgm.wire.options import Acker, Flow, HeldHistory, Members, ParityPrm, find
from pgm.wire.parity import group_of, request_sqn
from pgm.wire.sequence_numbers import MASK
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import BELOW, SOURCE, UP, A, Bench
from tests.unit.core.congestion.test_congestion import report
from tests.unit.core.makers import (
    MS,
    PARENT,
    SEGMENT,
    data_train,
    deadlines,
    evolve,
    nak_packet,
    parameters,
    payload_of,
    sent_control,
    spm_packet,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source.sources import QUIET as NO_SPMS
from tests.unit.core.source.sources import START, nak, receive, run, source

T = PacketType
SIZE = 8


def members_ack(acked, **said):
    options = (Members(**{"members": 1, "holder": "10.0.0.8", "joins": True} | said),)
    return Ack(tsi=TSI, data_port=DATA_PORT, rx_max=acked, bitmap=MASK, options=options)


def acked_source(lead=5, **changes):
    """A source of an acknowledged stream that has sent packets 0 to `lead - 1`."""
    core = source(flow="acked", **NO_SPMS | changes)
    core.submit([payload_of(sqn) for sqn in range(lead)])
    run(core, START + 10 * MS)
    return core


def test_nobody_speaks_for_more_members_than_ack_child_members():
    """Two children that claim 2^32 - 1 receivers each are taken for as many as one may claim, and a receiver for one."""
    core = acked_source(ack_child_members=1000)
    for peer in ("10.0.0.7", "10.0.0.8"):
        [sent] = receive(core, members_ack(2, members=MASK, is_element=True), START + 10 * MS, peer=peer)
    said = find(decode_control_untrusted(bytes(sent.octets)).options, Members)
    assert said.confirms
    assert said.members == core.flow.members == 2000
    receive(core, members_ack(2, members=MASK), START + 10 * MS, peer="10.0.0.9")
    assert core.flow.members == 2001


def test_more_members_than_the_field_holds():
    core = acked_source(ack_child_members=(1 << 31) - 1)
    for peer in ("10.0.0.6", "10.0.0.7", "10.0.0.8"):
        [sent] = receive(core, members_ack(2, members=MASK, is_element=True), START + 10 * MS, peer=peer)
    assert find(decode_control_untrusted(bytes(sent.octets)).options, Members).members == MASK
    assert core.flow.members == 3 * ((1 << 31) - 1)


def test_an_element_says_no_more_members_than_it_was_told_of():
    bench = Bench(ack_child_members=1000)
    flow = Flow(window=64, every=1, ivl_us=1000, expiry_us=3_000_000, stall_us=9_000_000)
    bench.hear(spm_packet(1, 0, -1, flow), UP, SOURCE)
    bench.hear(data_train(range(9)), UP, SOURCE)
    for peer in ("10.1.0.7", "10.1.0.8"):
        bench.hear(members_ack(2, members=MASK, is_element=True), A, peer, is_group=False)
    bench.wait(SECOND)
    acks = [item for _, send, item in bench.sent(T.ACK) if send.segment == UP]
    assert {find(ack.options, Members).members for ack in acks} == {1000, 2000}


@pytest.mark.parametrize("quorum", [2, 3])
def test_leaving_member_with_large_claim_counts_for_one(quorum):
    """A stranger says goodbye for all the world and that it had all; then members leave, or die, that had less."""
    core = acked_source(ack_quorum=quorum, ack_expiry=SECOND)
    now = START + 10 * MS
    for _ in range(9):
        receive(core, members_ack(4, members=MASK, leaves=True), now, peer="10.0.0.66")
    assert core.flow.stable == -1
    for peer, acked in (("10.0.0.9", 0), ("10.0.0.7", 2), ("10.0.0.8", 3)):
        receive(core, members_ack(acked), now, peer=peer)
    receive(core, members_ack(4, members=MASK, leaves=True), now, peer="10.0.0.66")
    for peer, acked in (("10.0.0.7", 2), ("10.0.0.8", 3)):
        receive(core, members_ack(acked, leaves=True), now, peer=peer)
    assert core.flow.stable == 0
    run(core, START + 5 * SECOND)
    assert core.flow.members == 0
    assert core.flow.stable == {2: 3, 3: 2}[quorum]


TERMS = {"ack_expiry": SECOND, "ack_stall_ivl": 2 * SECOND, "ack_element_ivl": 5 * SECOND}


def lagging(core, until, *, ivl=500 * MS, rejoins=0):
    """An element that says the same for ever, as often as wanted also goodbye and hello; a receiver that has all. When it was found."""
    found = []
    for number, at in enumerate(range(START + 10 * MS, until, ivl), 1):
        for now in deadlines(core, START, at):
            found += [(now, one) for one in core.handle_deadline(now) if isinstance(one, Notice)]
        if rejoins and not number % rejoins:
            receive(core, members_ack(0, is_element=True, members=9, leaves=True), at, peer="10.0.0.66")
        receive(core, members_ack(0, is_element=True, members=9), at, peer="10.0.0.66")
        receive(core, members_ack(4), at, peer="10.0.0.7")
    return found


@pytest.mark.parametrize("rejoins", [0, 1, 3])
def test_element_with_stalled_acks_is_not_awaited_for_ever(rejoins):
    core = acked_source(**TERMS)
    found = lagging(core, START + 12 * SECOND, rejoins=rejoins)
    [(at, notice)] = found
    assert notice.code == "element-stuck"
    assert "10.0.0.66" in notice.text
    assert 5 * SECOND <= at - START <= 6 * SECOND
    assert core.counters.members_stuck == 1
    assert core.counters.acks_refused > 3
    assert (core.flow.members, core.flow.stable) == (1, 4)
    receive(core, members_ack(4, is_element=True, members=9), START + 13 * SECOND, peer="10.0.0.66")
    assert core.flow.members == 10  # it has caught up


def test_terms_are_those_that_a_source_may_have():
    least, most = (AckTerms.of_option(Flow(number, number, number, number, number)) for number in (0, MASK))
    for terms, edge in ((least, "low"), (most, "high")):
        assert terms.expiry == getattr(ROWS["ack_expiry"], edge)
        assert terms.stall in (getattr(ROWS["ack_stall_ivl"], edge), MASK * MICROSECOND)
        assert terms.ivl == getattr(ROWS["ack_ivl"], edge)
    assert (least.window, least.every) == (1, 1)


SLOW = Flow(window=1 << 20, every=1 << 20, ivl_us=60_000_000, expiry_us=600_000_000, stall_us=3_600_000_000)
QUICK = Flow(window=64, every=4, ivl_us=10_000, expiry_us=2_000_000, stall_us=9_000_000)


def acks_of(reader, since):
    return [at for at, send in reader.sent if at >= since and sent_control([send], T.ACK)]


def test_the_terms_of_a_forged_spm_are_put_right_by_the_next_one():
    """The first SPM that a receiver hears is forged: one ack a minute. The source's own asks for one in 10 ms."""
    reader = Reader(setup=ReceiverSetup(SEGMENT, parents=(PARENT,)))
    reader.hear(spm_packet(1, 0, -1, SLOW))
    reader.hear(data_train([0]))
    reader.wait(100 * MS)
    begun = reader.now
    for number in range(1, 20):
        reader.hear(data_train([number]), after=20 * MS)
    assert len(acks_of(reader, begun)) <= 2
    reader.hear(spm_packet(2, 0, 19, QUICK))
    begun = reader.now
    for number in range(20, 40):
        reader.hear(data_train([number]), after=20 * MS)
    assert len(acks_of(reader, begun)) >= 10
    assert reader.core.counters.ack_terms_changes == 1
    reader.hear(spm_packet(3, 0, 39, QUICK))
    assert reader.core.counters.ack_terms_changes == 1


def test_acks_after_one_forged_spm_end_soon():
    reader = Reader(setup=ReceiverSetup(SEGMENT, parents=(PARENT,)), peer_expiry=5 * SECOND)
    reader.hear(spm_packet(1, 0, -1, QUICK))
    reader.hear(data_train([0]))
    for number in range(2, 12):
        reader.hear(spm_packet(number, 0, 0), after=SECOND)
    assert acks_of(reader, 0)
    assert not acks_of(reader, reader.now - 4 * SECOND)
    assert reader.core.counters.ack_terms_changes == 1
    reader.hear(spm_packet(12, 0, 0, QUICK))  # should it be wanted after all
    reader.hear(data_train([1]))
    begun = reader.now
    reader.wait(SECOND)
    assert acks_of(reader, begun)


def test_an_element_follows_the_terms_that_are_said_last():
    bench = Bench()
    bench.hear(spm_packet(1, 0, -1, SLOW), UP, SOURCE)
    bench.hear(spm_packet(2, 0, -1, QUICK), UP, SOURCE)
    assert bench.core.counters.ack_terms_changes == 1
    bench.hear(data_train(range(9)), UP, SOURCE)
    bench.hear(members_ack(8), A, "10.1.0.7", is_group=False)
    bench.wait(SECOND)
    bench.hear(members_ack(8), A, "10.1.0.7", is_group=False, after=90 * MS)
    [session] = bench.core.sessions
    assert session.status(bench.now).acked.window == 64
    assert len(bench.sent(T.ACK)) >= 3


def test_forged_parent_address_gets_few_acks():
    """One SPM that asks for an ack each millisecond, of a path that does not answer: tens of acks a second, not a thousand."""
    bench = Bench()
    flow = Flow(window=1, every=1, ivl_us=0, expiry_us=0, stall_us=0)
    bench.hear(spm_packet(1, 0, -1, flow), UP, SOURCE)
    bench.hear(data_train(range(9)), UP, SOURCE)
    bench.hear(members_ack(2, members=1, is_element=True), A, "10.1.0.7", is_group=False)
    for _ in range(10):
        bench.hear(members_ack(2, members=1, is_element=True), A, "10.1.0.7", is_group=False, after=90 * MS)
    asked = [at for at, send, _ in bench.sent(T.ACK) if send.segment == UP]
    assert 10 < len(asked) < 100


def test_a_report_about_an_old_packet_makes_no_long_wait():
    """A receiver that says it has just seen a packet of an hour ago becomes the acker; its source waits seconds for it."""
    core = source(flow="pgmcc")
    core.submit([payload_of(sqn) for sqn in range(9)])
    run(core, START + 10 * MS)
    report(core, "10.0.0.7", 0.9, now=START + 3600 * SECOND, sqn=0)
    assert core.flow.acker == "10.0.0.7"
    assert core.flow.rtt_ns <= 2 * parameters().cc_timeout_ivl
    assert core.flow.deadline_ns - (START + 3600 * SECOND) <= 10 * SECOND


@pytest.mark.rfc("SEC-08")
@pytest.mark.parametrize("nobody", ["0.0.0.0", "::", "239.1.2.3", "ff02::1", "255.255.255.255"])
def test_nobody_becomes_the_acker_that_cannot_acknowledge(nobody):
    core = source(flow="pgmcc")
    core.submit([payload_of(sqn) for sqn in range(9)])
    run(core, START + 10 * MS)
    for loss in (0.5, 0.9):
        report(core, nobody, loss, now=START + 20 * MS, sqn=0)
    assert not core.flow.acker
    assert core.counters.cc_reports_refused == 2
    bench = Bench()
    bench.hear(spm_packet(1, 0, -1, Acker(acker="10.1.0.7")), UP, SOURCE)
    bench.hear(data_train(range(9)), UP, SOURCE)
    [session] = bench.core.sessions
    bench.hear(
        decode_control_untrusted(report_packet(session.state, 8, 0, 1.0, nobody)), A, "10.1.0.66", is_group=False
    )
    assert not bench.sent(T.ACK)
    assert bench.core.counters.cc_reports_refused == 1


def test_silent_acker_stops_the_stream_for_two_timeouts_once():
    """Somebody reports, all the time, in the name of a receiver that does not exist; another one acknowledges when it is elected."""
    core = source(flow="pgmcc", cc_timeout_ivl=500 * MS, cc_bar_ivl=20 * SECOND)
    core.submit([payload_of(sqn) for sqn in range(1000)])
    led = {}
    for at in range(START, START + 30 * SECOND, 50 * MS):
        for now in deadlines(core, at, at):
            core.handle_deadline(now)
        report(core, "10.9.9.9", 0.9, now=at, sqn=0)
        is_acker = core.flow.acker == "10.0.0.7"
        report(core, "10.0.0.7", 0.001, now=at, bitmap=MASK if is_acker else 0)
        led[at - START] = core.window.lead
    # Silent from the first packet on for 0.5 s and 1 s, and so again when it may be elected again.
    assert led[1400 * MS] <= 1
    assert led[4 * SECOND] > 100
    assert core.counters.cc_reports_refused > 300
    assert core.window.lead == 999


def test_reports_that_change_the_acker_all_the_time_cause_few_spms():
    """Each change is told by an SPM to everybody: as often as heartbeats at most, whoever sends such reports."""
    core = source(flow="pgmcc", ihb_min=100 * MS, ambient_spm_ivl=3600 * SECOND, cc_timeout_ivl=10 * SECOND)
    core.submit([payload_of(sqn) for sqn in range(9)])
    run(core, START + 10 * MS)
    sent = []
    for number in range(1000):
        who, loss = (("10.0.0.7", 0.9), ("10.0.0.7", 0.0), ("10.0.0.8", 0.5))[number % 3]
        sent += report(core, who, loss, now=START + 10 * MS + number * MS, sqn=0)
    assert core.counters.acker_changes > 100
    assert 2 <= sum(isinstance(one, Send) for one in sent) <= 11


def test_a_repairer_remembers_no_groups_that_nobody_brings():
    """Parity is asked for of groups long gone: confirmed, forgotten, and never looked at again when data come."""
    bench = Bench("repairer", repair_states=8)
    bench.hear(spm_packet(1, 0, -1, ParityPrm(SIZE, on_demand=True)), UP, SOURCE)
    bench.hear(data_train(range(SIZE)), UP, SOURCE)
    gone = nak_packet(*(-SIZE * (at + 1) for at in range(63)), source_nla=SOURCE, group_nla=A.group, parity=True)
    effects = bench.core.receive(Train.of(encode(gone)), Channel(A, False), "10.1.0.66", bench.now)
    assert [type(one) for one in effects] == [Send]
    lacked = nak_packet(SIZE + 2, source_nla=SOURCE, group_nla=A.group, parity=True)
    bench.hear(data_train([SIZE, *range(SIZE + 2, 2 * SIZE)]), UP, SOURCE)
    bench.hear(lacked, A, "10.1.0.9", is_group=False)
    assert bench.core.counters.states_refused == 0, "only one of eight groups is remembered"
    bench.log.clear()
    bench.hear(data_train([SIZE + 1]), UP, SOURCE)
    bench.wait(SECOND)
    repairs = {(item.parity, group_of(item.wire_sqn, SIZE)) for _, _, item in bench.sent(T.RDATA)}
    assert repairs == {(True, SIZE)}, "the group that lacked a packet is remembered"


GROUP_SIZE, STRIDE, PER_SECOND = 128, 40, 400  # packets of a group, octets of each, and repairs that the rate allows


@pytest.mark.parametrize(("kind", "number"), [("repairer", 20), ("repairer", 0), ("aggregator", 0)])
def test_gone_packets_outside_of_history_are_told_to_nobody(kind, number):
    """A keeper says that packets behind the history are gone, or that no packets are. The gap that begins there stays whole."""
    setup = ElementSetup(UP, (A,), parents=(SOURCE,), keepers=(SOURCE,))
    bench = Bench(kind, setup).begin(20, first=100)
    question = Spmr(tsi=TSI, data_port=DATA_PORT, options=(HeldHistory(amount=0),))
    bench.hear(question, A, BELOW[A.index], is_group=False)
    bench.hear(evolve(question, options=(HeldHistory(amount=50, answers=True),)), UP, SOURCE, is_group=False)
    bench.hear(data_train([300], trail=100), UP, SOURCE)
    bench.nak(A, *range(120, 180), after=20 * MS)
    bench.log.clear()
    gone = HeldHistory(amount=120, number=number, answers=True, by_sqn=True, nothing=True)
    bench.hear(evolve(question, options=(gone,)), UP, SOURCE, is_group=False)
    assert bench.sent(T.SPMR) == []
    bench.rdata(120)
    bench.wait(SECOND)
    assert ("a", (120,)) in bench.where(T.ODATA)


def greedy(groups, first=0):
    """A NAK for as many packets of each group as there are in it."""
    sqns = (request_sqn(first + number * GROUP_SIZE, GROUP_SIZE) for number in range(groups))
    return nak(*sqns, parity=True)


def test_large_parity_nak_is_bounded_and_leaves_others_their_share():
    """8,064 packets are asked for in one packet, ten times a second; somebody else asks for a group of 128."""
    rates = {"rdata_share": 0.25, "txw_max_rte": 4 * PER_SECOND * STRIDE, "txw_secs": 3600 * SECOND}
    core = source(fec_group=GROUP_SIZE, excess_nak_window_ivl=0, **rates, **NO_SPMS)
    core.submit([payload_of(sqn, STRIDE - DATA_HEADER_OCTETS) for sqn in range(63 * GROUP_SIZE)])
    run(core, START + 100 * SECOND)
    responder, counters = core._parity.responder, core.counters
    for second in range(200, 206):
        at = START + second * SECOND
        is_alone = second == 200
        run(core, at - 1)
        before, braked = responder.pending, counters.parity_packets_braked
        assert sent_control(receive(core, greedy(63), at, peer="10.0.0.66"), T.NCF)
        for _ in range(9):
            receive(core, greedy(63), at, peer="10.0.0.66")
        assert responder.pending - before <= PER_SECOND // (1 if is_alone else 2)
        assert counters.parity_packets_braked - braked > 9 * 63 * GROUP_SIZE * 0.9
        before = responder.pending
        receive(core, greedy(1, (62 - second % 200) * GROUP_SIZE), at, peer="10.0.0.9")
        assert responder.pending - before == GROUP_SIZE
    assert counters.parity_packets <= 7 * PER_SECOND


@pytest.mark.parametrize("value", [10**5000, [10**5000], {"a": 10**5000}], ids=["number", "list", "map"])
@pytest.mark.parametrize("key", ["v", "digest", "block", "unit", "files", "folders"])
def test_numbers_of_thousands_of_digits_in_a_list_of_files(key, value):
    good = {"v": 1, "digest": "sha256", "block": 4, "unit": 2, "files": [], "folders": []}
    Manifest.decode(cbor2.dumps(good), 10)
    with pytest.raises(BadManifest):
        Manifest.decode(cbor2.dumps({**good, key: value}), 10)


def test_a_list_of_files_of_more_blocks_than_memory_has():
    """A file of a PiB in blocks of one octet: refused before room is made for its digests."""
    huge = [[b"a", 1 << 50, 0o644, 0, None]]
    octets = cbor2.dumps({"v": 1, "digest": "sha256", "block": 1, "unit": 1, "files": huge, "folders": []})
    with pytest.raises(BadManifest, match="file_block_bytes"):
        Manifest.decode(octets, 10)


def doubled(levels):
    """CBOR in which each item refers twice to the one before: 2 ** levels items in a few octets each."""
    octets = bytes([0x98, levels + 1]) + b"\xd8\x1c\x80"
    for level in range(levels):
        octets += b"\xd8\x1c\x82" + 2 * (b"\xd8\x1d" + bytes([24, level]))
    return octets


def test_values_that_refer_to_themselves_or_grow_without_end():
    wide = b"\xd8\x1c\x99\x75\x30" + bytes(29_999) + b"\xd8\x1d\x00"
    key, member = b"\xa1" + doubled(40) + b"\x00", b"\xd9\x01\x02\x81" + doubled(40)
    for bad in (
        doubled(40),
        doubled(1),
        b"\xd8\x1c\x81\xd8\x1d\x00",
        b"\xd8\x1c\x81\xd9\x00\x1d\x00",
        wide,
        key,
        member,
    ):
        with pytest.raises(BadObject, match="references"):
            CBOR.decode(bad)
    looks_alike = {"octets": b"\xd8\x1d" * 9, "list": list(range(99)), 7: (1, [2, {"a": None}])}
    assert CBOR.decode(CBOR.encode(looks_alike)) == {**looks_alike, 7: [1, [2, {"a": None}]]}


@pytest.mark.parametrize("read", [TransferAnswer.decode, Announcement.decode])
def test_answers_whose_keys_take_ages(read):
    with pytest.raises(BadPacket, match="references"):
        read(b"\xa1" + doubled(40) + b"\x00")


def test_a_digest_may_look_like_a_reference():
    said = Announcement(b"\xd8\x1d" * 16, 7, 7, "10.0.0.1", 7)
    assert Announcement.decode(said.encode()) == said


def test_a_list_of_files_that_would_take_ages_to_be_shown():
    with pytest.raises(BadManifest):
        Manifest.decode(doubled(40), 10)
    entry = b"\xa6" + b"".join(map(cbor2.dumps, ("v", 1, "digest", "sha256", "block", 4, "unit", 2, "folders", [])))
    with pytest.raises(BadManifest):
        Manifest.decode(entry + cbor2.dumps("files") + doubled(40), 100)


def test_a_ticket_that_is_nested_without_end():
    with pytest.raises(BadRequest):
        RangeRequest.from_bytes(b"[" * 100_000)
