"""Costs of stopping or restarting a node, by its role and by what it keeps."""

from __future__ import annotations

import attrs

from pgm.topology.node_plan import NodePlan, Role


@attrs.frozen
class Cost:
    """Cost of a step for people. `loss` names the data that may be lost; empty if none."""

    text: str = ""
    loss: str = ""


FREE = Cost()


def cost_of_start(plan: NodePlan) -> Cost:
    """Return the cost of a node that starts."""
    if plan.role is Role.RECEIVER:
        return Cost(f"the receiver begins at the packet that comes next, by join_from = {plan.parameters.join_from!r}")
    return FREE


def cost_of_restart(plan: NodePlan) -> Cost:
    """Return the cost of a restart of a node."""
    if plan.role is Role.SOURCE:
        return Cost(
            "the session ends, and receivers begin a new one",
            "messages that the program of the source makes meanwhile, and packets that no receiver has repaired yet",
        )
    if plan.role is Role.RECEIVER:
        return Cost(
            "the position of the application ends, unless the receiver is durable",
            "messages that arrive while the receiver restarts",
        )
    if plan.role is Role.AGGREGATOR:
        return _of_relay(plan, "pending requests are made again")
    kept = "the cache comes back from its file" if plan.cache_directory else "the cache is empty until it fills again"
    return _of_relay(plan, kept)


def _of_relay(plan: NodePlan, text: str) -> Cost:
    if plan.upstream in plan.downstream:
        return Cost(f"{text}; the nodes of the segment ask their other parents meanwhile")
    if plan.partners:
        return Cost(f"{text}; the other relay of the pair forwards meanwhile")
    return Cost(
        f"{text}; the segments below hear nothing meanwhile",
        "packets that the segments below miss for longer than the window of the source lasts",
    )


def cost_of_stop(plan: NodePlan, *, has_children: bool) -> Cost:
    """Return the cost of a node that leaves the tree. `has_children` tells whether nodes of the new file lie below."""
    if plan.role is Role.SOURCE:
        return Cost("the session ends, with its last repairs", "messages that the program of the source still makes")
    if plan.role is Role.RECEIVER:
        return Cost("the receiver ends, as the new file wants it")
    if plan.upstream in plan.downstream or not has_children:
        return Cost("the cache ends; the nodes of the segment ask their other parents")
    return Cost("the segments below need another relay", "the stream below this relay, if no other relay is there")
