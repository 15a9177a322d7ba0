"""When SPMs go: heartbeats after data, ambient ones beside them."""

import itertools

import pytest

from pgm.core.source.spm_schedule import SpmSchedule
from pgm.units import MILLISECOND, SECOND
from tests.unit.core.makers import MS, parameters


def spms_until(schedule, end, data=(), late=0):
    """The instants of SPMs, served at each deadline, with data sent at the given instants."""
    found, data = [], sorted(data)
    while True:
        now = schedule.deadline_ns + late
        if data and data[0] <= now:
            schedule.data_sent(data.pop(0))
            continue
        if now > end:
            return found
        assert late or not schedule.is_due(now - 1)
        assert schedule.is_due(now)
        found.append(now // MILLISECOND)


def schedule_of(**changes):
    settings = {"ihb_min": 100 * MS, "ihb_max": 800 * MS, "ambient_spm_ivl": 3600 * SECOND} | changes
    return SpmSchedule(parameters(**settings), -1000 * SECOND)


def started(**changes):
    """A schedule that has sent its first SPM and long settled."""
    schedule = schedule_of(**changes)
    assert schedule.is_due(-1000 * SECOND)
    return schedule


@pytest.mark.rfc("SRC-23")
def test_heartbeats_double_after_data():
    schedule = started()
    schedule.data_sent(0)
    assert spms_until(schedule, 4000 * MS) == [100, 300, 700, 1500, 2300, 3100, 3900]


@pytest.mark.rfc("SRC-23")
def test_data_begins_the_heartbeats_anew():
    """ODATA and RDATA alike."""
    schedule = started()
    schedule.data_sent(0)
    assert spms_until(schedule, 2000 * MS, data=[750 * MS, 800 * MS]) == [100, 300, 700, 900, 1100, 1500]


@pytest.mark.rfc("SRC-22", "SRC-25")
def test_continuous_data_postpones_heartbeats_not_ambient_spms():
    schedule = SpmSchedule(parameters(ihb_min=100 * MS, ihb_max=800 * MS, ambient_spm_ivl=500 * MS), 0)
    assert schedule.is_due(0)
    data = [at * 10 * MS for at in range(300)]
    assert spms_until(schedule, 2400 * MS, data=data) == [500, 1000, 1500, 2000]


@pytest.mark.rfc("SRC-24")
def test_ambient_spms_neither_postpone_nor_reset_heartbeats():
    """A restart would hold the interval below ambient_spm_ivl for ever, and a reset would start fast heartbeats."""
    schedule = SpmSchedule(parameters(ihb_min=50 * MS, ihb_max=2 * SECOND, ambient_spm_ivl=500 * MS), 0)
    assert schedule.is_due(0)
    schedule.data_sent(0)
    heartbeats = [50, 150, 350, 750, 1550, 3150, 5150, 7150]
    assert spms_until(schedule, 8 * SECOND) == sorted([*heartbeats, *range(500, 8001, 500)])


def test_first_spm_goes_at_once():
    schedule = SpmSchedule(parameters(), 5 * SECOND)
    assert schedule.deadline_ns == 5 * SECOND
    assert schedule.is_due(5 * SECOND)
    assert not schedule.is_due(5 * SECOND)


@pytest.mark.rfc("SRC-23")
def test_heartbeats_never_stop():
    """The interval is capped, not the count."""
    schedule = started()
    schedule.data_sent(0)
    found = spms_until(schedule, 100 * SECOND)
    assert {later - sooner for sooner, later in itertools.pairwise(found[5:])} == {800}
    assert len(found) > 120


def test_late_service_sends_one_spm_and_not_all_that_were_missed():
    schedule = started()
    schedule.data_sent(0)
    assert schedule.is_due(50 * SECOND)
    assert not schedule.is_due(50 * SECOND)
    assert schedule.deadline_ns == 50 * SECOND + 200 * MS


@pytest.mark.rfc("SRC-27")
def test_closing_is_announced_at_once_and_often():
    schedule = started(ihb_max=30 * SECOND)
    schedule.data_sent(0)
    spms_until(schedule, 20 * SECOND)
    schedule.closing(21 * SECOND)
    found = spms_until(schedule, 25 * SECOND)
    assert found[:5] == [21_000, 21_200, 21_600, 22_000, 22_400]


@pytest.mark.parametrize("ihb_max", [50, 100])
def test_a_maximum_at_or_below_the_minimum_is_kept(ihb_max):
    schedule = started(ihb_max=ihb_max * MS)
    schedule.data_sent(0)
    assert spms_until(schedule, 300 * MS) == [100, *range(100 + ihb_max, 301, ihb_max)]


@pytest.mark.rfc("SRC-12", "SRC-22")
def test_ambient_spms_with_data_driven_window_run_by_data():
    """An interval has passed when as much was sent as fits it; heartbeats stay in real time."""
    schedule = started(txw_adv_mode="data", ambient_spm_ivl=SECOND, ihb_min=3600 * SECOND, ihb_max=3600 * SECOND)
    found = []
    for step in range(1, 41):
        now = step * 10 * SECOND
        schedule.data_sent(now, elapsed_ns=step * 100 * MS)
        if schedule.is_due(now):
            found.append(step)
    assert found == [10, 20, 30, 40]
    assert schedule.deadline_ns == 400 * SECOND + 3600 * SECOND
