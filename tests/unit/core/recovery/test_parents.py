"""Whom to ask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.recovery.parents import Parents
from pgm.units import SECOND
from tests.unit.core.makers import MS, parameters, session_context

OWN_REPAIRER, NEXT_TIER, SOURCE, PATH = "10.0.0.3", "10.0.1.2", "10.9.0.1", "10.0.0.250"
SETTINGS = parameters(parent_patience=3, parent_retry_ivl=5 * SECOND)


def parents(*configured, patience=None):
    counters = Counters()
    return Parents(session_context(SETTINGS, counters=counters), configured, patience=patience), counters


def leave_unanswered(made, times, now=SECOND):
    """Leave NAKs unanswered, one each `nak_rpt_ivl`; the last at `now`."""
    for repeat in range(times):
        at_ns = now - (times - 1 - repeat) * SETTINGS.nak_rpt_ivl
        made.before_asking(at_ns)
        made.unanswered(made.current, at_ns)


def test_the_first_of_the_list_is_asked():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    assert made.current == OWN_REPAIRER
    assert made.all == (OWN_REPAIRER, NEXT_TIER, SOURCE)
    assert [made.is_parent(peer) for peer in (OWN_REPAIRER, SOURCE, PATH)] == [True, True, False]


@pytest.mark.rfc("RCV-22")
def test_nobody_is_known_at_first():
    made, _ = parents()
    assert made.current is None
    made.unanswered(None, SECOND)
    made.before_asking(SECOND)
    assert made.current is None


@pytest.mark.rfc("RCV-21")
def test_path_of_the_spm_is_the_last_resort():
    made, counters = parents(OWN_REPAIRER)
    made.learn_path(PATH)
    assert made.all == (OWN_REPAIRER, PATH)
    assert made.current == OWN_REPAIRER
    assert counters.path_mismatches == 1
    leave_unanswered(made, 3)
    assert made.current == PATH


@pytest.mark.rfc("RCV-21")
def test_path_alone_is_followed_wherever_it_goes():
    """The most recent SPM says where NAKs go."""
    made, counters = parents()
    made.learn_path(PATH)
    assert made.current == PATH
    made.learn_path(SOURCE)
    assert made.all == (SOURCE,)
    assert made.current == SOURCE
    assert counters.path_mismatches == 0


def test_path_that_is_a_parent_adds_nothing():
    made, counters = parents(OWN_REPAIRER, SOURCE)
    made.learn_path(SOURCE)
    assert made.all == (OWN_REPAIRER, SOURCE)
    assert counters.path_mismatches == 0


def test_a_new_path_leaves_the_one_who_is_asked():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER)
    made.learn_path(PATH)
    leave_unanswered(made, 3)
    assert made.current == NEXT_TIER
    made.learn_path("10.0.0.251")
    assert made.current == NEXT_TIER
    leave_unanswered(made, 3)
    assert made.current == "10.0.0.251"
    made.learn_path("10.0.0.252")
    assert made.current in made.all


def test_patience_is_counted_in_unanswered_naks():
    made, counters = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    leave_unanswered(made, 2)
    assert made.current == OWN_REPAIRER
    made.answered(OWN_REPAIRER)
    leave_unanswered(made, 2)
    assert made.current == OWN_REPAIRER
    leave_unanswered(made, 1, now=SECOND + SETTINGS.nak_rpt_ivl)
    assert made.current == NEXT_TIER
    leave_unanswered(made, 3)
    assert made.current == SOURCE
    leave_unanswered(made, 3)
    assert made.current == OWN_REPAIRER
    assert counters.parent_changes == 3


def test_parents_naks_unanswered_together_change_nothing():
    """A burst of losses, or a process that is late, leaves many NAKs of a fast stream unanswered in a short time."""
    made, _ = parents(OWN_REPAIRER, NEXT_TIER)
    least_ns = 2 * SETTINGS.nak_rpt_ivl
    for at_ns in range(SECOND, SECOND + least_ns, 10 * MS):
        made.unanswered(OWN_REPAIRER, at_ns)
    assert made.current == OWN_REPAIRER
    made.unanswered(OWN_REPAIRER, SECOND + least_ns)
    assert made.current == NEXT_TIER


def test_naks_to_somebody_else_do_not_count():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER)
    for _ in range(10):
        made.unanswered(NEXT_TIER, SECOND)
        made.unanswered(None, SECOND)
    assert made.current == OWN_REPAIRER


def test_an_only_parent_is_never_left():
    made, counters = parents(OWN_REPAIRER)
    leave_unanswered(made, 20)
    assert made.current == OWN_REPAIRER
    assert made.after(OWN_REPAIRER) == made.for_request(OWN_REPAIRER, 9) == OWN_REPAIRER
    assert counters.parent_changes == 0


def test_the_preferred_parent_is_tried_again_after_a_while():
    """One unanswered NAK is then enough to leave it."""
    made, _ = parents(OWN_REPAIRER, NEXT_TIER)
    leave_unanswered(made, 3, now=SECOND)
    made.before_asking(6 * SECOND - 1)
    assert made.current == NEXT_TIER
    made.before_asking(6 * SECOND)
    assert made.current == OWN_REPAIRER
    made.unanswered(OWN_REPAIRER, 6 * SECOND)
    assert made.current == NEXT_TIER
    made.before_asking(11 * SECOND - 1)
    assert made.current == NEXT_TIER


def test_the_preferred_parent_is_taken_back_when_it_is_heard():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    leave_unanswered(made, 6)
    assert made.current == SOURCE
    made.heard(PATH)
    made.heard(SOURCE)
    assert made.current == SOURCE
    made.heard(NEXT_TIER)
    assert made.current == NEXT_TIER
    made.heard(SOURCE)
    assert made.current == NEXT_TIER
    made.answered(OWN_REPAIRER)
    assert made.current == OWN_REPAIRER


def test_parents_single_request_moves_without_the_others():
    made, counters = parents(OWN_REPAIRER, NEXT_TIER, SOURCE, patience=6)
    assert [made.after(asked) for asked in made.all] == [NEXT_TIER, SOURCE, OWN_REPAIRER]
    assert made.after(PATH) == OWN_REPAIRER
    asked, turns = None, []
    for unanswered in range(7):
        asked = made.for_request(asked, unanswered)
        turns.append(asked)
    assert turns == [*[OWN_REPAIRER] * 2, *[NEXT_TIER] * 2, *[SOURCE] * 2, OWN_REPAIRER]
    assert (made.current, counters.parent_changes) == (OWN_REPAIRER, 0)


def test_a_path_that_was_asked_and_is_gone():
    made, _ = parents(OWN_REPAIRER)
    made.learn_path(PATH)
    leave_unanswered(made, 3)
    assert made.current == PATH
    made.learn_path(OWN_REPAIRER)
    assert made.current == OWN_REPAIRER
    made.learn_path(PATH)
    leave_unanswered(made, 3)
    made.learn_path("10.0.0.251")
    assert made.current == OWN_REPAIRER


def test_parent_with_wrong_packets_is_passed_over_for_a_while():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    made.accuse(OWN_REPAIRER, SECOND)
    assert made.current == NEXT_TIER
    made.heard(OWN_REPAIRER)
    assert made.current == NEXT_TIER
    made.before_asking(6 * SECOND - 1)
    assert made.current == NEXT_TIER
    made.before_asking(6 * SECOND)
    assert made.current == OWN_REPAIRER


def test_accused_parent_that_is_not_asked_is_passed_over():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    made.accuse(NEXT_TIER, SECOND)
    assert made.current == OWN_REPAIRER
    assert made.after(OWN_REPAIRER) == SOURCE
    leave_unanswered(made, 3, now=2 * SECOND)
    assert made.current == SOURCE


def test_accusation_of_an_unasked_parent_ends():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    made.accuse(NEXT_TIER, SECOND)
    made.before_asking(6 * SECOND)
    assert made.after(OWN_REPAIRER) == NEXT_TIER
    leave_unanswered(made, 3, now=6 * SECOND)
    assert made.current == NEXT_TIER


def test_parents_that_all_gave_wrong_packets_are_asked_in_turn():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER)
    for expected in (NEXT_TIER, OWN_REPAIRER, NEXT_TIER):
        made.accuse(made.current, SECOND)
        assert made.current == expected


def test_accusation_of_an_only_parent_or_a_stranger_changes_nothing():
    made, counters = parents(OWN_REPAIRER)
    made.accuse(OWN_REPAIRER, SECOND, 100)
    made.accuse(PATH, SECOND, 100)
    assert (made.current, made.all, made.forged) == (OWN_REPAIRER, (OWN_REPAIRER,), {OWN_REPAIRER: 100})
    assert counters.parent_changes == 0


def test_parent_with_many_wrong_packets_is_asked_last():
    made, _ = parents(OWN_REPAIRER, NEXT_TIER, SOURCE)
    made.accuse(OWN_REPAIRER, SECOND, SETTINGS.forged_allowed)
    assert made.all == (OWN_REPAIRER, NEXT_TIER, SOURCE)
    made.accuse(OWN_REPAIRER, SECOND, 1)
    assert made.all == (NEXT_TIER, SOURCE, OWN_REPAIRER)
    assert made.current == NEXT_TIER
    made.before_asking(100 * SECOND)
    made.heard(OWN_REPAIRER)
    assert made.current == NEXT_TIER
    made.learn_path(PATH)
    assert made.all == (NEXT_TIER, SOURCE, PATH, OWN_REPAIRER)


PEERS = (OWN_REPAIRER, NEXT_TIER, SOURCE, PATH)
STEPS = st.tuples(
    st.sampled_from(["accuse", "heard", "answered", "unanswered", "before_asking", "learn_path"]),
    st.sampled_from(PEERS),
    st.integers(0, 3 * SECOND),
)


@given(st.integers(0, 3), st.lists(STEPS, max_size=40))
def test_parents_keep_their_order_and_a_current_one(count, steps):
    """Whatever comes: all parents stay, and with two or more an accused one is left at once."""
    made, _ = parents(*PEERS[:count])
    now, path = SECOND, None
    for act, peer, later in steps:
        now += later
        if act == "accuse":
            was_known = peer in made.all
            made.accuse(peer, now, later % 3)
            assert not was_known or len(made.all) < 2 or made.current != peer
        elif act == "unanswered":
            made.unanswered(made.current, now)
        elif act == "before_asking":
            made.before_asking(now)
        elif act == "learn_path":
            made.learn_path(peer)
            path = peer
        else:
            getattr(made, act)(peer)
        known = {*PEERS[:count], *([] if path is None else [path])}
        assert sorted(made.all) == sorted(known)
        assert made.current in known or not known
        is_last = [made.forged.get(one, 0) > SETTINGS.forged_allowed for one in made.all]
        assert is_last == sorted(is_last)
        assert made.all == tuple(dict.fromkeys(made.all))
        assert {made.after(one) for one in known} <= known
