"""Marks of the start and the end of a session: OPT_JOIN, OPT_SYN, OPT_FIN, OPT_RST (RFC 9.4, 9.6 - 9.8)."""

from __future__ import annotations

import pytest

from pgm.core.effects import CloseCause, LossCause, Notice, Opened
from pgm.core.element.setup import ElementSetup
from pgm.sim.faults import Faults
from pgm.sim.trees import TreeBuilder
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, Fragment, Join, Rst, Syn, find
from tests.rfc.bench import SOURCE, UP, A, Bench
from tests.sim.support.worlds import MS, Tap, finish, is_a, lossy, make_world, parameters, stream, streams, traffic
from tests.unit.core.makers import (
    BY_UNICAST,
    GROUP,
    OWN,
    PEER,
    data_train,
    nak_packet,
    payload_of,
    sent_control,
    sent_items,
    spm_packet,
    train_of,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source import sources
from tests.unit.core.source.sources import QUIET, START

T = PacketType


def source(**changes):
    return sources.source(**QUIET | changes)


def run(core, until):
    """Serve every deadline up to an instant; return time and packet of everything sent."""
    return [(now, item) for now, effects in sources.run(core, until) for item in sent_items(effects)]


def marks(items):
    """Return the options by first sqn of each run of equal packets."""
    return {
        item.wire_sqn: [type(option) for option in item.options]
        for item in items
        if item.type in (T.ODATA, T.RDATA) and item.options
    }


def nak(*sqns):
    return train_of(nak_packet(*sqns, source_nla=OWN, group_nla=GROUP))


# The source


@pytest.mark.rfc("SRC-29", "SRC-28")
def test_the_first_packet_carries_syn_and_the_last_fin():
    """ODATA and all its repairs carry the marks.

    Every SPM after the last packet carries FIN, and no SPM carries SYN.
    """
    core = source(mark_ends=True, rdata_hold_ivl=0, fin_quiet_ivl=60 * SECOND)
    core.submit([payload_of(sqn) for sqn in range(10)])
    core.close()
    log = [item for _, item in run(core, START + SECOND)]
    assert marks(log) == {0: [Syn], 9: [Fin]}
    assert sum(item.count for item in log if item.type is T.ODATA) == 10
    spms = [item for item in log if item.type is T.SPM]
    assert [find(spm.options, Fin) is not None for spm in spms] == [False, True]
    assert all(find(spm.options, Syn) is None for spm in spms)
    core.receive(nak(0, 5, 9), BY_UNICAST, PEER, START + 2 * SECOND)
    assert marks(item for _, item in run(core, START + 3 * SECOND)) == {0: [Syn], 9: [Fin]}


@pytest.mark.rfc("SRC-29", "SRC-28", "W-34")
def test_marks_single_packet_is_first_and_last_fragment():
    core = source(mark_ends=True)
    core.submit([b"alone"])
    core.close()
    assert marks(item for _, item in run(core, START + SECOND)) == {0: [Syn, Fin]}
    core = source(mark_ends=True, max_tpdu=200)
    core.submit([b"first", bytes(range(256)) * 2])
    core.close()
    items = [item for _, item in run(core, START + SECOND) if item.type is T.ODATA]
    assert items[-1].options[0] == Fragment(first_sqn=1, offset=512 - items[-1].run(0).payloads.size, apdu_length=512)
    assert isinstance(items[-1].options[1], Fin)
    octets = b"".join(item.run(0).payloads.tobytes() for item in items[1:])
    assert octets == bytes(range(256)) * 2


@pytest.mark.rfc("SRC-28")
def test_packets_without_room_carry_no_mark_and_none_grows_too_large():
    """Data packets MAY carry a mark; SPMs announce the end in any case."""
    core = source(mark_ends=True, max_tpdu=128)
    core.submit([bytes(104), bytes(100), bytes(104)])
    core.close()
    items = [item for _, item in run(core, START + SECOND)]
    assert marks(items) == {}
    assert max(item.stride for item in items if item.type is T.ODATA) == 128
    assert find(items[-1].options, Fin) is not None or find(items[0].options, Fin) is not None


@pytest.mark.rfc("SRC-28")
def test_marks_packets_before_the_close_have_no_fin():
    core = source(mark_ends=True)
    core.submit([payload_of(sqn) for sqn in range(3)])
    run(core, START + SECOND)
    core.close()
    later = [item for _, item in run(core, START + SECOND)]
    assert marks(later) == {}
    assert [find(item.options, Fin) is not None for item in later] == [True]


@pytest.mark.rfc("SRC-30")
def test_marks_abort_is_announced_at_once_and_repeatedly():
    """Heartbeats restart and continue with the code until the source leaves.

    Unsent data are never sent.
    """
    core = source(txw_max_rte=10_000, ihb_min=50 * MS, ihb_max=400 * MS, txw_secs=5 * SECOND, fin_quiet_ivl=2 * SECOND)
    core.submit([bytes(976)] * 20)
    run(core, START + 300 * MS)
    lead = core.window.lead
    assert 0 <= lead < 19
    now = START + 300 * MS
    at_once = sent_control(core.abort(now, error=37), T.SPM)
    log = run(core, now + SECOND)
    assert [item.type for _, item in log] == [T.SPM] * len(log)
    assert log[0][0] <= now + 50 * MS
    assert len(log) >= 5
    spms = [*at_once, *(item for _, item in log)]
    assert {find(spm.options, Rst) for spm in spms} == {Rst(no_naks=False, error=37)}
    assert {spm.lead for spm in spms} == {lead}
    assert all(find(spm.options, Fin) is None for spm in spms)
    assert core.window.end == lead + 1
    assert not core.window.has_unsent
    # Without N the source still repairs sent packets.
    assert sent_control(core.receive(nak(0), BY_UNICAST, PEER, now + SECOND), T.NCF)
    assert not core.is_finished(now + 2 * SECOND)
    run(core, now + 10 * SECOND)
    assert core.is_finished(now + 5 * SECOND + 50 * MS)


@pytest.mark.rfc("SRC-30")
def test_marks_reset_with_n_answers_no_nak():
    core = source()
    core.submit([b"one"])
    run(core, START + SECOND)
    spm = sent_control(core.abort(START + SECOND, no_naks=True), T.SPM)[0]
    assert find(spm.options, Rst) == Rst(no_naks=True)
    assert list(core.receive(nak(0), BY_UNICAST, PEER, START + 2 * SECOND)) == []


# The receiver


@pytest.mark.rfc("RCV-27")
def test_marks_syn_reports_the_start_of_the_session():
    """The start is part of `Opened` if data open the session, and a notice if an SPM did.

    A late joiner gets neither.
    """
    reader = Reader()
    reader.hear(data_train([5], options=(Syn(),)))
    reader.hear(spm_packet(1, 5, 5))
    assert [mark.at_start for mark in reader.marks] == [True]
    reader = Reader()
    reader.hear(spm_packet(1, 5, 4, Join(5)))
    effects = reader.hear(data_train([5], options=(Syn(),)))
    assert [mark.at_start for mark in reader.marks] == [False]
    assert [effect.code for effect in effects if isinstance(effect, Notice)] == ["session-start"]
    late = Reader()
    late.hear(spm_packet(1, 5, 9))
    late.hear(data_train([10]))
    late.hear(data_train([5], options=(Syn(),), kind=T.RDATA))
    assert [mark.at_start for mark in late.marks if isinstance(mark, Opened)] == [False]


@pytest.mark.rfc("RCV-25")
def test_marks_fin_on_data_alone_ends_the_session():
    """The packet with FIN is the last one, even if it arrives before others."""
    reader = Reader()
    reader.hear(spm_packet(1, 0, -1, Join(0)))
    reader.hear(data_train([0]))
    reader.hear(data_train([3], options=(Fin(),)))
    assert reader.closed() is None
    reader.hear(data_train([1, 2], kind=T.RDATA))
    reader.wait(SECOND)
    assert reader.closed() is CloseCause.FIN
    assert reader.delivered() == [0, 1, 2, 3]


@pytest.mark.rfc("RCV-26")
@pytest.mark.parametrize("no_naks", [False, True])
def test_a_reset_ends_the_session_with_its_code(no_naks):
    """Without N missing packets are still asked for; with N no NAK leaves once the reset is believed."""
    reader = Reader()
    reader.hear(spm_packet(1, 0, -1, Join(0)))
    reader.hear(data_train([0, 2]))
    reader.hear(spm_packet(2, 0, 2, Rst(no_naks=no_naks, error=9)))
    reader.wait(SECOND)
    naks = len(reader.naks())
    reader.wait(SECOND)
    assert (len(reader.naks()) == naks) is no_naks
    if no_naks:
        assert reader.lost() == {1: LossCause.SOURCE_GONE}
    else:
        reader.hear(data_train([1], kind=T.RDATA))
        assert reader.lost() == {}
    assert (reader.marks[-1].cause, reader.marks[-1].error) == (CloseCause.RESET, 9)


@pytest.mark.rfc("RCV-26", "DLR-16")
def test_marks_reset_with_n_lets_a_repairer_only_serve():
    node = Bench("repairer", ElementSetup(UP, (A,), parents=(SOURCE,)), nak_bo_ivl=10 * MS).begin()
    node.hear(data_train([22]), UP, SOURCE)
    node.hear(spm_packet(2, 0, 22, Rst(no_naks=True)), UP, SOURCE)
    node.wait(SECOND)
    naks = node.sent(T.NAK)
    node.wait(SECOND)
    assert node.sent(T.NAK) == naks
    node.nak(A, 22)
    node.wait(MS)
    assert node.where(T.RDATA) == [("a", (22,))]


# The tree


def relayed(kind, **changes):
    tree = TreeBuilder(parameters(mark_ends=True, **changes))
    tree.source("source", "core")
    getattr(tree, kind)("relay", "core", "floor", parents=("source",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "relay")
    return tree


@pytest.mark.rfc("SRC-28", "SRC-29", "DLR-15", "RCV-25", "RCV-27")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_marks_come_through_elements_and_repairs(kind):
    """The first and the last packet are lost on the last hop, so their repairs carry the marks."""
    repairs = Tap(is_a(T.RDATA))
    world = make_world(
        relayed(kind), traffic(200, close_at_ns=SECOND), more=(repairs,), wirings={"receiver": lossy(0.1)}
    )
    Faults(world).deafen(["receiver-0"], SECOND - 10 * MS, 30 * MS)
    Faults(world).deafen(["receiver-0"], SECOND + 180 * MS, 30 * MS)
    finish(world)
    assert all(one.is_complete and one.is_from_start and one.closed is CloseCause.FIN for one in streams(world))
    found = marks(item for *_, item in repairs.seen)
    assert found[0] == [Syn]
    assert found[199] == [Fin]
    # An SPM with OPT_JOIN opened the session, so the start came as a notice.
    told = {name for _, name, notice in world.log.notices if notice.code == "session-start"}
    assert {node.name for node in world.receivers} <= told


@pytest.mark.rfc("SRC-30", "RCV-26")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_marks_reset_passes_elements_and_repairs_go_on(kind):
    world = make_world(
        relayed(kind), traffic(2000, close_at_ns=20 * SECOND), wirings={"receiver": lossy(0.1), "relay": lossy(0.02)}
    )
    node, reset_ns = world.nodes["source"], 2 * SECOND
    world.at(reset_ns, lambda: node.perform(world.core_of("source").abort(reset_ns, error=5)))
    world.at(reset_ns, node.rearm)
    world.at(reset_ns, lambda: setattr(node.application, "_left", 0))  # the application sends no more
    world.run_until(10 * SECOND)
    sent = node.total("odata_packets")
    assert 900 < sent < 1100
    for name in ("receiver-0", "receiver-1", "receiver-2"):
        one = stream(world, name)
        assert one.closed is CloseCause.RESET
        assert (one.delivered_sqns, one.lost_sqns) == (sent, 0)
    assert node.core is None  # the source has left
