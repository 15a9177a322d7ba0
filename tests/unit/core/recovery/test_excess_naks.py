"""Who asks all the time is noticed, and who stops is let go."""

from __future__ import annotations

import pytest

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, LossCause, Notice
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.recovery.nak_self_limit import NakSelfLimit
from pgm.core.repair.nak_limits import NakLimits
from pgm.units import SECOND
from pgm.wire.control_packets import Nak
from tests.unit.core.makers import MS, data_train, ncf_packet, parameters, sent_items, session_context
from tests.unit.core.reader import Reader, joined
from tests.unit.core.recovery.recoveries import due, recovery

WINDOW, CHECK = 100 * MS, 300 * MS
SOON = {
    "excess_nak_window_ivl": WINDOW,
    "excess_nak_check_ivl": CHECK,
    "excess_nak_min_sqns": 50,
    "excess_nak_share": 0.2,
    "excess_nak_sqn_rte": 100,
    "brake_burst_ivl": SECOND,
}


def asks(monitor: ExcessiveNakMonitor, sqns: int, sent: int, until: int, every: int = 10 * MS, since: int = 0) -> None:
    """So many sqns asked for, and packets sent, each time."""
    for index, now in enumerate(range(since, until, every), since // every):
        monitor.asked(sqns, index * sent + 1, index * sent, now)


@pytest.mark.parametrize(
    ("sqns", "sent", "is_excessive"),
    [(3, 10, True), (1, 10, False), (1, 4, False), (2, 4, True), (1, 0, False), (2, 0, True)],
    ids=["a third", "a tenth", "few", "a half", "few of an idle stream", "much of an idle stream"],
)
def test_both_the_number_and_the_share_count(sqns, sent, is_excessive):
    monitor = ExcessiveNakMonitor(parameters(**SOON), 0, 0)
    asks(monitor, sqns, sent, CHECK - MS)
    assert not monitor.is_excessive
    asks(monitor, sqns, sent, 2 * CHECK, since=CHECK)
    assert monitor.is_excessive == is_excessive


def test_a_window_without_a_request_begins_anew():
    """A burst of losses is not excessive, however large."""
    monitor = ExcessiveNakMonitor(parameters(**SOON), 0, 0)
    for start in range(0, 5 * CHECK, CHECK):
        monitor.asked(10_000, start // MS + 1, start // MS, start + 1)
        monitor.asked(10_000, start // MS + 1, start // MS, start + WINDOW)
        assert not monitor.is_excessive


def test_it_ends_with_a_quiet_window():
    monitor = ExcessiveNakMonitor(parameters(**SOON), 0, 0)
    asks(monitor, 10, 10, 2 * CHECK)
    assert monitor.is_excessive
    assert monitor.look(1000, 2 * CHECK + 2 * WINDOW)
    assert not monitor.is_excessive


def test_nak_monitor_demand_at_small_budget_stays_excessive():
    """A receiver that lowers its demand would otherwise be let go and begin again, for ever."""
    changes = {**SOON, "excess_nak_min_sqns": 100}
    monitor = ExcessiveNakMonitor(parameters(**changes), 0, 0)
    asks(monitor, 10, 10, 2 * CHECK)
    assert monitor.is_excessive
    asks(monitor, 1, 10, 4 * CHECK, since=2 * CHECK)  # all of the budget
    assert monitor.is_excessive
    asks(monitor, 1, 10, 8 * CHECK, every=50 * MS, since=4 * CHECK)  # a fifth of it
    assert not monitor.is_excessive


def ask_often(nak_limits: NakLimits, child: str, until: int, sqns: int = 10, since: int = 0) -> int:
    """NAKs taken in of a child that asks every 10 ms."""
    return sum(
        nak_limits.admit_nak(child, now, sqns, now // MS, newest=now // MS) for now in range(since, until, 10 * MS)
    )


def test_child_with_excess_naks_gets_small_budget_of_its_own():
    counters = Counters()
    nak_limits = NakLimits(session_context(parameters(**SOON), counters=counters))
    assert ask_often(nak_limits, "bad", CHECK) == 30
    ask_often(nak_limits, "bad", 2 * CHECK, since=CHECK)
    assert nak_limits.has_excess_naks("bad")
    begun = 2 * CHECK
    taken = sum(
        nak_limits.admit_nak("bad", now, 10, now // MS, newest=now // MS)
        + 0 * nak_limits.admit_nak("desk", now, 1, now // MS, newest=now // MS)
        for now in range(begun, begun + 2 * SECOND, 10 * MS)
    )
    assert taken <= 10 + 20  # the bucket, and 100 sqns a second
    assert counters.excess_nak_packets >= 170
    assert counters.nak_packets_braked == 0
    assert not nak_limits.has_excess_naks("desk")
    assert [one.code for one in nak_limits.handle_deadline(begun)] == ["child-excess-naks"]
    assert not nak_limits.handle_deadline(begun)


def test_nak_limits_released_child_has_normal_budget():
    counters = Counters()
    nak_limits = NakLimits(session_context(parameters(**SOON), counters=counters))
    assert not nak_limits.release("10.0.0.1", 0)
    ask_often(nak_limits, "10.0.0.1", 2 * CHECK)
    nak_limits.handle_deadline(2 * CHECK)
    assert nak_limits.has_excess_naks("10.0.0.1")
    assert nak_limits.release("10.0.0.1", 2 * CHECK)
    assert not nak_limits.release("10.0.0.1", 2 * CHECK)
    (notice,) = nak_limits.handle_deadline(2 * CHECK)
    assert notice.code == "child-excess-naks-over"
    assert not nak_limits.has_excess_naks("10.0.0.1")
    assert ask_often(nak_limits, "10.0.0.1", 2 * CHECK + WINDOW, since=2 * CHECK) == WINDOW // (10 * MS)
    ask_often(nak_limits, "10.0.0.1", 4 * CHECK, since=2 * CHECK + WINDOW)
    assert (nak_limits.has_excess_naks("10.0.0.1"), counters.excess_nak_children) == (True, 2)


def test_a_quiet_child_is_released_without_asking_for_it():
    nak_limits = NakLimits(session_context(parameters(**SOON)))
    ask_often(nak_limits, "bad", 2 * CHECK)
    nak_limits.handle_deadline(2 * CHECK)
    told: list[str] = []
    now = 2 * CHECK
    for _ in range(4):
        now = max(now, nak_limits.deadline_ns)
        if now > 100 * SECOND:
            break
        told += [one.code for one in nak_limits.handle_deadline(now)]
    assert told == ["child-excess-naks-over"]
    assert not nak_limits.has_excess_naks("bad")
    assert nak_limits.deadline_ns > 100 * SECOND


def test_forgotten_children_have_no_excess_naks():
    nak_limits = NakLimits(session_context(parameters(**SOON, max_children=2)))
    ask_often(nak_limits, "bad", 2 * CHECK)
    nak_limits.admit_nak("a", 2 * CHECK)
    nak_limits.admit_nak("b", 2 * CHECK)
    assert not nak_limits.has_excess_naks("bad")


def reader_with_losses(*, has_answers: bool = True, **changes: object) -> tuple[Reader, list[Notice]]:
    """A receiver that loses nine of ten packets and gets no repair, but an NCF for each NAK if it `has_answers`."""
    reader = joined(**{**SOON, "nak_max_outstanding": 1000, **changes})
    notices: list[Notice] = []
    sqn = 1010
    for _ in range(200):
        sqn += 10
        effects = [*reader.until(reader.now + 10 * MS), *reader.hear(data_train([sqn], trail=100))]
        for nak in sent_items(effects):
            if has_answers and isinstance(nak, Nak):
                reader.hear(ncf_packet(*nak.sqns))
        notices += [one for one in effects if isinstance(one, Notice)]
    return reader, notices


def test_receiver_with_excess_naks_reports_and_goes_on():
    reader, notices = reader_with_losses()
    assert notices[0].code == "excess-naks"
    assert reader.closed() is None
    assert reader.core.counters.nak_sqns > 1000


def test_receiver_without_an_answering_parent_has_no_excess_naks():
    """A fifth of the packets is never new here: nothing but repeats makes the NAKs many."""
    assert reader_with_losses(excess_nak_share=1)[1]
    assert not reader_with_losses(has_answers=False, excess_nak_share=1)[1]


def test_receiver_with_excess_naks_lowers_its_requests():
    eager, _ = reader_with_losses()
    modest, notices = reader_with_losses(excess_nak_policy="lower")
    assert notices[0].code == "excess-naks"
    assert modest.closed() is None
    assert modest.core.counters.nak_sqns < eager.core.counters.nak_sqns / 2


def test_receiver_with_excess_naks_closes_session():
    reader, notices = reader_with_losses(excess_nak_policy="close")
    assert [one.code for one in notices] == ["excess-naks"]
    assert reader.closed() is CloseCause.EXCESS_NAKS
    assert LossCause.EXCESS_NAKS in {fate for fate in reader.fates.popitem()[1].values() if isinstance(fate, LossCause)}


def test_nobody_looks_where_the_window_is_zero():
    reader, notices = reader_with_losses(excess_nak_window_ivl=0)
    assert not notices
    assert reader.core.counters.nak_sqns > 1000


def test_nak_limits_child_asking_for_others_is_counted_not_watched():
    counters = Counters()
    nak_limits = NakLimits(session_context(parameters(**SOON), counters=counters))
    for now in range(0, 4 * CHECK, 10 * MS):
        nak_limits.admit_nak("relay", now, 10, now // MS)
        nak_limits.admit_nak("desk", now, 1, now // MS, newest=now // MS)
    assert not nak_limits.has_excess_naks("relay")
    first, second = nak_limits.askers()
    assert (first.address, first.nak_sqns) == ("relay", 10 * first.nak_packets)
    assert (second.address, second.nak_sqns) == ("desk", second.nak_packets)


@pytest.mark.parametrize("rate", [1, 20, 62, 100, 400])
@pytest.mark.parametrize("count", [4000, 1], ids=["one gap", "single packets"])
def test_a_lowered_demand_is_asked_for_all_the_same(rate, count):
    """However much less that is than what is worth a NAK else: at the rate, and not more."""
    made = recovery(parameters(nak_bo_ivl=1))
    made.admission.limit_rate(TokenBucket(rate, SECOND))
    now = begun = 10 * SECOND
    for first in range(0, 8000, 2 * count):
        made.detect(first, first + count, now)
    asked = 0
    while (now := max(now + 1, made.deadline_ns)) < begun + 10 * SECOND:
        for first, end in due(made, now).spans:
            asked += end - first
            made.arrived(first, end, now)
    assert 9 * rate <= asked <= 11 * rate


def test_nak_self_limit_lowered_budget_holds_at_least_one_packet():
    """Also where a bucket of `brake_burst_ivl` would hold a part of one."""
    made = recovery()
    lowered = parameters(**SOON | {"excess_nak_sqn_rte": 10, "brake_burst_ivl": MS}, excess_nak_policy="lower")
    nak_self_limit = NakSelfLimit("session", made, lowered)
    nak_self_limit.begin(0, 0)
    for now in range(0, 2 * CHECK, 10 * MS):
        nak_self_limit.asked([MissingRange(0, 10, found_at_ns=now)], now // MS, now)
    budget = made.admission.budget
    assert budget.available(2 * CHECK) == budget.most == 1
