"""SPM requests: senders, suppression, and answers (RFC 13)."""

from __future__ import annotations

import itertools

import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from tests.reference import DATA_PORT
from tests.rfc.bench import LAN, SOURCE, UP, A, Bench
from tests.sim.support.worlds import Tap, finish, is_a, make_world, parameters, streams, traffic
from tests.unit.core.makers import BY_UNICAST, MS, PEER, SEGMENT, data_train, spm_packet, spmr_packet
from tests.unit.core.reader import Reader

T = PacketType
BO = 250 * MS


def begun(**changes):
    """Return a receiver that has data and no SPM."""
    reader = Reader(spmr_bo_ivl=BO, spmr_spm_ivl=SECOND, open_hold_ivl=10 * SECOND, **changes)
    reader.hear(data_train([0]))
    return reader


def requests(reader):
    return [(at, send.to, send.hops) for at, send in reader.sent]


@pytest.mark.rfc("SPMR-01")
def test_spmr_repair_alone_triggers_a_request():
    """A repair opens no session (RCV-01), but it names one whose SPM the receiver may request."""
    reader = Reader(spmr_bo_ivl=BO)
    reader.hear(data_train([7], kind=T.RDATA))
    assert reader.marks == []
    reader.wait(BO)
    assert [(to, hops) for _, to, hops in requests(reader)] == [(None, 1), (SOURCE, None)]


@pytest.mark.rfc("SPMR-04")
@pytest.mark.parametrize(
    ("request_packet", "channel", "suppresses"),
    [
        (spmr_packet(), Channel(SEGMENT, True), True),
        (spmr_packet(data_port=DATA_PORT + 1), Channel(SEGMENT, True), False),
        (spmr_packet(), BY_UNICAST, False),
    ],
    ids=["of another receiver", "for another port", "by unicast"],
)
def test_spmr_matching_request_suppresses_the_own(request_packet, channel, suppresses):
    """The match is by TSI and data-destination port, the source port of upstream packets (E-07)."""
    reader = begun()
    reader.hear(request_packet, peer=PEER, channel=channel)
    reader.wait(BO)
    assert (requests(reader) == []) == suppresses
    assert reader.core.counters.spmrs_suppressed == suppresses
    reader.hear(data_train([0]), after=SECOND + BO)  # the source is alive and the SPM was lost
    assert len(requests(reader)) >= 2


@pytest.mark.rfc("SPMR-05")
def test_an_spm_within_the_delay_cancels_the_request():
    for seed in range(20):
        reader = begun(seed=seed)
        reader.hear(spm_packet(1, 0, 0))
        reader.wait(5 * SECOND)
        assert requests(reader) == []


@pytest.mark.rfc("SPMR-01", "DLR-01")
def test_a_repairer_asks_as_a_receiver_does():
    """A repairer is a receiver too, and cannot send a NAK for its losses without an SPM."""
    node = Bench("repairer", ElementSetup(UP, (A,), parents=(SOURCE,)), spmr_bo_ivl=BO, spmr_spm_ivl=SECOND)
    node.hear(data_train([0, 1, 4]), UP, SOURCE)
    node.wait(BO)
    assert [(send.segment, send.to, send.hops) for _, send, _ in node.sent(T.SPMR)] == [
        (UP, None, 1),
        (UP, SOURCE, None),
    ]
    node.hear(spm_packet(1, 0, 4), UP, SOURCE)
    node.log.clear()
    node.wait(10 * SECOND)
    assert node.sent(T.SPMR) == []
    assert node.where(T.NAK)[0] == ("core", (2, 3))


@pytest.mark.rfc("SPMR-04", "DLR-01")
def test_spmr_repairer_is_suppressed_by_another_request():
    node = Bench("repairer", ElementSetup(LAN, (LAN,), parents=(SOURCE,)), spmr_bo_ivl=BO, spmr_spm_ivl=SECOND)
    node.hear(data_train([0]), LAN, SOURCE)
    node.hear(spmr_packet(), LAN, PEER)
    node.wait(SECOND - 1)
    assert node.sent(T.SPMR) == []


@pytest.mark.rfc("SPMR-02", "SPMR-03", "SPMR-04", "SPMR-06", "SRC-26")
def test_spmr_crowd_of_late_joiners_asks_about_once():
    """Section 14, test 18: sixty receivers join a running session whose next SPM is far away."""
    tree = TreeBuilder(
        parameters(ambient_spm_ivl=60 * SECOND, ihb_min=50 * MS, ihb_max=60 * SECOND, peer_expiry=200 * SECOND)
    )
    tree.source("source", "lan")
    names = [tree.receiver(f"receiver-{index}", "lan", "source") for index in range(60)]
    requests, spms = Tap(is_a(T.SPMR)), Tap(is_a(T.SPM))
    joined = 2 * SECOND
    # A message every 20 ms keeps postponing the heartbeats.
    offered = traffic(150, rate=50, burst=1, close_at_ns=5 * SECOND)
    world = make_world(tree, offered, starts=dict.fromkeys(names, joined), more=(requests, spms))
    world.run_until(joined + 1500 * MS)
    assert 2 <= len(requests.seen) <= 8
    assert [to for _, _, _, to, _ in requests.seen[:2]] == [None, tree.address("source", "lan")]
    answers = [at for at, *_ in spms.seen if joined < at < joined + SECOND]
    assert 1 <= len(answers) <= 3
    assert all(later - sooner >= 50 * MS for sooner, later in itertools.pairwise(answers))
    assert sum(node.total("spmrs_suppressed") for node in world.receivers) >= 1
    finish(world)
    assert all(one.is_complete for one in streams(world))
