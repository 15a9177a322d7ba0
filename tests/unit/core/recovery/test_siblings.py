"""Siblings: which repairer of the segment is asked, and when the parents' turn has come."""

from __future__ import annotations

import random

import pytest

from pgm.core.counters import Counters
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.recovery.siblings import Siblings
from pgm.core.session_context import SessionContext
from pgm.parameters import Parameters
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from tests.unit.core.makers import MS

ONE, TWO = "10.0.0.3", "10.0.0.4"


def siblings(*addresses: str) -> Siblings:
    parameters = Parameters(parent_patience=6, parent_retry_ivl=SECOND)
    return Siblings(SessionContext(bytes(8), 7500, parameters, Counters(), random.Random(1)), addresses)


def test_siblings_get_their_tries_in_turn() -> None:
    among, missing = siblings(ONE, TWO), MissingRange(1, 2)
    asked = []
    while (sibling := among.for_request(missing, 0)) is not None:
        asked.append(sibling)
        missing.sibling_tries += 1
    assert asked == [ONE, TWO]
    assert siblings().for_request(MissingRange(1, 2), 0) is None


def test_siblings_silent_one_rests_until_it_is_heard() -> None:
    among = siblings(ONE)
    for _ in range(6):
        assert among.for_request(MissingRange(1, 2), 0) == ONE
        among.unanswered(ONE, 0)
    assert among.for_request(MissingRange(1, 2), SECOND - MS) is None
    assert among.for_request(MissingRange(1, 2), SECOND) == ONE
    among.unanswered(ONE, SECOND)
    assert among.for_request(MissingRange(1, 2), SECOND + MS) is None
    among.heard(ONE)
    assert among.for_request(MissingRange(1, 2), SECOND + MS) == ONE


def tree(*repairers: str, segment: str = "") -> str:
    text = f"""
version = 1
name = "lan"
[streams.s]
data_port = 7500
[segments.lan]
{segment or 'group = "239.192.0.1"'}
interface = "10.0.0.0/24"
[nodes.source]
role = "source"
segment = "lan"
address = "10.0.0.1"
streams = ["s"]
"""
    for number, parents in enumerate(repairers, 3):
        text += f"""
[nodes.repairer-{number}]
role = "repairer"
segment = "lan"
address = "10.0.0.{number}"
parents = [{parents}]
"""
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (tree('"source"'), [()]),
        (tree('"source"', '"source"'), [(TWO,), (ONE,)]),
        (tree('"source"', '"source"', '"source"'), [(TWO, "10.0.0.5"), ("10.0.0.5", ONE), (ONE, TWO)]),
        (tree('"source"', '"repairer-3", "source"'), [(), ()]),
        (tree('"source"', '"source"', segment="unicast = true"), [(), ()]),
    ],
    ids=["alone", "pair", "ring", "parent", "leg"],
)
def test_siblings_of_a_plan_are_other_repairers_of_the_segment(text: str, expected: list[tuple[str, ...]]) -> None:
    plans = plan_all(loads(text))
    assert [plan.siblings for name, plan in plans.items() if name != "source"] == expected
