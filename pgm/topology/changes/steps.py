"""Steps from one topology to another: which nodes start, change in place, restart or stop, and in which order.

Elements that are new start first, so that they serve before anyone asks them. Then running nodes change in place, parents
before children. Restarts follow one by one, parents before children. New receivers and new sources start next. Nodes that
the new file lacks stop last: sources, receivers, and elements with children before their parents.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from pgm.errors import UsageError
from pgm.topology.changes.costs import FREE, Cost, cost_of_restart, cost_of_start, cost_of_stop
from pgm.topology.changes.differences import Difference, differences
from pgm.topology.model import Topology
from pgm.topology.node_plan import Address, NodePlan, Role


class Action(enum.Enum):
    """Action on one node."""

    START = "start"
    CHANGE = "change in place"
    RESTART = "restart"
    STOP = "stop"


@attrs.frozen
class NodeStep:
    """Step of one node."""

    node: str
    role: Role
    action: Action
    differences: tuple[Difference, ...] = ()
    cost: Cost = FREE

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "node": self.node,
            "role": self.role.value,
            "action": self.action.value,
            "differences": [one.row() for one in self.differences],
            "cost": self.cost.text,
            "may_lose": self.cost.loss,
        }


@attrs.frozen
class ChangePlan:
    """Steps in their order, and the nodes that stay as they are."""

    steps: tuple[NodeStep, ...]
    unchanged: tuple[str, ...]

    @property
    def losses(self) -> tuple[NodeStep, ...]:
        """Steps that may lose data."""
        return tuple(step for step in self.steps if step.cost.loss)

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"steps": [step.row() for step in self.steps], "unchanged": list(self.unchanged)}


def require_same_name(old: Topology, new: Topology) -> None:
    """Raise `UsageError` for a file of another tree."""
    if old.name != new.name:
        line = new.lines.of(("name",))
        raise UsageError(
            f"{new.path}:{line}: name = {new.name!r}, but the running tree is {old.name!r}",
            remedy="a tree keeps its name: its sockets are found by it; start the other tree with pgm up",
        )


def plan_steps(old: Mapping[str, NodePlan], new: Mapping[str, NodePlan]) -> ChangePlan:
    """Return the steps from the plans of all nodes to other plans."""
    depths = {**_depths(old), **_depths(new)}
    served = {parent for plan in new.values() for parent in plan.parents}
    steps: list[NodeStep] = []
    unchanged: list[str] = []
    for name in dict.fromkeys((*new, *old)):
        before, after = old.get(name), new.get(name)
        if before is None:
            assert after is not None
            steps.append(NodeStep(name, after.role, Action.START, cost=cost_of_start(after)))
        elif after is None:
            has_children = not served.isdisjoint(_below(before))
            cost = cost_of_stop(before, has_children=has_children)
            steps.append(NodeStep(name, before.role, Action.STOP, cost=cost))
        else:
            found = tuple(differences(before, after))
            if not found:
                unchanged.append(name)
            else:
                steps.append(_changed(after, found))
    steps.sort(key=lambda step: _order(step, depths[step.node]))
    return ChangePlan(tuple(steps), tuple(unchanged))


def _changed(plan: NodePlan, found: tuple[Difference, ...]) -> NodeStep:
    if all(one.is_in_place for one in found):
        return NodeStep(plan.name, plan.role, Action.CHANGE, found)
    return NodeStep(plan.name, plan.role, Action.RESTART, found, cost_of_restart(plan))


def _order(step: NodeStep, depth: int) -> tuple[int, int]:
    """Return the sort key of a step: its stage, and its place in the stage."""
    is_element = step.role in (Role.AGGREGATOR, Role.REPAIRER)
    if step.action is Action.START:
        return 0 if is_element else 3 if step.role is Role.RECEIVER else 4, depth
    if step.action is Action.CHANGE:
        return 1, depth
    if step.action is Action.RESTART:
        return 2, depth
    return 7 if is_element else 6 if step.role is Role.RECEIVER else 5, -depth


def is_first(step: NodeStep) -> bool:
    """Return whether a step comes before changes in place."""
    return _order(step, 0)[0] == 0


def stages(steps: Sequence[NodeStep]) -> list[list[NodeStep]]:
    """Return the steps in groups that may run at once: all changes in place together, all others one by one."""
    groups: list[list[NodeStep]] = []
    for step in steps:
        if groups and step.action is Action.CHANGE and groups[-1][0].action is Action.CHANGE:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _below(plan: NodePlan) -> Iterable[Address]:
    return (segment.address for segment in plan.downstream if segment.address is not None)


def _depths(plans: Mapping[str, NodePlan]) -> dict[str, int]:
    """Return how many parents lie above each node, on the longest way."""
    at = {address: name for name, plan in plans.items() for address in _below(plan)}
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in depths:
            depths[name] = 0  # ends the recursion where repairers are parents of each other
            above = [at[parent] for parent in plans[name].parents if parent in at]
            depths[name] = max((1 + depth(one) for one in above), default=0)
        return depths[name]

    for name in plans:
        depth(name)
    return depths
