"""How much is asked for at a time while the asker's own socket drops packets."""

from __future__ import annotations

import attrs

from pgm.core.counters import Counters
from pgm.core.recovery.outstanding_limit import OutstandingLimit
from pgm.units import SECOND
from tests.unit.core.makers import parameters, session_context
from tests.unit.core.recovery.recoveries import EXACT, due, recovery


def limits(drops, most=1008):
    """The limit with each wave before which so many packets were dropped; and how often it was cut."""
    counters = Counters(socket_drops=7)
    at_once, found = OutstandingLimit(session_context(parameters(nak_max_outstanding=most), counters=counters)), []
    for more in drops:
        counters.socket_drops += more
        at_once.begin_wave()
        found.append(at_once.sqns)
    return found, counters.nak_cuts


def test_without_drops_it_is_the_parameter():
    assert limits([0, 0, 0]) == ([1008] * 3, 0)


def test_each_wave_after_new_drops_halves_it_down_to_a_quarter():
    assert limits([1, 5000, 3, 1]) == ([504, 252, 252, 252], 2)


def test_a_list_more_with_each_wave_without():
    found, cuts = limits([9, 9, *[0] * 14])
    assert found == [504, *range(252, 1008, 63), 1008, 1008, 1008]
    assert cuts == 2


def test_a_small_limit_is_never_none():
    assert limits([1, 1, 1, 0], most=2) == ([1, 1, 1, 2], 1)


def test_outstanding_limit_socket_drops_halve_it_until_they_end():
    """And in the end for all."""
    counters = Counters()
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=1008), counters=counters)
    made.detect_new([(sqn, sqn + 1) for sqn in range(0, 12_000, 2)], SECOND)
    asked, drops = [], [0, 800, 90, 90]
    while made.missing and len(asked) < 100:
        counters.socket_drops += drops.pop(0) if drops else 0
        now = made.deadline_ns
        asked.append(due(made, now).spans)
        for first, end in asked[-1]:
            made.arrived(first, end, now)
    assert [len(spans) for spans in asked[:7]] == [1008, 504, 252, 252, 315, 378, 441]
    assert [span for spans in asked for span in spans] == [(sqn, sqn + 1) for sqn in range(0, 12_000, 2)]


def test_outstanding_limit_network_loss_leaves_it_unchanged():
    """Repairs that do not come are asked for again, as many at a time as before."""
    counters = Counters()
    made = recovery(attrs.evolve(EXACT, nak_max_outstanding=1008), counters=counters)
    made.detect(0, 5000, SECOND)
    for _ in range(5):
        now = made.deadline_ns
        assert made.admission.outstanding in {0, 1008}
        due(made, now)
    assert made.admission.limit.sqns == 1008
    assert counters.nak_cuts == 0
