"""Sources, receivers and the wire in the 25 most important tests."""

from __future__ import annotations

import itertools
import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.node.roles import build_core
from pgm.core.effects import LossCause
from pgm.core.source.source import SourceCore
from pgm.sim.runs.swarm import with_first_sqns
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire import checksum
from pgm.wire.control_packets import Nak, Polr, decode_control_untrusted, encode, ncf_for, with_addresses, with_path
from pgm.wire.data_packets import build_rdata
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL, PacketType
from pgm.wire.options import (
    Cr,
    Crqst,
    CurrTgsize,
    Fragment,
    Join,
    NakBoIvl,
    NakBoRng,
    NbrUnreach,
    ParityPrm,
    PathNla,
    Redirect,
    Rst,
    UnknownOption,
    encode_options,
)
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, checksum_of, data_packet, ones_complement_sum, without_checksum
from tests.rfc.bench import as_received
from tests.sim.support.worlds import finish, lossy, make_world, traffic
from tests.sim.support.worlds import parameters as lan_parameters
from tests.unit.core.makers import (
    BY_UNICAST,
    GROUP,
    MS,
    PARENT,
    PEER,
    SOURCE,
    data_train,
    nak_packet,
    ncf_packet,
    payload_of,
    run_of,
    sent_control,
    sent_items,
    spm_packet,
    spmr_packet,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source.sources import QUIET, START, octets_of, receive, run, source, with_data

T, L = PacketType, LossCause
REORDER, BO, RPT, RDATA = 10 * MS, 1, 50 * MS, 200 * MS
EXACT = {
    "reorder_ivl": REORDER,
    "nak_bo_ivl": BO,
    "nak_rpt_ivl": RPT,
    "nak_rdata_ivl": RDATA,
    "nak_max_ivl": MS,
    "stall_ivl": 3600 * SECOND,
    "peer_expiry": 7200 * SECOND,
}


def whole_session(first: int, spm_sqn: int) -> tuple[object, ...]:
    """Return all counters, the ends of the streams and the last delivery of a whole session.

    The tree has a source, a lossy relay, a repairer and two receivers with more losses.
    """
    tree = TreeBuilder(lan_parameters(txw_secs=SECOND, txw_adv_secs=100 * MS, private_options=True))
    tree.source("source", "core")
    tree.aggregator("relay", "core", "floor", parents=("source",), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(2):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    build = with_first_sqns(build_core, {"source": first})

    def factory(*given_):
        core = build(*given_)
        if isinstance(core, SourceCore):
            core._spms.spm_sqn = spm_sqn
        return core

    world = make_world(
        tree,
        traffic(400, close_at_ns=2 * SECOND),
        seed=1,
        wirings={"receiver": lossy(0.1), "relay": lossy(0.05), "repairer": lossy(0.05)},
        factory=factory,
    )
    finish(world)
    counted = {name: attrs.asdict(node.core.counters) for name, node in world.nodes.items() if node.core}
    ends = [(one.delivered_sqns, one.lost_sqns, one.messages, one.is_complete) for one in _streams(world)]
    return counted, ends, world.log.last_delivery_ns


def _streams(world):
    return [one for node in world.receivers for one in node.application.all_streams]


@pytest.mark.rfc("W-17", "W-18", "RCV-04")
def test_01_sequence_wrap():
    """Data, losses, NAK lists, repairs, trail, SPM_SQN and repair state work across 2^32 as at 1000."""
    expected = whole_session(1000, 10)
    assert expected[1] == [(400, 0, 400, True)] * 2
    assert expected[0]["relay"]["nak_sqns_in"] > 10
    for first, spm_sqn in (((1 << 32) - 150, (1 << 32) - 4), ((1 << 32) - 1, (1 << 31) - 3)):
        assert whole_session(first, spm_sqn) == expected


# Test 2: the events of the receiver, and the time of its next NAK after them; None if recovery has ended.
TABLE = {
    ("BACK_OFF", "nothing"): REORDER + BO,
    ("BACK_OFF", "NCF"): RDATA + BO,
    ("BACK_OFF", "NAK"): RPT + BO,
    ("BACK_OFF", "data"): None,
    ("BACK_OFF", "trail"): None,
    ("WAIT_NCF", "nothing"): RPT + BO,
    ("WAIT_NCF", "NCF"): RDATA + BO,
    ("WAIT_NCF", "NAK"): RPT + BO,
    ("WAIT_NCF", "data"): None,
    ("WAIT_NCF", "trail"): None,
    ("WAIT_DATA", "nothing"): RDATA + BO,
    ("WAIT_DATA", "NCF"): RDATA + BO,
    ("WAIT_DATA", "NAK"): RDATA + BO,
    ("WAIT_DATA", "data"): None,
    ("WAIT_DATA", "trail"): None,
}


def in_state(state: str, **changes: object) -> tuple[Reader, int]:
    """Return a reader that has just entered a state over the loss of sqn 1, and the time."""
    reader = Reader(**EXACT | changes)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train([0, 2]))
    if state != "BACK_OFF":
        reader.wait(REORDER + BO)
        assert reader.naks() == [[1]]
    if state == "WAIT_DATA":
        reader.hear(ncf_packet(1))
    reader.sent.clear()
    return reader, reader.now


@pytest.mark.rfc("RCV-34", "RCV-35", "RCV-36", "RCV-37", "RCV-38", "RCV-39", "RCV-40", "RCV-49")
@pytest.mark.parametrize(("state", "event"), TABLE)
def test_02_nak_state_machine_table(state, event):
    """Every state and event appears on the wire: the exact time of the next NAK, and the number of NAKs."""
    reader, at = in_state(state, nak_ncf_retries=1000, nak_data_retries=1000)
    if event != "nothing":
        at += 3 * MS
        reader.wait(3 * MS)
        packet = {
            "NCF": ncf_packet(1),
            "NAK": nak_packet(1),
            "data": data_train([1], kind=T.RDATA),
            "trail": spm_packet(2, 2, 2),
        }[event]
        reader.hear(packet, peer=PEER)
    expected = TABLE[state, event]
    if expected is None:
        reader.wait(SECOND)
        assert reader.naks() == []
        assert reader.lost() == ({1: L.WINDOW} if event == "trail" else {})
        assert reader.next_sqn() == 3
        return
    reader.until(at + expected - 1)
    assert reader.naks() == []
    reader.until(at + expected)
    assert reader.naks() == [[1]]
    _naks_until_cancelled(event)


def _naks_until_cancelled(event: str, retries: int = 3) -> None:
    """Exceeding either limit cancels: that many repeats follow the first NAK."""
    answers = event == "NCF"
    limits = {"nak_ncf_retries": 1 if answers else retries, "nak_data_retries": retries if answers else 1}
    reader, _ = in_state("BACK_OFF", **limits)
    seen = 0
    while not reader.lost():
        reader.until(reader.core.deadline_ns)
        if answers and len(reader.naks()) > seen:
            seen = len(reader.naks())
            reader.hear(ncf_packet(1))
    assert reader.lost() == {1: L.RETRIES}
    assert len(reader.naks()) == retries + 1


# Test 9: fixed octets.
VECTORS = [
    (Fragment(0x01020304, 0x0A, 0x1000), T.ODATA, "8110 0000 01020304 0000000A 00001000", False),
    (Join(7), T.SPM, "8308 0000 00000007", False),
    (NakBoIvl(0x1000, 5), T.NCF, "840C 0000 00001000 00000005", True),
    (NakBoRng(0x2000, 0x1000), T.SPM, "850C 0000 00002000 00001000", True),
    (Redirect("10.0.0.3"), T.POLR, "870C 0000 0001 0000 0A000003", True),
    (Redirect("fe80::3"), T.POLR, "8718 0000 0002 0000 FE800000000000000000000000000003", True),
    (ParityPrm(64, proactive=True), T.SPM, "8808 0002 00000040", True),
    (ParityPrm(64, on_demand=True), T.SPM, "8808 0001 00000040", True),
    (CurrTgsize(5), T.RDATA, "8A08 0000 00000005", True),
    (CurrTgsize(5), T.ODATA, "8A08 0000 00000005", False),
    (NbrUnreach(), T.NCF, "8B04 0000", True),
    (PathNla("10.0.0.5"), T.NCF, "8C08 0000 0A000005", True),
    (Rst(no_naks=True, error=0x15), T.SPM, "8F04 0055", False),
    (Crqst(wants_ne_wl=True), T.SPM, "9104 0004", True),
    (Crqst(wants_ne_wp=True), T.SPM, "9104 0002", True),
    (Crqst(wants_rx_wp=True), T.SPM, "9104 0001", True),
    (Cr(9, 1, 2, 3, "10.0.0.9", has_ne_wl=True, has_rx_wp=True), T.NAK,
     "9018 0005 00000009 0001 0002 0003 0000 0001 0000 0A000009", True),
    (UnknownOption(0x7E, 0x04, 0x80, b""), T.SPM, "FE04 0480", False),
]  # fmt: skip


@pytest.mark.rfc("W-05", "W-06", "W-22", "W-25", "W-34")
def test_09_option_bits_against_fixed_octets():
    """Lengths and bit positions follow all implementations where the text of the RFC is wrong."""
    for option, carrier, octets, is_significant in VECTORS:
        body = bytes.fromhex(octets)
        total = 4 + len(body)
        assert encode_options((option,), carrier) == (
            bytes([0, 4]) + total.to_bytes(2, "big") + body,
            is_significant,
        ), option
    assert UnknownOption(0x7E, 0xFB).opx == 3
    flags = {
        data_packet(1)[5]: 0x00,
        data_packet(1, options=(Join(1),))[5]: 0x01,
        encode(nak_packet(1, 2))[5]: 0x03,
        data_packet(1, parity=True)[5]: 0x80,
        encode(spm_packet(1, 0, 0, Join(1)))[5]: 0x01,
        encode(spm_packet(1, 0, 0, NakBoIvl(1, 0)))[5]: 0x03,
    }
    assert all(found == expected for found, expected in flags.items())
    var_pktlen = bytearray(without_checksum(encode(nak_packet(1))))
    var_pktlen[5] = 0x40
    assert Train.of(bytes(var_pktlen)).parse_untrusted() == ([], ["flags"])
    var_pktlen[5] = 0xC0
    assert Train.of(bytes(var_pktlen)).parse_untrusted()[1] == []


@pytest.mark.rfc("W-14", "RCV-50")
def test_10_port_order():
    """The data-destination port comes first upstream, the data-source port downstream.

    Both orders lead to the session.
    """
    source_port, data_port = TSI[6:], DATA_PORT.to_bytes(2, "big")
    nak = as_received(nak_packet(5, source_nla=SOURCE, group_nla=GROUP))
    assert isinstance(nak, Nak)
    up = [
        nak.octets,
        encode(nak_packet(5, kind=T.NNAK)),
        encode(spmr_packet()),
        encode(Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=1, poll_round=0)),
    ]
    odata = data_packet(5, payload_of(5))
    down = [ncf_for(nak), encode(spm_packet(1, 0, 5)), odata, build_rdata([run_of(5, 1)], 0).tobytes()]
    assert {packet[:4] for packet in up} == {data_port + source_port}
    assert {packet[:4] for packet in down} == {source_port + data_port}
    for packet in up + down:
        [item], rejects = Train.of(packet).parse_untrusted()
        assert (item.tsi, item.data_port, rejects) == (TSI, DATA_PORT, [])


@pytest.mark.rfc("RCV-20", "RCV-22")
@pytest.mark.parametrize("spm_sqn", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_11_first_spm_rule(spm_sqn):
    """A gap before the first SPM is held, neither lost nor asked for.

    Any SPM_SQN is accepted first; older and equal ones are ignored.
    """
    reader = Reader(open_hold_ivl=MS, nak_ncf_retries=1, nak_data_retries=1)
    reader.hear(data_train([0, 1, 4]))
    for _ in range(20):
        reader.hear(data_train([4]), after=100 * MS)
    assert (reader.naks(), reader.lost(), reader.delivered()) == ([], {}, [0, 1])
    reader.hear(spm_packet(spm_sqn, 0, 4))
    reader.wait(20 * MS)
    assert reader.naks() == [[2, 3]]
    for older in (spm_sqn, spm_sqn - 1, spm_sqn - (1 << 31)):
        reader.hear(spm_packet(older, 4, 900, path_nla=PARENT))
    assert (reader.lost(), reader.next_sqn()) == ({}, 2)
    reader.sent.clear()
    reader.hear(data_train([6]))
    reader.wait(20 * MS)
    assert {send.to for _, send in reader.sent} == {SOURCE}
    reader.hear(spm_packet(spm_sqn + 1, 4, 6))
    assert reader.lost() == {2: L.WINDOW, 3: L.WINDOW}


@pytest.mark.rfc("RCV-01", "RCV-02", "RCV-03")
def test_12_late_join():
    """After data 1000 with trail 100, no sqn up to 1000 is asked for.

    OPT_JOIN 900 asks from 900 on. An SPM does not move the start.
    """
    reader = Reader(**EXACT)
    reader.hear(spm_packet(1, 100, 990))
    assert reader.marks == []
    reader.hear(data_train([1000], trail=100))
    assert reader.opened() == [(1000, False)]
    for number, (trail, lead) in enumerate([(100, 1000), (900, 1000), (999, 1000)], 2):
        reader.hear(spm_packet(number, trail, lead), after=SECOND)
        reader.hear(data_train([1000 + number], trail=trail))
        reader.wait(100 * MS)
    assert min(reader.asked()) > 1000
    joining = Reader(**EXACT | {"nak_max_outstanding": 200})
    joining.hear(spm_packet(1, 100, 999))
    joining.hear(data_train([1000], trail=100, options=(Join(900),)))
    assert joining.opened() == [(900, False)]
    joining.wait(REORDER + BO)
    assert joining.asked() == set(range(900, 1000))


@pytest.mark.rfc("SRC-22", "SRC-23", "SRC-24")
def test_16_heartbeat_arithmetic():
    """After data at 0 and 100 to 800 ms, heartbeats follow at 100, 300, 700, 1500 and 2300.

    RDATA resets the interval. Ambient SPMs come in between and reset nothing.
    """
    beats = {"ihb_min": 100 * MS, "ihb_max": 800 * MS, "rdata_hold_ivl": 0}

    def spms(core, begun, until):
        return [(now - begun) // MS for now, effects in run(core, begun + until) if sent_control(effects, T.SPM)]

    core = source(**beats, ambient_spm_ivl=3600 * SECOND)
    core.handle_deadline(START)
    core.submit([payload_of(0)])
    begun = core.deadline_ns
    core.handle_deadline(begun)
    assert spms(core, begun, 4000 * MS) == [100, 300, 700, 1500, 2300, 3100, 3900]
    asked_at = begun + 4100 * MS
    receive(core, nak_packet(0, source_nla=core.setup.segment.address, group_nla=GROUP), asked_at)
    assert spms(core, asked_at, 1500 * MS) == [100, 300, 700, 1500]
    # Ambient SPMs every 400 ms neither postpone the running interval nor shorten it.
    core = source(**beats, ambient_spm_ivl=400 * MS)
    core.handle_deadline(START)
    core.submit([payload_of(0)])
    core.handle_deadline(max(START, core.deadline_ns))
    assert spms(core, START, 2000 * MS) == [100, 300, 400, 700, 800, 1200, 1500, 1600, 2000]
    # Under continuous data no heartbeat is due, and ambient SPMs continue.
    core, seen = source(**beats, ambient_spm_ivl=400 * MS), []
    for at in range(START, START + 2 * SECOND, 10 * MS):
        core.submit([payload_of(at)])
        while core.deadline_ns <= at:
            seen += [(at - START) // MS for _ in sent_control(core.handle_deadline(at), T.SPM)]
    assert seen == [0, 400, 800, 1200, 1600]


@pytest.mark.rfc("RCV-23", "RCV-24", "RCV-30", "W-20")
def test_17_spm_stale_window():
    """A newer SPM with old edges changes the path alone.

    The "no window" edges change nothing, and the lead reveals the tail.
    """
    reader = Reader(**EXACT)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train(range(1000, 1010), trail=100))
    reader.hear(spm_packet(2, 50, 500, path_nla=PARENT))
    reader.hear(spm_packet(3, NO_WINDOW_TRAIL, NO_WINDOW_LEAD, path_nla=PARENT))
    [row] = reader.core.status(reader.now)
    assert (row.trail, row.lead, reader.naks(), reader.lost()) == (100, 1009, [], {})
    reader.hear(spm_packet(4, 50, 1011, path_nla=PARENT))
    reader.wait(REORDER + BO)
    assert reader.naks() == [[1010, 1011]]
    assert [send.to for _, send in reader.sent] == [PARENT]
    reader.hear(spm_packet(5, 1011, 1010))
    assert reader.lost() == {1010: L.WINDOW}


@pytest.mark.rfc("SPMR-02", "SPMR-03", "SPMR-04", "SPMR-05", "SPMR-06", "SRC-26")
def test_18_spm_requests():
    """After a random delay the request goes to the group with one hop, and to the source.

    A request of a peer or the SPM suppresses it. It is repeated later.
    """
    delays = set()
    for seed in range(20):
        reader = Reader(seed=seed, spmr_bo_ivl=250 * MS, spmr_spm_ivl=SECOND)
        begun = reader.now
        reader.hear(data_train([0]))
        reader.wait(250 * MS)
        assert [(send.to, send.hops) for _, send in reader.sent] == [(None, 1), (SOURCE, None)]
        delays.add(reader.sent[0][0] - begun)
    assert len(delays) > 15
    peer = Reader(spmr_bo_ivl=250 * MS, spmr_spm_ivl=SECOND)
    peer.hear(data_train([0]))
    peer.hear(as_received(spmr_packet()), peer=PEER)
    peer.wait(SECOND - MS)
    assert peer.sent == []
    peer.hear(data_train([1]))
    peer.wait(MS + 250 * MS)
    assert len(peer.sent) == 2
    served = Reader(spmr_bo_ivl=250 * MS)
    served.hear(data_train([0]))
    served.hear(spm_packet(1, 0, 0))
    served.wait(5 * SECOND)
    assert served.sent == []
    core = source(**QUIET | {"ihb_min": 50 * MS})
    core.handle_deadline(START)
    answers = [len(receive(core, spmr_packet(), START + SECOND + step * MS)) for step in range(101)]
    assert [step for step, count in enumerate(answers) if count] == [0, 50, 100]


@pytest.mark.rfc("W-08", "W-09", "W-10", "W-11")
@given(payload=st.binary(max_size=65), seed=st.integers(0, 1 << 30))
def test_19_checksums(payload, seed):
    """Checksums hold for any length, and a computed 0 is sent as 0xFFFF.

    A checksum of 0 is accepted on control packets and not on data. Rewritten packets keep a correct checksum.
    """
    packet = data_packet(seed & 0xFFFF, payload)
    assert int.from_bytes(packet[6:8], "big") == checksum_of(packet) != 0
    assert ones_complement_sum(packet) == 0xFFFF
    # A word that makes the sum of the rest 0xFFFF, so that the checksum would be 0.
    open_end = data_packet(0, payload + b"\0" * (len(payload) % 2) + b"\0\0")
    missing = 0xFFFF - ones_complement_sum(open_end[:6] + b"\0\0" + open_end[8:])
    zero = open_end[:6] + b"\xff\xff" + open_end[8:-2] + missing.to_bytes(2, "big")
    assert checksum_of(zero) == 0xFFFF
    [found], rejects = Train.of(zero).parse_untrusted()
    assert rejects == []
    repaired = build_rdata([found.run(0)], seed).tobytes()
    assert int.from_bytes(repaired[6:8], "big") == checksum_of(repaired) != 0
    assert Train.of(without_checksum(packet)).parse_untrusted() == ([], ["no_checksum"])
    spm, nak = as_received(spm_packet(seed, 0, 5)), as_received(nak_packet(5))
    assert Train.of(without_checksum(spm.octets)).parse_untrusted()[1] == []
    for rewritten in (with_path(spm, "10.9.8.7"), with_addresses(nak, "10.9.8.7", "239.9.9.9"), ncf_for(nak)):
        assert checksum.is_valid(rewritten)
        decode_control_untrusted(rewritten)


@pytest.mark.rfc("SRC-01", "SRC-02", "SRC-03", "SRC-04", "SRC-05")
@given(seed=st.integers(0, 1 << 30), rate=st.sampled_from([100_000, 1_000_000]))
def test_20_token_and_leaky_bucket(seed, rate):
    """Over random traffic, no time T carries more than bucket + rate x T.

    NCFs are never late, and refusals do not change the order.
    """
    rng = random.Random(seed)
    burst, peak = 20 * MS, 4
    limits = {"txw_max_rte": rate, "txw_burst_ivl": burst, "txw_peak_ratio": peak, "txw_peak_ivl": 1}
    core = with_data(50, **limits, rdata_hold_ivl=0, ncf_ivl=0, ambient_spm_ivl=30 * MS, ihb_min=10 * MS)
    now, log, expected = START + 5 * SECOND, [], 50
    for _ in range(60):
        now = max(now + rng.choice([0, 0, MS, 30 * MS]), now)
        if rng.random() < 0.5:
            core.submit([rng.randbytes(rng.randint(0, 1400)) for _ in range(rng.randint(1, 4))])
        if rng.random() < 0.3:
            sqn = rng.randrange(50)
            nak = nak_packet(sqn, source_nla=core.setup.segment.address, group_nla=GROUP)
            answer = core.receive(Train.of(encode(nak)), BY_UNICAST, PEER, now)
            assert [item.type for item in sent_items(answer)] in ([T.NCF], [T.NCF, T.RDATA])
            log += [(now, octets_of(effect)) for effect in answer if effect.is_data]
        if core.deadline_ns <= now:
            effects = core.handle_deadline(now)
            kinds = [item.type for item in sent_items(effects)]
            assert kinds == sorted(kinds, key=lambda kind: {T.NCF: 0, T.SPM: 1}.get(kind, 2))
            log += [(now, octets_of(effect)) for effect in effects if effect.is_data]
            for item in sent_items(effects):
                if item.type is T.ODATA:
                    assert item.wire_sqn == expected
                    expected += item.count
    for index, (begun, _) in enumerate(log):
        total = 0
        for then, octets in log[index:]:
            total += octets
            assert total <= rate * (burst + then - begun) // SECOND + 1500
    for (sooner, octets), (later, _) in itertools.pairwise(log):
        assert later - sooner >= octets * SECOND // (rate * peak) - 1


@pytest.mark.rfc("SEC-06", "SEC-07", "SEC-03")
def test_25_hostile_input():
    """The packets are cut anywhere, have options of every wrong length, and jump far.

    Effects are counted and bounded, and no exception is raised.
    """
    reader = Reader(**EXACT)
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(data_train(range(10)))
    nasty = [data_packet(10, payload_of(10), options=(Fragment(10, 0, 12),)), encode(nak_packet(1, 2, 3))]
    nasty += [encode(spm_packet(2, 0, 9, Join(3))), encode(ncf_packet(4, 5)), encode(spmr_packet())]
    for packet in nasty:
        for cut in range(len(packet)):
            reader.hear(Train.of(without_checksum(packet)[: cut or 1]))
    for length in range(4):
        octets = bytes([0, 4, 0, 8, 0x83, length, 0, 0])
        reader.hear(Train.of(data_packet(10, option_octets=octets)))
    many = bytes([0, 4, 0, 4 + 4 * 17]) + bytes([0x0D, 4, 0, 0]) * 16 + bytes([0x8D, 4, 0, 0])
    for octets in (many, bytes([0, 4, 0, 200, 0x8D, 4, 0, 0]), bytes([0, 4, 0, 14, 0x82, 10, 0, 0]) + bytes(6)):
        reader.hear(Train.of(data_packet(10, option_octets=octets)))
    afi = bytearray(without_checksum(encode(nak_packet(1))))
    afi[21] = 9
    reader.hear(Train.of(bytes(afi)))
    rejects = reader.core.counters.rejects
    assert {"truncated", "option_length", "too_many_options", "option_total", "unknown_afi"} <= set(rejects)
    for number, lead in enumerate((1 << 31, (1 << 31) + 8, (1 << 20) + 10, (1 << 30) + 5), 2):
        reader.hear(ncf_packet(lead))
        reader.hear(spm_packet(10 * number, 0, lead))
        reader.hear(data_train([lead]))
    session = next(iter(reader.core.sessions))
    assert session.recovery.missing.sqns <= 4096
    assert reader.next_sqn() == 10
    reader.hear(data_train([10, 11]))
    assert reader.next_sqn() == 12
    core = with_data()
    for sqn in range(0, 1 << 32, 1 << 16)[:2000]:
        receive(core, nak_packet(sqn, source_nla=core.setup.segment.address, group_nla=GROUP), START + SECOND)
    assert core.status(START + SECOND)[0].pending_sqns <= 20
