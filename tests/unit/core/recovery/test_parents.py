"""Whom to ask."""

import pytest

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
