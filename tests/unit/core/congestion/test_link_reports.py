"""Worst link and worst path, as elements report them (RFC appendix B)."""

import math
import random
import statistics

import attrs
import pytest

from pgm.core.congestion.link_reports import ALL_LOST, LinkLoss, LinkReports
from pgm.wire.formats import PacketType
from pgm.wire.options import Acker, Cr, Crqst, find
from tests.rfc.bench import SOURCE, UP, A, B, Bench
from tests.unit.core.congestion.test_congestion import controlled
from tests.unit.core.makers import GROUP, MS, OWN, data_train, nak_packet, spm_packet
from tests.unit.core.source.sources import START, receive, run

T = PacketType
RECEIVER = "10.1.0.9"
ALL_WANTED = Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True)


def cr(link=0.0, state=0.0, receiver=0.0, **has):
    given = {"has_ne_wl": True, "has_ne_wp": True, "has_rx_wp": True} | has
    return Cr(19, *(round(one * ALL_LOST) for one in (link, state, receiver)), RECEIVER, **given)


def losses(option):
    return tuple(round(one / ALL_LOST, 3) for one in (option.ne_wl, option.ne_wp, option.rx_wp))


@pytest.mark.rfc("CC-06", "CC-07", "CC-05")
def test_a_link_is_the_worst_and_a_path_the_sum_and_both_age():
    reports = LinkReports()
    reports.above.loss = 0.2
    new, is_news = reports.renewed(cr(0.1, 0.5), 100)
    assert (losses(new)[:2], new.lead, is_news) == ((0.2, 0.6), 100, True)
    reports.sent(new, 100)
    assert not reports.renewed(cr(0.1, 0.5), 100)[1]
    reports.above.loss = 0.0
    new, is_news = reports.renewed(cr(), 110)
    assert losses(new)[:2] == (round(0.2 * math.exp(-1), 3), round(0.6 * math.exp(-3), 3))
    assert is_news


@pytest.mark.rfc("CC-07")
def test_a_path_is_lost_whole_at_most():
    reports = LinkReports()
    reports.above.loss = 1.0
    new, _ = reports.renewed(cr(1.0, 1.0), 1)
    assert (new.ne_wl, new.ne_wp) == (ALL_LOST, ALL_LOST)


@pytest.mark.rfc("CC-09")
@pytest.mark.parametrize("left_out", ["has_ne_wl", "has_ne_wp"])
def test_a_report_that_is_not_there_is_left_alone(left_out):
    reports = LinkReports()
    reports.above.loss = 0.5
    given = cr(0.0, 0.0, 0.3, **{left_out: False})
    new, is_news = reports.renewed(given, 1)
    assert is_news
    assert losses(new) == ((0.0, 0.5, 0.3) if left_out == "has_ne_wl" else (0.5, 0.0, 0.3))


@pytest.mark.rfc("CC-16")
@pytest.mark.parametrize("loss", [0.05, 0.2, 0.5])
def test_a_link_is_measured_soon_and_without_bias(loss):
    """Nine tenths (here with some room for chance) after 340 sqns; a tenth off in the mean of many measurements at most."""
    soon, late = [], []
    for seed in range(40):
        rng, link = random.Random(seed), LinkLoss()
        for sqn in range(3000):
            if sqn < 2 or rng.random() >= loss:
                link.came(sqn, sqn + 1)
            if sqn == 340:
                soon.append(link.loss)
        late.append(link.loss)
    assert statistics.mean(soon) >= 0.85 * loss
    assert statistics.mean(late) == pytest.approx(loss, rel=0.1)


def begun(kind="aggregator"):
    bench = Bench(kind).begin()
    bench.hear(spm_packet(2, 0, 19, Acker(acker=RECEIVER), ALL_WANTED), UP, SOURCE)
    return bench


def naked(bench, on, sqn, option):
    packet = attrs.evolve(nak_packet(sqn, source_nla=SOURCE, group_nla=on.group), options=(option,))
    bench.hear(packet, on, RECEIVER, is_group=False)
    return [find(nak.options, Cr) for _, _, nak in bench.sent(T.NAK)]


@pytest.mark.rfc("NE-35", "CC-09")
def test_a_nak_whose_links_have_changed_is_not_eliminated():
    bench = begun()
    assert [losses(one) for one in naked(bench, A, 3, cr(0.1, 0.1))] == [(0.1, 0.1, 0.0)]
    assert len(naked(bench, B, 3, cr(0.1, 0.104))) == 1  # a twenty-fifth
    assert len(naked(bench, B, 3, cr(0.1, 0.0, 0.5))) == 1  # of a receiver: goes up by itself
    assert [losses(one)[:2] for one in naked(bench, B, 3, cr(0.05, 0.2))] == [(0.1, 0.1), (0.1, 0.2)]
    assert len(naked(bench, A, 3, cr(0.0, 0.2))) == 2


@pytest.mark.rfc("NE-35")
def test_naks_without_reports_are_eliminated_as_ever():
    bench = begun()
    bench.nak(A, 3)
    bench.nak(B, 3)
    assert len(bench.sent(T.NAK)) == 1


@pytest.mark.rfc("CC-06", "CC-07", "CC-16")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_an_element_adds_the_link_above_it(kind):
    """Every other packet is lost on the way to it; a repairer says so on its own NAKs, with what it has heard."""
    bench = begun(kind)
    if kind == "repairer":
        naked(bench, A, 3, cr(0.1, 0.1, 0.3))
    for sqn in range(20, 2000, 2):
        bench.hear(data_train([sqn], trail=0), UP, SOURCE)
    bench.log.clear()
    bench.wait(5 * MS)
    if kind == "aggregator":
        naked(bench, A, 3, cr(0.1, 0.1, 0.3))
    last = [find(nak.options, Cr) for _, _, nak in bench.sent(T.NAK)][-1]
    link, state, receiver = losses(last)
    assert link == pytest.approx(0.5, abs=0.01)
    assert state >= link
    assert receiver > 0


@pytest.mark.rfc("CC-06", "CC-07")
def test_the_source_shows_the_worst_link_and_path():
    core = controlled()
    run(core, START)
    option = attrs.evolve(cr(0.1, 0.3, 0.2), lead=0)
    receive(core, attrs.evolve(nak_packet(0, source_nla=OWN, group_nla=GROUP), options=(option,)), START + 20 * MS)
    [row] = core.status(START + 20 * MS)
    assert (row.congestion.acker, row.congestion.round_trip_ns) == (RECEIVER, 20 * MS)
    shown = (row.congestion.worst_link, row.congestion.worst_path, row.congestion.loss)
    assert shown == pytest.approx((0.1, 0.3, 0.2), abs=1e-4)
