"""What SPMs and data say of a session: path, edges, end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.session.state import NO_EPOCH, SessionEpoch, SessionState, SpmVerdict
from pgm.units import NEVER, SECOND
from pgm.wire.formats import NO_WINDOW_LEAD, NO_WINDOW_TRAIL
from pgm.wire.options import Epoch, Fin, Join, NbrUnreach, Rst
from pgm.wire.sequence_numbers import MASK, wrap
from tests.strategies import u32s
from tests.unit.core.makers import PARENT, SOURCE, parameters, session_context, spm_packet

TAKEN, STALE, JUMPED, UNPROVED = SpmVerdict.TAKEN, SpmVerdict.STALE, SpmVerdict.JUMPED, SpmVerdict.UNPROVED
SETTINGS = parameters(rxw_sqns=1000, jump_confirmations=2)


def state(settings=SETTINGS):
    counters = Counters()
    return SessionState(session_context(settings, counters=counters)), counters


def edges(made):
    return made.trail, made.lead


# The sequence of SPMs


@pytest.mark.rfc("RCV-20")
@pytest.mark.parametrize("first", [0, 1, 0x7FFFFFFF, 0x80000000, 0xDEADBEEF, MASK])
def test_first_spm_is_always_in_sequence(first):
    """Any SQN, 2^31 and above too."""
    made, counters = state()
    assert made.on_spm(spm_packet(first, 5, 9), SECOND) is TAKEN
    assert edges(made) == (5, 9)
    assert made.path_nla == SOURCE
    assert made.on_spm(spm_packet(first, 5, 10), SECOND) is STALE
    assert made.on_spm(spm_packet(first + 1, 5, 10), SECOND) is TAKEN
    assert (counters.spm_packets_in, counters.spm_packets_stale) == (2, 1)


@pytest.mark.rfc("RCV-20")
@given(last=u32s, distance=st.integers(0, MASK))
def test_only_newer_spms_are_taken(last, distance):
    """Half-space comparison."""
    made, _ = state()
    made.on_spm(spm_packet(last, 5, 9), SECOND)
    verdict = made.on_spm(spm_packet(last + distance, 6, 10, path_nla=PARENT), SECOND)
    assert (verdict is TAKEN) == (0 < distance < 1 << 31)
    assert made.path_nla == (PARENT if verdict is TAKEN else SOURCE)
    assert edges(made) == ((6, 10) if verdict is TAKEN else (5, 9))


@pytest.mark.rfc("RCV-20")
@pytest.mark.parametrize("far", [100, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("forged", [1, 2])
def test_one_false_spm_sqn_is_not_the_last_of_a_session(far, forged):
    """Nor are two, the second of which is behind the first. The source is believed again when it goes on for long enough."""
    made, counters = state()
    made.on_spm(spm_packet(7, 5, 9), SECOND)
    for number in range(forged):
        made.on_spm(spm_packet(7 + far - number, 5, 9, path_nla=PARENT), SECOND)
    assert made.path_nla == PARENT
    enough = SETTINGS.spm_confirmations
    verdicts = [made.on_spm(spm_packet(8 + number, 6, 10 + number), SECOND) for number in range(enough + 3)]
    assert verdicts == [STALE] * (enough - 1) + [TAKEN] * 4
    assert (made.path_nla, edges(made)) == (SOURCE, (6, 12 + enough))
    assert counters.spm_sqns_followed == 1
    assert counters.spm_packets_stale == enough - 1 + (forged - 1)


@pytest.mark.rfc("RCV-20")
@given(late=st.lists(st.integers(0, 6), min_size=1, max_size=60))
def test_spms_that_come_late_are_not_believed(late):
    """However many copies and stragglers come between those in sequence, on one way or several."""
    made, counters = state()
    newest = 100
    made.on_spm(spm_packet(newest, 5, 9), SECOND)
    for behind in late:
        newest += 1
        assert made.on_spm(spm_packet(newest, 5, 9), SECOND) is TAKEN
        for number in range(newest - behind, newest + 1):
            assert made.on_spm(spm_packet(number, 5, 9, path_nla=PARENT), SECOND) is STALE
    assert counters.spm_sqns_followed == 0


def test_session_state_copies_of_spms_do_not_delay_confirmation():
    """As the SPMs of two lines, one of which is behind."""
    made, counters = state()
    made.on_spm(spm_packet(1 << 20, 5, 9), SECOND)
    for number in range(8, 8 + SETTINGS.spm_confirmations):
        made.on_spm(spm_packet(number, 5, 9), SECOND)
        made.on_spm(spm_packet(number, 5, 9), SECOND)
        made.on_spm(spm_packet(number - 1, 5, 9), SECOND)
    assert made.spm.spm_sqn == number
    assert counters.spm_sqns_followed == 1


@pytest.mark.rfc("RCV-20")
@pytest.mark.parametrize("older", [0, 1, 5])
def test_stale_spm_is_dropped_whole(older):
    """Path and options too."""
    made, _ = state()
    made.on_spm(spm_packet(100, 5, 9), SECOND)
    options = (Join(7), Fin(), Rst(), Epoch(1, 0, 0))
    assert made.on_spm(spm_packet(100 - older, 8, 12, *options, path_nla=PARENT), SECOND) is STALE
    assert edges(made) == (5, 9)
    assert (made.path_nla, made.join_at, made.end.is_claimed, made.epoch) == (
        SOURCE,
        None,
        False,
        NO_EPOCH,
    )


# Edges


@pytest.mark.rfc("RCV-04", "RCV-23")
@pytest.mark.parametrize(
    ("trail", "lead", "expected"),
    [(4, 8, (5, 9)), (7, 8, (7, 9)), (4, 12, (5, 12)), (7, 12, (7, 12)), (10, 9, (10, 9)), (13, 12, (13, 12))],
)
def test_stale_edges_are_ignored_each_by_itself(trail, lead, expected):
    """The rest of the SPM is processed."""
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    assert made.on_spm(spm_packet(2, trail, lead, path_nla=PARENT), SECOND) is TAKEN
    assert edges(made) == expected
    assert made.path_nla == PARENT


@pytest.mark.rfc("W-19")
def test_trail_never_passes_what_was_sent():
    """The trail is at most LEAD + 1, the empty window."""
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    made.on_spm(spm_packet(2, 10, 9), SECOND)
    assert edges(made) == (10, 9)
    made.saw(12, 900)
    assert edges(made) == (13, 12)


@pytest.mark.rfc("W-18", "W-19", "SEC-07")
@pytest.mark.parametrize(("trail", "lead"), [(5000, 9), (11, 9), (0, 1 << 31), (100, 99 + (1 << 31))])
def test_edges_that_describe_no_window_are_not_taken(trail, lead):
    """A trail beyond LEAD + 1, or more than half the space. Nor is what depends on them."""
    made, _ = state()
    assert made.on_spm(spm_packet(1, trail, lead, Join(7), Fin()), SECOND) is TAKEN
    assert (made.has_edges, made.join_at, made.end.is_claimed) == (False, None, False)
    assert made.path_nla == SOURCE
    made.on_spm(spm_packet(2, 5, 9), SECOND)
    made.on_spm(spm_packet(3, trail, lead, Join(7), Fin(), path_nla=PARENT), SECOND)
    assert edges(made) == (5, 9)
    assert (made.join_at, made.end.is_claimed, made.path_nla) == (None, False, PARENT)


@pytest.mark.rfc("W-20", "RCV-24")
def test_pair_without_window_information_is_skipped():
    """Both values must match; the path is taken."""
    made, _ = state()
    assert made.on_spm(spm_packet(1, NO_WINDOW_TRAIL, NO_WINDOW_LEAD), SECOND) is TAKEN
    assert not made.has_edges
    made.on_spm(spm_packet(2, 5, 9), SECOND)
    assert made.on_spm(spm_packet(3, NO_WINDOW_TRAIL, NO_WINDOW_LEAD, path_nla=PARENT), SECOND) is TAKEN
    assert edges(made) == (5, 9)
    assert made.path_nla == PARENT


@pytest.mark.rfc("W-20")
def test_a_window_that_merely_looks_like_the_pair_is_one():
    """LEAD 0x80000000 with another trail is a window."""
    made, _ = state()
    made.on_spm(spm_packet(1, 0x7FFFFFF0, NO_WINDOW_LEAD), SECOND)
    assert edges(made) == (0x7FFFFFF0, 0x80000000)


@pytest.mark.rfc("IMP-27")
def test_edges_of_an_spm_from_an_unreachable_neighbour_are_ignored():
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    made.on_spm(spm_packet(2, 7, 20, NbrUnreach()), SECOND)
    assert edges(made) == (5, 9)


@pytest.mark.rfc("W-19")
def test_empty_window():
    """Trail 0, lead -1 before the first data."""
    made, _ = state()
    made.on_spm(spm_packet(0, 0, -1), SECOND)
    assert edges(made) == (0, -1)
    assert made.unwrap(0) == 0
    assert not made.is_jump(0)


@pytest.mark.rfc("W-17")
@given(start=st.integers(0, 1 << 34), steps=st.lists(st.integers(0, 900), min_size=1, max_size=30))
def test_edges_follow_a_session_across_every_wrap(start, steps):
    """The same steps from anywhere give the same distances."""
    made, _ = state()
    made.on_spm(spm_packet(0, start, start + 10), SECOND)
    origin = made.trail
    assert made.lead == origin + 10
    trail, lead = start, start + 10
    for number, step in enumerate(steps, 1):
        trail, lead = trail + step // 2, lead + step
        if number % 2:
            made.on_spm(spm_packet(number, trail, lead), SECOND)
        else:
            assert made.place(wrap(lead), wrap(trail)) == (origin + lead - start, origin + trail - start)
            made.saw(made.unwrap(wrap(lead)), made.unwrap(wrap(trail)))
        assert edges(made) == (origin + trail - start, origin + lead - start)


@pytest.mark.rfc("W-17", "RCV-01")
@pytest.mark.parametrize(
    ("sqn", "trail", "expected"),
    [
        (1000, 100, (1000, 100)),
        (5, (1 << 32) - 10, ((1 << 32) + 5, (1 << 32) - 10)),
        (0, 0, (0, 0)),
        (MASK, MASK - 5, (MASK, MASK - 5)),
    ],
)
def test_first_data_packet_has_its_trail_behind_it(sqn, trail, expected):
    """Without any edge known."""
    made, _ = state()
    assert made.place(sqn, wrap(trail)) == expected


# Jumps


SILENT = SETTINGS.jump_silence_ivl


def at_nine(settings=SETTINGS):
    """Return a state with the window 5 to 9, heard last at 0."""
    made, counters = state(settings)
    made.on_spm(spm_packet(1, 5, 9), 0)
    return made, counters


@pytest.mark.rfc("SEC-07")
def test_a_jump_is_followed_after_spms_data_and_silence():
    made, counters = at_nine()
    assert made.is_jump(1010)
    assert not made.is_jump(1009)
    assert made.on_spm(spm_packet(2, 50_000, 50_100), SILENT) is UNPROVED
    assert made.on_spm(spm_packet(3, 50_010, 50_120), SILENT) is UNPROVED, "no data"
    assert made.doubts(50_121, 50_122, SILENT)
    assert edges(made) == (5, 9)
    assert made.path_nla == SOURCE
    assert made.on_spm(spm_packet(4, 50_020, 50_130), SILENT) is JUMPED
    assert edges(made) == (50_020, 50_130)
    assert (counters.jumps_rejected, counters.jumps_followed) == (3, 1)


@pytest.mark.rfc("SEC-07")
def test_a_jump_waits_for_the_silence_of_the_old_position():
    made, _ = at_nine()
    made.doubts(50_000, 50_001, SILENT - 1)
    verdicts = [made.on_spm(spm_packet(number, 50_000, 50_100), SILENT - 1) for number in (2, 3, 4)]
    assert verdicts == [UNPROVED] * 3
    assert made.on_spm(spm_packet(5, 50_000, 50_100), SILENT) is JUMPED


@pytest.mark.rfc("SEC-07")
def test_an_spm_of_the_source_ends_every_claim():
    made, counters = at_nine()
    made.doubts(50_000, 50_001, SILENT)
    made.on_spm(spm_packet(9, 50_000, 50_100), SILENT)
    assert made.on_spm(spm_packet(2, 5, 9), SILENT) is TAKEN, "the claim moves no SPM_SQN"
    assert counters.jumps_refuted == 1
    assert made.on_spm(spm_packet(10, 50_000, 50_100), SILENT) is UNPROVED


def test_a_repeated_spm_is_one_witness():
    made, _ = at_nine()
    made.doubts(50_000, 50_001, SILENT)
    verdicts = [made.on_spm(spm_packet(9, 50_000, 50_100), SILENT) for _ in range(5)]
    assert verdicts == [UNPROVED] * 5


def test_spms_alone_are_followed_within_the_window_after_silence():
    """The source went idle during an outage: no data will follow."""
    made, _ = at_nine(parameters(jump_confirmations=2))
    far = 100_000
    assert made.on_spm(spm_packet(2, 5, far), SILENT) is UNPROVED
    assert made.on_spm(spm_packet(3, 5, far), SILENT - 1) is UNPROVED
    assert made.on_spm(spm_packet(4, 5, far), SILENT) is TAKEN
    assert edges(made) == (5, far)


def test_claims_are_bounded():
    made, counters = at_nine()
    for place in range(100):
        assert made.doubts(10_000_000 * (place + 1), 10_000_000 * (place + 1) + 1, SECOND)
    made.on_spm(spm_packet(2, 5, 9), SECOND)
    assert (counters.jumps_rejected, counters.jumps_refuted) == (100, 4)


def test_a_jump_takes_no_trail_back():
    made, _ = at_nine(parameters(rxw_sqns=1000, jump_confirmations=1))
    made.doubts(50_000, 50_001, SILENT)
    assert made.on_spm(spm_packet(2, -100, 50_000), SILENT) is JUMPED
    assert edges(made) == (5, 50_000)


@pytest.mark.parametrize("confirmations", [1, 2, 5])
def test_so_many_spms_confirm_a_jump(confirmations):
    made, _ = at_nine(parameters(rxw_sqns=1000, jump_confirmations=confirmations))
    made.doubts(50_100, 50_101, SILENT)
    verdicts = [
        made.on_spm(spm_packet(number, 50_000, 50_100 + number), SILENT) for number in range(2, confirmations + 2)
    ]
    assert verdicts == [UNPROVED] * (confirmations - 1) + [JUMPED]


@pytest.mark.rfc("SEC-07", "SEC-03")
def test_the_largest_jump_costs_nothing():
    """2^31 - 1 ahead."""
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    assert made.is_jump(made.unwrap(wrap(9 + (1 << 31) - 1)))
    assert made.on_spm(spm_packet(2, 5, 9 + (1 << 31) - 1), SECOND) is TAKEN, "no window"
    assert edges(made) == (5, 9)


# Options


@pytest.mark.rfc("RCV-03", "SRC-31")
def test_join_is_clamped_to_the_trail():
    made, _ = state()
    made.on_spm(spm_packet(1, 100, 200, Join(150)), SECOND)
    assert made.join_at == 150
    made.on_spm(spm_packet(2, 100, 200, Join(50)), SECOND)
    assert made.join_at == 100
    made.on_spm(spm_packet(3, 100, 200, Join(201)), SECOND)
    assert made.join_at == 201


@pytest.mark.rfc("RCV-25")
def test_fin_tells_the_last_sqn():
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    assert not made.end.is_claimed
    made.on_spm(spm_packet(2, 5, 12, Fin()), SECOND)
    made.on_spm(spm_packet(3, 5, 12, Fin()), 2 * SECOND)  # a repetition delays nothing
    assert made.end.deadline_ns == SECOND + SETTINGS.end_confirm_ivl
    assert made.end.lead is None
    made.end.believe()
    assert (made.end.lead, made.end.is_witnessed, made.end.deadline_ns) == (12, False, NEVER)


@pytest.mark.rfc("RCV-23", "RCV-25")
def test_fin_never_ends_a_session_before_what_is_known_of_it():
    """Otherwise losses behind the false end would never be told."""
    made, counters = state()
    made.on_spm(spm_packet(1, 5, 20), SECOND)
    made.on_spm(spm_packet(2, 5, 12, Fin()), SECOND)
    assert not made.end.is_claimed
    assert counters.ends_refuted == 1


@pytest.mark.rfc("RCV-26")
def test_reset_is_the_last_spms():
    made, _ = state()
    made.on_spm(spm_packet(1, 5, 9, Rst(no_naks=True, error=3)), SECOND)
    made.end.believe()
    assert made.end.reset == Rst(no_naks=True, error=3)


# The epoch


@given(source_lead=st.integers(-1, 1 << 50))
def test_epoch_in_the_first_spm_gives_the_sources_own_numbers(source_lead):
    """Covers design section 3: sqns are 64-bit and the source's upper half is in a private option."""
    made, _ = state()
    epoch = Epoch(next_upper=source_lead + 1 >> 32, start_s=1, start_ns=2)
    made.on_spm(spm_packet(1, source_lead - 7, source_lead, epoch), SECOND)
    assert edges(made) == (source_lead - 7, source_lead)
    assert made.epoch == SessionEpoch(SECOND + 2, 0)


@pytest.mark.parametrize("upper", [1 << 30, 1 << 31, 0xFFFFFFFF])
def test_numbers_that_no_source_has_come_to_are_not_believed(upper):
    made, _ = state()
    made.on_spm(spm_packet(1, 0, 9, Epoch(upper, 1, 2)), SECOND)
    assert edges(made) == (0, 9)
    assert made.epoch is NO_EPOCH
    made.on_spm(spm_packet(2, 0, 10, Epoch(upper, 1, 2)), SECOND)
    assert made.epoch is NO_EPOCH
    made.on_spm(spm_packet(3, 0, 11, Epoch((1 << 30) - 1, 1, 2)), SECOND)
    assert made.epoch.shift == ((1 << 30) - 1) << 32


@given(source_lead=st.integers(100, 1 << 50))
def test_epoch_that_comes_later_gives_the_shift(source_lead):
    """Covers design section 3: what was already numbered keeps its numbers."""
    made, _ = state()
    first, trail = made.place(wrap(source_lead), wrap(source_lead - 50))
    made.begin_at(first, trail)
    assert made.epoch is NO_EPOCH
    lead = source_lead + 3
    made.on_spm(spm_packet(1, source_lead - 50, lead, Epoch(lead + 1 >> 32, 1, 2)), SECOND)
    assert made.epoch is not NO_EPOCH
    assert made.lead + made.epoch.shift == lead
    assert made.trail + made.epoch.shift == source_lead - 50
    assert first + made.epoch.shift == source_lead


@pytest.mark.rfc("SEC-03", "RCV-31")
def test_ncfs_cannot_walk_the_lead_ahead():
    """Their bound counts from what data or an SPM told of."""
    made, _ = state(parameters(ncf_lead_sqns=100))
    assert not made.reveals(1)
    made.on_spm(spm_packet(1, 5, 9), SECOND)
    assert made.reveals(110)
    assert not made.reveals(111)
    made.revealed(110)
    assert edges(made) == (5, 109)
    assert not made.reveals(111)
    made.saw(50, 5)
    assert made.lead == 109
    assert made.reveals(151)
    assert not made.reveals(152)


# What goes down


def test_session_state_believed_spm_is_passed_down_unchanged():
    made, _ = state()
    for spm in (spm_packet(1, 5, 9, Join(7)), spm_packet(2, 5, 8), spm_packet(3, 6, 5), spm_packet(4, 6, 1005, Fin())):
        made.on_spm(spm, SECOND)
        assert made.for_children(spm) is spm


@pytest.mark.rfc("W-18", "W-20", "SEC-07")
@pytest.mark.parametrize(("trail", "lead"), [(0, 1 << 31), (100, 99 + (1 << 31)), (11, 9)])
def test_edges_that_are_not_believed_do_not_go_down(trail, lead):
    """INT-Q11: OpenPGM walks up to whatever lead it reads. It gets the edges known here, and no end that depends on others."""
    made, _ = state()
    first, second = (spm_packet(number, trail, lead, Join(7), Fin(), Rst(), path_nla=PARENT) for number in (1, 3))
    made.on_spm(spm_packet(0, 5, 9), SECOND)
    made.on_spm(first, SECOND)
    passed = made.for_children(first)
    assert passed is not None
    assert (passed.spm_sqn, passed.trail, passed.lead, passed.options) == (1, 5, 9, (Rst(),))
    assert passed.octets == b""
    made, _ = state()
    made.on_spm(spm_packet(1, NO_WINDOW_TRAIL, NO_WINDOW_LEAD), SECOND)
    assert made.for_children(second) is None, "nothing is known yet"
