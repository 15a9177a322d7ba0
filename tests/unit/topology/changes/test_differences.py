"""Differences of two plans: what a running node takes, and what needs a restart."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs
from hypothesis import given
from hypothesis import strategies as st

from pgm.parameters import ROWS
from pgm.topology.changes.differences import GROWING, LIVE, TAKEN, differences, merged
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from tests.unit.topology.changes.trees import DEMO, with_second_repairer

CORES = ("pgm/core", "aggregator", "repairer")
PLANS = plan_all(loads(DEMO))


def changed(node: str, **values: object) -> list[str]:
    """Return why a node must restart for other parameters; empty texts for what it takes in place."""
    old = PLANS[node]
    new = attrs.evolve(old, parameters=attrs.evolve(old.parameters, **values))
    return [one.why_restart for one in differences(old, new)]


def test_live_parameters_are_read_at_each_use() -> None:
    """A part that keeps a live parameter in its constructor would never see a change. Companions are restarted."""
    of_companions = ("source/key_records.py", "source/proved.py")
    kept = [
        f"{node.attr} at {path}:{node.lineno}"
        for root in CORES
        for path in Path(root).rglob("*.py")
        if not str(path).endswith(of_companions)
        for made in ast.walk(ast.parse(path.read_text()))
        if isinstance(made, ast.FunctionDef) and made.name == "__init__"
        for node in ast.walk(made)
        if isinstance(node, ast.Attribute) and node.attr in LIVE
    ]
    assert kept == []


def test_tables_of_parameters_known_and_disjoint() -> None:
    assert ROWS.keys() >= LIVE | TAKEN | GROWING
    assert not (LIVE & TAKEN)
    assert not (LIVE & GROWING)
    assert not (TAKEN & GROWING)


def test_window_that_grows_is_in_place_and_a_smaller_one_not() -> None:
    assert changed("source", txw_secs=PLANS["source"].parameters.txw_secs * 2) == [""]
    assert changed("source", txw_secs=PLANS["source"].parameters.txw_secs // 2) == [
        "a running window or cache may only grow"
    ]


def test_size_of_packets_needs_a_restart() -> None:
    assert changed("source", max_tpdu=1000) == ["windows, tables and sockets get it at the start"]


def test_parameter_that_no_part_reads_is_no_difference() -> None:
    assert changed("east-1", cache_secs=1) == []


def test_aggregator_takes_the_rate_of_its_own_repairs() -> None:
    """A relaying aggregator repairs from its cache."""
    assert changed("east-aggregator", rdata_share=0.4, rdata_hold_ivl=3_141_593) == ["", ""]


def test_new_repairer_changes_its_neighbours_in_place() -> None:
    new = plan_all(loads(with_second_repairer()))
    found = {one.name: one for one in differences(PLANS["east-1"], new["east-1"])}
    assert set(found) == {"stream numbers allowed", "parents", "local_repairers", "keepers"}
    assert all(one.is_in_place for one in found.values())
    assert found["parents"].text == "parents: 127.0.1.1, 127.0.1.2 -> 127.0.1.1, 127.0.1.2, 127.0.1.3"


def test_losses_change_only_where_some_are_injected() -> None:
    with_loss = plan_all(loads(DEMO.replace('loss = "5%"', 'loss = "6%"')))
    without = plan_all(loads(DEMO.replace('loss = { loss = "5%" }', "")))
    name = "far-west-1"
    assert [one.is_in_place for one in differences(PLANS[name], with_loss[name])] == [True]
    assert [one.is_in_place for one in differences(without[name], PLANS[name])] == [False]


KEYS = sorted(key for key in ROWS if isinstance(ROWS[key].default, int) and not isinstance(ROWS[key].default, bool))


@given(st.sampled_from(sorted(PLANS)), st.dictionaries(st.sampled_from(KEYS), st.integers(1, 9), max_size=6))
def test_merged_plan_lacks_just_what_needs_a_restart(node: str, factors: dict[str, int]) -> None:
    old = PLANS[node]
    values = {key: getattr(old.parameters, key) * factor for key, factor in factors.items()}
    new = attrs.evolve(old, parameters=attrs.evolve(old.parameters, **values), digest="new")
    fixed = [one for one in differences(old, new) if not one.is_in_place]
    taken = merged(old, new)
    left = {one.name for one in differences(taken, new)}
    assert left >= {one.name for one in fixed} - GROWING
    assert left <= {one.name for one in fixed}
    assert taken.digest == ("new" if not fixed else old.digest)
