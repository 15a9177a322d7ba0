"""Text of `pgm apply`: what differs, what is done in which order, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgm.topology.changes.differences import Difference
from pgm.topology.changes.steps import ChangePlan, NodeStep
from pgm.topology.problems import joined

_MOST_DIFFERENCES = 12


def lines_of(plan: ChangePlan) -> Iterator[str]:
    """Yield the lines that tell a change to people. Steps that are alike and follow each other share their lines."""
    if not plan.steps:
        yield f"nothing to do: all {len(plan.unchanged)} nodes stay as they are"
        return
    for number, group in enumerate(_alike(plan.steps), 1):
        first = group[0]
        yield f"{number}. {first.action.value} {first.role.value} {joined(step.node for step in group)}"
        differences = first.differences
        for one in differences[:_MOST_DIFFERENCES]:
            yield f"     {one.text}" + ("" if one.is_in_place else f" (restart: {one.why_restart})")
        if len(differences) > _MOST_DIFFERENCES:
            yield f"     and {len(differences) - _MOST_DIFFERENCES} more"
        if first.cost.text:
            yield f"     cost: {first.cost.text}"
        if first.cost.loss:
            yield f"     MAY LOSE: {first.cost.loss}"
    yield f"{len(plan.unchanged)} nodes stay as they are"


def _alike(steps: Sequence[NodeStep]) -> Iterator[list[NodeStep]]:
    """Yield neighbouring steps that differ in nothing but the node."""
    group: list[NodeStep] = []
    for step in steps:
        if group and _key(step) != _key(group[0]):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _key(step: NodeStep) -> tuple[object, ...]:
    return step.role, step.action, tuple(map(_shown, step.differences)), step.cost


def _shown(difference: Difference) -> tuple[str, str]:
    return difference.text, difference.why_restart
