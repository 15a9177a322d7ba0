"""Former names lead to names that exist, and are not used for anything else."""

from __future__ import annotations

import pytest

from pgm.core.counters import ROWS as COUNTER_ROWS
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, LossCause
from pgm.core.events import EVENTS as EVENT_ROWS
from pgm.deprecated import COUNTERS, EVENTS, PARAMETERS, with_former_names
from pgm.parameters import ROWS

TABLES = {
    "parameters": (PARAMETERS, set(ROWS)),
    "counters": (COUNTERS, {row.name for row in COUNTER_ROWS}),
    "events": (EVENTS, set(EVENT_ROWS)),
}


@pytest.mark.parametrize("kind", TABLES)
def test_present_names_exist_and_former_names_do_not(kind: str) -> None:
    names, known = TABLES[kind]
    assert set(names.values()) <= known
    assert not set(names) & known


def test_values_of_renamed_keys_have_both_names() -> None:
    assert with_former_names({"new": 1, "same": 2}, {"old": "new", "absent": "missing"}) == {
        "new": 1,
        "same": 2,
        "old": 1,
    }


def test_counters_snapshot_has_former_names() -> None:
    assert Counters(excess_nak_children=3).snapshot() == {"excess_nak_children": 3, "children_crying": 3}


def test_former_names_of_causes_are_the_present_causes() -> None:
    assert (LossCause.NAGGING, CloseCause.NAGGING) == (LossCause.EXCESS_NAKS, CloseCause.EXCESS_NAKS)
