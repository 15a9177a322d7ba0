"""A tree whose text tests change, and the steps of such a change."""

from __future__ import annotations

from pathlib import Path

from pgm.topology.changes.steps import Action, ChangePlan, NodeStep, plan_steps
from pgm.topology.load import loads
from pgm.topology.plan import plan_all

DEMO = Path("deploy/topologies/loopback-demo.toml").read_text()
EAST_RECEIVERS = '[nodes."east-*"]'
SECOND_REPAIRER = """\
[nodes.east-second]
role = "repairer"
segment = "east"
address = "127.0.1.3"
parents = ["east-aggregator"]
cache = { bytes = "512MiB", seconds = 60 }
"""


def with_second_repairer(text: str = DEMO) -> str:
    """Return a file with one more repairer, which the receivers of its segment ask, too."""
    more = text.replace(EAST_RECEIVERS, SECOND_REPAIRER + EAST_RECEIVERS)
    asked = 'parents = ["east-aggregator", "east-repairer"]'
    return more.replace(asked, 'parents = ["east-aggregator", "east-repairer", "east-second"]')


def change(old: str, new: str) -> ChangePlan:
    """Return the steps from one text to another."""
    return plan_steps(plan_all(loads(old)), plan_all(loads(new)))


def step_of(plan: ChangePlan, node: str) -> NodeStep:
    """Return the step of a node."""
    return next(step for step in plan.steps if step.node == node)


def nodes(plan: ChangePlan, action: Action) -> list[str]:
    """Return the nodes of one action, in the order of their steps."""
    return [step.node for step in plan.steps if step.action is action]
