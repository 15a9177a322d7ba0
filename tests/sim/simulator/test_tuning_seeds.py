"""Two seeds of `pgm tune` agree within what they state; `tests.sim.figures.tuning_seeds` has more trees and seeds."""

from __future__ import annotations

import attrs

from tests.sim.figures.tuning_seeds import agree, behind_relay, overlaps, repeated, searched


def test_tune_two_seeds_agree_within_their_intervals() -> None:
    case = attrs.evolve(behind_relay(), messages=25)
    found = [searched(case, seed, 100) for seed in (1, 2)]
    again = repeated(case, [one.best.candidate for one in found], 12)
    assert agree(*found)
    assert [overlaps(one.best, new) for one, new in zip(found, again, strict=True)] == [True, True]
    assert [(one.best.is_clearly_better, one.best.errors.score < 0.3) for one in found] == [(True, True)] * 2
