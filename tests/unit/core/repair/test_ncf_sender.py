"""NCFs: at once, damped, and none forgotten."""

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.ncf_sender import NcfSender
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from tests.memory import kept_by
from tests.unit.core.makers import MS, PEER, SEGMENT, nak_packet, parameters, sent_control, session_context

IVL = 5 * MS


def ncf_sender(**changes):
    counters = Counters()
    context = session_context(parameters(ncf_ivl=IVL, **changes), counters=counters)
    return NcfSender(context, NakLimits(context)), counters


def ncfs(effects):
    return [ncf.sqns for ncf in sent_control(effects, PacketType.NCF)]


@pytest.mark.rfc("SRC-40", "SRC-44", "W-32")
def test_first_ncf_goes_at_once_with_the_identical_list():
    made, counters = ncf_sender()
    [send] = made.confirm(nak_packet(5, 7, 9), SEGMENT, SECOND)
    assert ncfs([send]) == [(5, 7, 9)]
    assert (send.segment, send.to, send.is_data) == (SEGMENT, None, False)
    assert made.deadline_ns == NEVER
    assert counters.ncf_packets == 1


@pytest.mark.rfc("SRC-41")
def test_identical_ncfs_are_damped_and_still_sent():
    made, counters = ncf_sender()
    nak = nak_packet(5)
    assert ncfs(made.confirm(nak, SEGMENT, SECOND)) == [(5,)]
    for late in range(1, 5):
        assert made.confirm(nak, SEGMENT, SECOND + late * MS) == ()
    assert made.deadline_ns == SECOND + IVL
    assert made.handle_deadline(SECOND + IVL - 1) == []
    assert ncfs(made.handle_deadline(SECOND + IVL)) == [(5,)]
    assert made.deadline_ns == NEVER
    assert (counters.ncf_packets, counters.ncf_packets_damped) == (2, 4)
    # The one that was put off is itself an NCF just sent.
    assert made.confirm(nak, SEGMENT, SECOND + IVL + MS) == ()
    assert made.deadline_ns == SECOND + 2 * IVL


@pytest.mark.rfc("SRC-41")
def test_only_identical_ncfs_are_damped():
    """Another list, another segment or another addressee is another NCF."""
    made, _ = ncf_sender()
    other_segment = attrs.evolve(SEGMENT, index=1)
    for sqns in ((5,), (6,), (5, 6)):
        assert ncfs(made.confirm(nak_packet(*sqns), SEGMENT, SECOND)) == [sqns]
    assert ncfs(made.confirm(nak_packet(5), other_segment, SECOND)) == [(5,)]
    [send] = made.confirm(nak_packet(5), SEGMENT, SECOND, PEER)
    assert send.to == PEER
    assert made.deadline_ns == NEVER


def test_after_the_interval_it_goes_at_once_again():
    made, _ = ncf_sender()
    assert made.confirm(nak_packet(5), SEGMENT, SECOND)
    assert made.confirm(nak_packet(5), SEGMENT, SECOND + IVL)


@pytest.mark.rfc("SRC-41")
def test_ncf_sender_late_deadline_sends_damped_ncf_once():
    """A NAK that comes after the interval is answered at once, and that answers the others too."""
    made, _ = ncf_sender()
    nak = nak_packet(5)
    made.confirm(nak, SEGMENT, SECOND)
    made.confirm(nak, SEGMENT, SECOND + MS)
    late = SECOND + IVL + MS
    assert ncfs(made.confirm(nak, SEGMENT, late)) == [(5,)]
    assert made.handle_deadline(late + 1) == []
    assert made.deadline_ns == NEVER


def test_damped_ncfs_leave_when_each_is_due():
    """The order of damping is not the order of the intervals."""
    made, _ = ncf_sender()
    made.confirm(nak_packet(1), SEGMENT, SECOND)
    made.confirm(nak_packet(2), SEGMENT, SECOND + MS)
    made.confirm(nak_packet(2), SEGMENT, SECOND + 2 * MS)
    made.confirm(nak_packet(1), SEGMENT, SECOND + 3 * MS)
    assert made.deadline_ns == SECOND + IVL
    assert ncfs(made.handle_deadline(SECOND + IVL)) == [(1,)]
    assert ncfs(made.handle_deadline(SECOND + IVL + MS)) == [(2,)]


@pytest.mark.rfc("SRC-41", "SEC-09")
def test_the_session_budget_holds_for_damped_ones_too():
    made, counters = ncf_sender(session_ncf_rte=10, brake_burst_ivl=SECOND)
    left = sum(bool(made.confirm(nak_packet(sqn), SEGMENT, SECOND)) for sqn in range(50))
    assert left == 10
    assert counters.ncf_packets_braked == 40


@pytest.mark.rfc("SEC-01")
def test_memory_of_naks_is_bounded():
    """A flood of NAKs with random sqns; nothing that was put off is forgotten for it."""
    made, counters = ncf_sender(session_ncf_rte=10_000_000, brake_burst_ivl=SECOND)
    made.confirm(nak_packet(0), SEGMENT, SECOND)
    made.confirm(nak_packet(0), SEGMENT, SECOND)
    answered = 0
    for sqn in range(1, 10_000):
        answered += len(made.confirm(nak_packet(sqn), SEGMENT, SECOND))
    assert sum(isinstance(one, bytes) for one in kept_by(made)) <= 4096 + 10, "the list of each NAK"
    answered += len(made.handle_deadline(SECOND + IVL))
    assert answered == 10_000
    assert counters.ncf_packets == 10_001


@pytest.mark.rfc("SRC-40", "SRC-41")
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, MS, 2 * MS, IVL, 3 * IVL]), st.booleans()), max_size=40
    )
)
def test_ncf_sender_every_nak_is_confirmed_once_in_the_interval(steps):
    """With deadlines served in time and late."""
    made, _ = ncf_sender()
    now, asked, sent = SECOND, [], []
    for sqn, wait, in_time in steps:
        until = now + wait
        while in_time and made.deadline_ns <= until:
            now = max(now, made.deadline_ns)
            sent += [(found[0], now) for found in ncfs(made.handle_deadline(now))]
        now = until
        asked.append((sqn, now))
        sent += [(found[0], now) for found in ncfs(made.confirm(nak_packet(sqn), SEGMENT, now))]
    while made.deadline_ns != NEVER:
        now = max(now, made.deadline_ns)
        sent += [(found[0], now) for found in ncfs(made.handle_deadline(now))]
    for sqn in range(4):
        times = [at for found, at in sent if found == sqn]
        assert all(later - sooner >= IVL for sooner, later in itertools.pairwise(times))
        assert all(any(at >= asked_at for at in times) for found, asked_at in asked if found == sqn)


def test_naks_that_damp_nothing_any_more_are_forgotten():
    """The table of a session with a few NAKs a second does not fill until its limit, for an hour and by megabytes."""
    made, counters = ncf_sender()
    for sqn in range(100):
        made.confirm(nak_packet(sqn), SEGMENT, SECOND + sqn * IVL)
    assert counters.ncf_packets == 100
    made.confirm(nak_packet(99), SEGMENT, SECOND + 100 * IVL - 1)  # damped, so its key must stay
    few = len(kept_by(made))
    for sqn in range(100, 2000):
        made.confirm(nak_packet(sqn), SEGMENT, SECOND + sqn * IVL)
        made.handle_deadline(SECOND + sqn * IVL)
    assert len(kept_by(made)) <= few + 20
    assert (counters.ncf_packets, made.deadline_ns) == (2001, NEVER)
