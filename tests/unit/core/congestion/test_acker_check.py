"""An acker's reports are held against its acks (draft-ietf-rmt-bb-pgmcc-03, 5)."""

import random

import pytest

from pgm.core.congestion.acker_check import AckerCheck
from pgm.core.congestion.link_reports import moved
from pgm.core.effects import Notice
from pgm.core.events import EVENTS
from pgm.units import SECOND
from tests.unit.core.congestion.test_congestion import ALL, OTHER, controlled, report
from tests.unit.core.makers import MS, PEER
from tests.unit.core.source.sources import START, run


def acks(loss, count=4000, train=5, rng=None):
    """Of a receiver that tells the truth: rx_max, map, loss rate, and its repairs come before the next ack."""
    rng, rate, bitmap, told = rng or random.Random(1), 0.0, ALL, -1
    for sqn in range(count):
        is_lost = rng.random() < loss
        bitmap = (bitmap << 1 | (not is_lost)) & ALL
        rate = moved(rate, int(is_lost), int(not is_lost))
        if sqn - told >= train and not is_lost:
            yield sqn, bitmap, rate
            bitmap, told = ALL, sqn


@pytest.mark.rfc("CC-41")
@pytest.mark.parametrize("loss", [0.0, 0.001, 0.02, 0.2, 0.6])
@pytest.mark.parametrize("unheard", [0.0, 0.2])
def test_acker_check_true_reports_do_not_differ(loss, unheard):
    check, rng = AckerCheck(), random.Random(2)
    for rx_max, bitmap, rate in acks(loss):
        if rng.random() >= unheard:
            check.acked(rx_max, bitmap, rate, 40 * MS)
            assert not check.differs(rate, 50 * MS)
    assert check.rtt_ns == 40 * MS


@pytest.mark.rfc("CC-41")
@pytest.mark.parametrize(("real", "said", "rtt"), [(0.0, 0.1, 40), (0.01, 0.3, 40), (0.3, 0.0, 40), (0.0, 0.0, 900)])
def test_acker_check_false_reports_differ(real, said, rtt):
    check = AckerCheck()
    found = []
    for rx_max, bitmap, _ in acks(real):
        check.acked(rx_max, bitmap, said, 40 * MS)
        if check.differs(said, rtt * MS):
            found.append(rx_max)
    assert 512 <= found[0] < 1200


@pytest.mark.rfc("CC-41")
def test_a_break_of_the_line_is_no_lie():
    """A thousand sqns are lost at once: the map shows the end of that gap alone."""
    check, rate = AckerCheck(), 0.0
    check.acked(0, ALL, rate, -1)
    rate = moved(rate, 1000, 1)
    check.acked(1001, 1, rate, -1)
    assert check.loss == pytest.approx(rate)


@pytest.mark.rfc("CC-41", "SEC-08")
def test_the_source_gives_up_an_acker_that_lies_and_elects_another():
    core = controlled()
    core.submit([bytes(100)] * 2000)
    run(core, START)
    report(core, PEER, 0.3, now=START + MS)
    now, notices = START, []
    while core.flow.acker == PEER:
        now += 10 * MS
        run(core, now)
        notices += [one for one in report(core, PEER, 0.3, bitmap=ALL, now=now) if isinstance(one, Notice)]
        assert now < START + 20 * SECOND
    [notice] = notices
    assert notice.code in EVENTS
    assert "30.0% loss" in notice.text
    report(core, PEER, 0.3, now=now)
    assert not core.flow.acker
    report(core, OTHER, 0.01, now=now)
    assert core.flow.acker == OTHER
    assert (core.counters.ackers_distrusted, core.counters.cc_reports_refused) == (1, 1)
