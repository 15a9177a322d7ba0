"""A repairer that takes over what an earlier process cached: the right session, the right sqns, and no more requests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Effects, Save
from pgm.core.element.setup import ElementSetup
from pgm.core.structures.ranges import Span, merged
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Epoch, Option
from pgm.wire.sequence_numbers import SPACE
from repairer.core import RepairerCore
from repairer.session import RepairerSession
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_GROUP,
    BY_UNICAST,
    MS,
    OWN,
    PEER,
    SEGMENT,
    SOURCE,
    data_train,
    nak_packet,
    parameters,
    run_of,
    sent_sqns,
    spm_packet,
    train_of,
)

START_S = 1_700_000_000
HELD = 100  # sqns 0 to 99 were saved
NO_EPOCH_NS = -1


def epoch(next_upper: int = 0, start_s: int = START_S) -> Epoch:
    return Epoch(next_upper, start_s, 5)


EPOCH_NS = START_S * SECOND + 5


def saved(first: int = 0, count: int = HELD, epoch_ns: int = EPOCH_NS, port: int = DATA_PORT) -> Save:
    return Save(TSI, port, epoch_ns, run_of(first, count))


def restarted(*saves: Save, at_ns: int = SECOND, **changes: object) -> RepairerCore:
    """Return a new process that an earlier one has left some packets."""
    setup = ElementSetup(SEGMENT, (SEGMENT,), parents=(SOURCE,))
    core = RepairerCore(setup, parameters(**changes), random.Random(1), saves=True)
    core.restore([(at_ns, save) for save in saves])
    return core


def hear_spm(core: RepairerCore, lead: int, *options: Option, trail: int = 0, now_ns: int = 2 * SECOND) -> Effects:
    return core.receive(train_of(spm_packet(1, trail, lead, *options)), BY_GROUP, SOURCE, now_ns)


def hear_data(core: RepairerCore, first: int, end: int, now_ns: int = 2 * SECOND) -> Effects:
    return core.receive(data_train(range(first, end)), BY_GROUP, SOURCE, now_ns)


def session_of(core: RepairerCore) -> RepairerSession:
    session = core.sessions.get(TSI)
    assert session is not None
    return session


def cached(core: RepairerCore) -> list[Span]:
    return merged([(run.first, run.end) for run in session_of(core).intake.cache.store])


def missing(core: RepairerCore) -> list[Span]:
    return merged([(one.first, one.end) for one in session_of(core).upstream.recovery.missing])


def test_restored_packets_are_served_after_the_first_spm() -> None:
    core = restarted(saved())
    hear_spm(core, 120, epoch())
    nak = nak_packet(3, 5, source_nla=OWN)
    effects = core.receive(train_of(nak), BY_UNICAST, PEER, 2 * SECOND)
    for at_ns in range(2 * SECOND, 2 * SECOND + 100 * MS, MS):
        effects = [*effects, *core.handle_deadline(at_ns)]
    assert sent_sqns(effects, PacketType.RDATA) == [3, 5]
    assert core.counters.cache_packets_restored == HELD
    assert core.counters.cache_misses == 0


@pytest.mark.parametrize("data_first", [True, False])
def test_only_what_was_sent_meanwhile_is_missing(data_first: bool) -> None:
    core = restarted(saved())
    if data_first:
        hear_data(core, 150, 160)
        assert missing(core) == []
    hear_spm(core, 159, epoch())
    if not data_first:
        hear_data(core, 160, 170)
    assert missing(core) == [(HELD, 150 if data_first else 160)]
    assert cached(core) == [(0, HELD), (150, 160)] if data_first else [(0, HELD), (160, 170)]


def test_packets_out_of_the_window_are_not_requested() -> None:
    core = restarted(saved())
    hear_data(core, 150, 160)
    hear_spm(core, 159, epoch(), trail=130)
    assert missing(core) == [(130, 150)]


def test_holes_in_the_window_of_the_source_are_requested() -> None:
    core = restarted(saved(0, 10), saved(20, 10), saved(40, 10))
    hear_spm(core, 49, epoch(), trail=30)
    assert missing(core) == [(30, 40)]
    assert cached(core) == [(0, 10), (20, 30), (40, 50)]


@pytest.mark.parametrize("save", [saved(epoch_ns=EPOCH_NS + 1), saved(epoch_ns=NO_EPOCH_NS), saved(port=DATA_PORT + 1)])
def test_packets_of_another_session_are_dropped(save: Save) -> None:
    core = restarted(save)
    hear_data(core, 150, 160)
    hear_spm(core, 159, epoch())
    assert cached(core) == [(150, 160)]
    assert missing(core) == []
    assert core.counters.cache_packets_discarded == HELD
    assert core.cache.packets == 10


@pytest.mark.parametrize(("trail", "is_same"), [(90, True), (99, True), (100, False)])
def test_source_without_epoch_must_have_the_newest_packet(trail: int, is_same: bool) -> None:
    core = restarted(saved(epoch_ns=NO_EPOCH_NS))
    hear_spm(core, 159, trail=trail)
    assert core.counters.cache_packets_restored == (HELD if is_same else 0)


def test_source_without_epoch_at_older_sqns_is_another_session() -> None:
    core = restarted(saved(epoch_ns=NO_EPOCH_NS))
    hear_spm(core, 50)
    assert core.counters.cache_packets_discarded == HELD


def test_sqns_that_began_elsewhere_in_this_process_are_the_same() -> None:
    """The session begins with data, so its sqns lack the turns of 2^32 that the epoch tells."""
    core = restarted(saved(3 * SPACE))
    hear_data(core, 150, 160)
    effects = hear_spm(core, 159, epoch(3))
    assert cached(core) == [(0, HELD), (150, 160)]
    runs = [effect.run for effect in effects if isinstance(effect, Save)]
    assert [(run.first, run.end) for run in runs] == [(3 * SPACE + 150, 3 * SPACE + 160)]


def test_packets_are_saved_from_the_first_spm_on() -> None:
    core = restarted()
    assert not any(isinstance(effect, Save) for effect in hear_data(core, 10, 20))
    first = [effect for effect in hear_spm(core, 19, epoch()) if isinstance(effect, Save)]
    later = [effect for effect in hear_data(core, 20, 25) if isinstance(effect, Save)]
    spans = [(save.run.first, save.run.end) for save in (*first, *later)]
    assert spans == [(10, 20), (20, 25)]
    assert {(save.tsi, save.data_port, save.epoch_ns) for save in (*first, *later)} == {(TSI, DATA_PORT, EPOCH_NS)}


def test_a_core_without_a_file_saves_nothing() -> None:
    core = RepairerCore(ElementSetup(SEGMENT, (SEGMENT,), parents=(SOURCE,)), parameters(), random.Random(1))
    hear_spm(core, 19, epoch())
    assert not any(isinstance(effect, Save) for effect in hear_data(core, 20, 25))


def test_restored_packets_age_like_others() -> None:
    core = restarted(saved(), at_ns=SECOND, cache_secs=10 * SECOND)
    hear_spm(core, 99, epoch())
    hear_data(core, 100, 110, now_ns=10 * SECOND)
    assert cached(core) == [(0, 110)]
    hear_data(core, 110, 120, now_ns=12 * SECOND)
    assert cached(core) == [(100, 120)]


def test_unclaimed_packets_age_too() -> None:
    other = Save(b"another!", DATA_PORT, EPOCH_NS, run_of(0, HELD))
    core = restarted(other, at_ns=SECOND, cache_secs=10 * SECOND)
    hear_spm(core, 99, epoch())
    hear_data(core, 100, 110, now_ns=12 * SECOND)
    assert core.cache.packets == 10


def test_sessions_above_the_limit_are_not_restored() -> None:
    saves = [Save(bytes([number]) * 8, DATA_PORT, EPOCH_NS, run_of(0, 5)) for number in range(5)]
    core = restarted(*saves, max_sessions=2)
    assert core.cache.packets == 10
    assert core.counters.cache_packets_discarded == 15


def test_a_child_that_asked_too_early_gets_its_packets() -> None:
    """Its NAK came after the data of the new session, and before the SPM."""
    core = restarted(saved())
    hear_data(core, 150, 160)
    core.receive(train_of(nak_packet(90, source_nla=OWN)), BY_UNICAST, PEER, 2 * SECOND)
    effects = list(hear_spm(core, 159, epoch()))
    assert missing(core) == [(HELD, 150)]
    for at_ns in range(2 * SECOND, 2 * SECOND + 100 * MS, MS):
        effects += core.handle_deadline(at_ns)
    assert sent_sqns(effects, PacketType.RDATA) == [90]


@given(
    pieces=st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), max_size=8),
    live=st.integers(100, 140),
    count=st.integers(1, 20),
    trail=st.integers(0, 130),
    data_first=st.booleans(),
)
def test_sqns_of_the_window_are_cached_or_missing(
    pieces: list[tuple[int, int]], live: int, count: int, trail: int, data_first: bool
) -> None:
    """Whatever was saved, in any order and more than once, is taken over once, and the rest of the window is missing."""
    trail = min(trail, live)
    core = restarted(*(saved(first, number) for first, number in pieces))
    if data_first:
        hear_data(core, live, live + count)
    hear_spm(core, live + count - 1, epoch(), trail=trail)
    if not data_first:
        hear_data(core, live, live + count)
    held = {sqn for first, number in pieces for sqn in range(first, first + number)}
    found = {sqn for first, end in cached(core) for sqn in range(first, end)}
    assert found == held | set(range(live, live + count))
    lacking = {sqn for first, end in missing(core) for sqn in range(first, end)}
    if held:
        assert lacking == set(range(max(min(held), trail), live + count)) - found
