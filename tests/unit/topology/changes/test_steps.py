"""Steps from one topology file to another: their order, their costs, and what may lose data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import UsageError
from pgm.topology.changes.steps import Action, plan_steps, require_same_name, stages
from pgm.topology.load import loads
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all
from tests.unit.topology.changes.trees import DEMO, change, nodes, step_of, with_second_repairer

PLANS = plan_all(loads(DEMO))


def test_same_file_has_no_steps() -> None:
    plan = change(DEMO, DEMO + "# a comment\n")
    assert plan.steps == ()
    assert len(plan.unchanged) == len(PLANS)


def test_new_repairer_starts_before_others_ask_it() -> None:
    plan = change(DEMO, with_second_repairer())
    assert next(step.action for step in plan.steps) is Action.START
    assert nodes(plan, Action.START) == ["east-second"]
    assert nodes(plan, Action.RESTART) == nodes(plan, Action.STOP) == []
    assert not plan.losses


def test_removed_repairer_stops_after_others_leave_it() -> None:
    plan = change(with_second_repairer(), DEMO)
    assert plan.steps[-1].node == "east-second"
    assert plan.steps[-1].action is Action.STOP
    assert not plan.losses


def test_changes_in_place_are_one_stage_with_parents_first() -> None:
    plan = change(DEMO, DEMO.replace("36Mbit/s", "72Mbit/s"))
    (stage,) = stages(plan.steps)
    assert next(step.node for step in stage) == "source"


def test_restarts_are_single_stages() -> None:
    new = DEMO.replace('profile = "lossy"', 'profile = "lossy"\nparameters = { so_rcvbuf = "4MiB" }')
    plan = change(DEMO, new)
    assert all(len(stage) == 1 for stage in stages(plan.steps))
    restarted = nodes(plan, Action.RESTART)
    assert restarted.index("west-repairer") < restarted.index("far-west-aggregator") < restarted.index("far-west-1")


def test_restart_of_a_source_may_lose_data_and_says_what() -> None:
    plan = change(DEMO, DEMO.replace('window = "30s"', 'window = "20s"'))
    assert [step.node for step in plan.losses] == ["source"]
    assert "program of the source" in step_of(plan, "source").cost.loss


def test_restart_of_a_repairer_beside_parents_loses_nothing() -> None:
    plan = change(DEMO, DEMO.replace("seconds = 60", "seconds = 30", 1))
    assert nodes(plan, Action.RESTART) == ["east-repairer"]
    assert not plan.losses


def test_another_name_is_refused_with_file_and_remedy() -> None:
    other = loads(DEMO.replace('name = "loopback-demo"', 'name = "other"'), "new.toml")
    with pytest.raises(UsageError, match=r"new\.toml:4: name = 'other'") as caught:
        require_same_name(loads(DEMO), other)
    assert caught.value.remedy


@given(st.sets(st.sampled_from(sorted(PLANS))), st.sets(st.sampled_from(sorted(PLANS))))
def test_each_node_has_one_step_or_none(before: set[str], after: set[str]) -> None:
    old, new = ({name: PLANS[name] for name in names} for names in (before, after))
    plan = plan_steps(old, new)
    assert sorted([*(step.node for step in plan.steps), *plan.unchanged]) == sorted(before | after)
    assert set(nodes(plan, Action.START)) == after - before
    assert set(nodes(plan, Action.STOP)) == before - after
    started = [step.role for step in plan.steps if step.action is Action.START]
    order = [Role.AGGREGATOR, Role.REPAIRER, Role.RECEIVER, Role.SOURCE]
    ranks = [max(1, order.index(role)) for role in started]
    assert ranks == sorted(ranks)
