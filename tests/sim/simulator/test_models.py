"""Simulated trees agree with the formulas: a small share of `python -m tests.sim.figures.models`.

Few packets leave more to chance, so that the bounds are wider than the 5 % of the command.
"""

from __future__ import annotations

import pytest

from pgm.models.back_off import exponential_naks, uniform_naks
from pgm.models.tree import ModelLink, ModelNode
from tests.sim.figures.models import latencies, rates, sends
from tests.sim.figures.models.back_offs import SILENCE, naks_per_loss
from tests.sim.figures.models.rows import Row
from tests.sim.figures.models.trees import DEAF, Case, far_repairers, lan, three_tiers, tree_rows

TREES = (
    (Case("tiers", three_tiers(0.1)), 300),
    (Case("relays that keep none", far_repairers(4, 8, 0.05, 0.02), DEAF), 600),
    (Case("lone repairer", lan(8, 1, 0.05)), 3000),
)


def test_one_link_carries_the_sends_of_the_formula() -> None:
    carried, naks = sends.link(30, 0.05, 500)
    assert abs(carried.error) < 0.05
    assert abs(naks.error) < 0.1
    assert abs(sends.unsuppressed(10, 0.05, 800).error) < 0.15


@pytest.mark.parametrize(("case", "packets"), TREES, ids=[case.name for case, _ in TREES])
def test_each_link_of_a_tree_carries_its_own_sends(case: Case, packets: int) -> None:
    rows = {row.quantity: row for row in tree_rows(case, packets)}
    assert abs(rows.pop("NAKs at the source").error) < 0.2
    assert [row for row in rows.values() if abs(row.error) > 0.1] == []


def test_a_killed_repairer_costs_the_source_nothing() -> None:
    tail = ModelLink("tail", (ModelNode(0.05, 2), ModelNode(0.05, is_repairer=True)))
    case = Case("killed", ModelLink("core", (ModelNode(0.02, 3, below=tail),)))
    rows = {row.quantity: row for row in tree_rows(case, 3000, killed="repairer-tail-core-0-0")}
    assert abs(rows["NAKs at the source"].error) < 0.2
    assert abs(rows["sends, core"].error) < 0.05


def test_exponential_back_off_spares_most_naks_of_a_thousand() -> None:
    uniform = naks_per_loss(1000, 2, nak_bo="uniform", has_relay=True, group=1000)
    assert abs(uniform / uniform_naks(1000, SILENCE) - 1) < 0.1
    exponential = naks_per_loss(1000, 4, nak_bo="exponential", has_relay=True, group=1000)
    assert exponential < 3 * exponential_naks(1000, SILENCE) < uniform / 8


def test_exponential_back_off_needs_no_ncf_if_naks_are_copied() -> None:
    naks = naks_per_loss(100, 30, nak_bo="exponential", has_relay=False, group=100)
    assert abs(naks / exponential_naks(100, SILENCE) - 1) < 0.4  # three standard errors


def test_congestion_control_reaches_the_rate_of_its_window() -> None:
    assert abs(rates.path(40, 0.01, losses=150).error) < 0.15


def test_repairs_take_the_time_of_the_formula() -> None:
    rows = {row.quantity: row for row in latencies.link(1, 0.05, 3000)}
    assert abs(rows["p50, ms"].error) < 0.1
    assert abs(rows["mean, ms"].error) < 0.15


def test_a_row_holds_within_five_per_cent_or_with_a_cause() -> None:
    assert Row("a", "sends", 1.04, 1.0).holds
    assert not Row("a", "sends", 0.94, 1.0).holds
    assert Row("a", "sends", 0.5, 1.0, "early repairs").holds
