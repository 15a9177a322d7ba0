"""What a relay has lost itself: found missing once, asked for once, oldest first, as answers come."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aggregator.core import AggregatorCore
from aggregator.own_gaps import OwnGaps
from pgm.core.effects import Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel, Segment
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from tests.unit.core.makers import (
    GROUP,
    MS,
    SOURCE,
    data_train,
    nak_packet,
    parameters,
    sent_control,
    sent_sqns,
    spm_packet,
    train_of,
)

MOST = 252
SETTINGS = parameters(ne_nak_max_outstanding=MOST, reorder_ivl=MS, ne_nak_rpt_rte=10)
REPEAT_IVL = SECOND // 10


def with_gap(first: int, end: int) -> OwnGaps:
    """Something is missing since SECOND, in between."""
    gaps = OwnGaps(SETTINGS)
    gaps.passed(0, first, SECOND)
    gaps.passed(end, end + 1, SECOND)
    return gaps


def test_reordered_packets_are_not_missing_yet() -> None:
    gaps = with_gap(10, 30)
    assert gaps.deadline_ns == SECOND + MS
    assert (gaps.take_missing(SECOND + MS - 1), gaps.take_wave(SECOND + MS - 1)) == ([], [])
    gaps.passed(15, 20, SECOND + MS - 1)
    assert gaps.take_missing(SECOND + MS) == [(10, 15), (20, 30)]
    assert gaps.take_missing(SECOND + MS) == []
    assert gaps.take_wave(SECOND + MS) == [(10, 15), (20, 30)]
    assert gaps.filled(0, 100) == [(10, 15), (20, 30)]
    assert gaps.deadline_ns == NEVER


def test_answers_are_the_clock() -> None:
    """A quarter of what may be asked for at a time at once, since each wave costs all above a wake-up."""
    gaps = with_gap(10, 1010)
    now = SECOND + MS
    gaps.take_missing(now)
    assert gaps.take_wave(now) == [(10, 10 + MOST)]
    assert gaps.deadline_ns == now + REPEAT_IVL
    gaps.filled(10, 10 + MOST // 4 - 1)
    assert gaps.take_wave(now + MS) == []
    gaps.filled(100, 101)
    assert gaps.deadline_ns == 0
    assert gaps.take_wave(now + MS) == [(10 + MOST, 10 + MOST + MOST // 4)]


def test_unanswered_requests_make_room_slowly() -> None:
    """Each is asked for but once: whoever below still lacks it asks again."""
    gaps = with_gap(10, 1010)
    now, asked = SECOND + MS, []
    gaps.take_missing(now)
    for _ in range(6):
        asked += [(now, span) for span in gaps.take_wave(now)]
        now = min(gaps.deadline_ns, now + SECOND)
        assert gaps.take_missing(now) == []
    steps = [SECOND + MS + step * REPEAT_IVL for step in range(4)]
    assert asked == [(at, (10 + n * MOST, min(1010, 10 + (n + 1) * MOST))) for n, at in enumerate(steps)]
    assert gaps.filled(0, 2000)


def test_own_gaps_before_trail_are_not_requested() -> None:
    gaps = with_gap(10, 1010)
    gaps.take_missing(SECOND + MS)
    gaps.take_wave(SECOND + MS)
    gaps.drop_before(1000)
    assert gaps.deadline_ns == 0
    assert gaps.take_wave(SECOND + 2 * MS) == [(1000, 1010)]
    gaps.restart(2000)
    assert (gaps.filled(0, 3000), gaps.deadline_ns) == ([], NEVER)


def test_late_data_while_relay_is_silent_is_no_gap() -> None:
    gaps = OwnGaps(SETTINGS)
    gaps.restart(1010)
    gaps.restart(11)  # out of order
    gaps.passed(1010, 1011, SECOND)
    assert gaps.deadline_ns == NEVER
    gaps.passed(1012, 1013, SECOND)
    assert gaps.take_missing(SECOND + MS) == [(1011, 1012)]


UP = Segment(0, "core", "10.0.0.5", GROUP, upstream=True, downstream=False)
DOWN = Segment(1, "floor", "10.1.0.1", "239.1.0.1", upstream=False, downstream=True)
CHILD = "10.1.0.9"


def relay_that_lost(first: int, end: int) -> AggregatorCore:
    """A relay below the source whose gap is due to be asked for at SECOND + MS."""
    core = AggregatorCore(ElementSetup(UP, (DOWN,), (SOURCE,)), SETTINGS)
    core.receive(train_of(spm_packet(0, 0, first - 1)), Channel(UP, True), SOURCE, SECOND)
    for sqn in (first - 1, end):
        core.receive(data_train([sqn]), Channel(UP, True), SOURCE, SECOND)
    return core


def asked_for(effects: Effects, kind: PacketType = PacketType.NAK) -> list[int]:
    """The sqns of all NAKs or NCFs that go."""
    return [sqn for nak in sent_control(effects, kind) for sqn in nak.sqns]


def test_an_answer_takes_the_next_wave_along() -> None:
    """No timer and no child need come between: what is asked for is confirmed below in the same call."""
    core = relay_that_lost(10, 1010)
    effects = core.handle_deadline(SECOND + MS)
    assert asked_for(effects) == asked_for(effects, PacketType.NCF) == list(range(10, 10 + MOST))
    assert core.counters.missing_sqns == 1000
    repairs = data_train(range(10, 10 + MOST // 4), kind=PacketType.RDATA)
    effects = core.receive(repairs, Channel(UP, True), SOURCE, SECOND + 2 * MS)
    assert sent_sqns(effects, PacketType.ODATA) == list(range(10, 10 + MOST // 4))
    following = list(range(10 + MOST, 10 + MOST + MOST // 4))
    assert asked_for(effects) == asked_for(effects, PacketType.NCF) == following


def test_own_gap_requested_by_child_is_not_requested_again() -> None:
    core = relay_that_lost(10, 60)
    nak = nak_packet(*range(10, 40), source_nla=SOURCE, group_nla=DOWN.group)
    assert asked_for(core.receive(train_of(nak), Channel(DOWN, False), CHILD, SECOND)) == list(range(10, 40))
    effects = core.handle_deadline(SECOND + MS)
    assert asked_for(effects) == list(range(40, 60))
    assert asked_for(effects, PacketType.NCF) == list(range(10, 60))


def test_own_gap_confirmed_long_ago_is_requested_again() -> None:
    """A wave that had to wait for longer than NAK_ELIM_IVL lists all that it takes for asked."""
    core = relay_that_lost(10, 60)
    nak = nak_packet(*range(10, 40), source_nla=SOURCE, group_nla=DOWN.group)
    core.receive(train_of(nak), Channel(DOWN, False), CHILD, SECOND)
    ncf = nak_packet(*range(10, 40), kind=PacketType.NCF)
    core.receive(train_of(ncf), Channel(UP, True), SOURCE, SECOND)
    assert asked_for(core.handle_deadline(SECOND + SETTINGS.nak_elim_ivl)) == list(range(10, 60))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passed"), st.integers(0, 300), st.integers(1, 100)),
        st.tuples(st.just("filled"), st.integers(0, 3000), st.integers(1, 400)),
        st.tuples(st.just("later"), st.sampled_from([0, MS, 5 * MS, REPEAT_IVL]), st.just(0)),
        st.tuples(st.just("dropped"), st.integers(0, 1000), st.just(0)),
    ),
    max_size=40,
)


class Model:
    """The same sqn by sqn."""

    def __init__(self) -> None:
        self.lacking: dict[int, int] = {}  # since when
        self.missing: set[int] = set()  # found missing
        self.asked: dict[int, int] = {}  # when

    def outstanding(self, now: int) -> int:
        """Asked for, and an answer may still come."""
        return sum(sqn in self.lacking and now < at + REPEAT_IVL for sqn, at in self.asked.items())

    def serve(self, gaps: OwnGaps, now: int) -> None:
        """Serve a deadline and hold what is said against what is known."""
        missing = [sqn for span in gaps.take_missing(now) for sqn in range(*span)]
        due = [sqn for sqn, since in self.lacking.items() if now >= since + MS and sqn not in self.missing]
        assert missing == sorted(due)
        self.missing |= set(due)
        waiting = sorted((self.missing & self.lacking.keys()) - self.asked.keys())
        room = MOST - self.outstanding(now)
        wanted = waiting[:room] if room >= min(MOST // 4, len(waiting)) else []
        assert [sqn for span in gaps.take_wave(now) for sqn in range(*span)] == wanted
        self.asked |= dict.fromkeys(wanted, now)


@given(STEPS)
def test_gaps_are_what_they_are_sqn_by_sqn(steps: list[tuple[str, int, int]]) -> None:
    gaps, model, now, end = OwnGaps(SETTINGS), Model(), SECOND, 0
    gaps.passed(0, 1, now)
    end = 1
    for what, low, count in steps:
        if what == "later":
            now += low
        elif what == "passed":
            gaps.passed(end + low, end + low + count, now)
            model.lacking |= dict.fromkeys(range(end, end + low), now)
            end += low + count
        elif what == "filled":
            found = [sqn for span in gaps.filled(low, low + count) for sqn in range(*span)]
            assert found == [sqn for sqn in range(low, low + count) if model.lacking.pop(sqn, None) is not None]
        else:
            gaps.drop_before(low)
            model.lacking = {sqn: since for sqn, since in model.lacking.items() if sqn >= low}
        if gaps.deadline_ns <= now:
            model.serve(gaps, now)
        assert gaps.deadline_ns > now
    while gaps.deadline_ns != NEVER:
        now = max(now, gaps.deadline_ns)
        model.serve(gaps, now)
    assert model.asked.keys() >= model.lacking.keys(), "all that is still missing was asked for"


def test_gaps_before_sqn_0_are_asked_for_too() -> None:
    """A session that was first heard of just behind 2^32 counts from there on."""
    gaps = OwnGaps(SETTINGS)
    gaps.passed(-20, -15, SECOND)
    gaps.passed(-10, 5, SECOND)
    assert gaps.take_missing(SECOND + MS) == [(-15, -10)]
    assert gaps.take_wave(SECOND + MS) == [(-15, -10)]
    assert not gaps.has_room
