"""Receivers of one pattern that a model stands for, and what a model can stand for."""

from __future__ import annotations

import attrs

from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import PatternRest
from pgm.wire.formats import Nla


@attrs.frozen(kw_only=True)
class CrowdPlan:
    """Receivers of a pattern from number `first` on. `plan` is that of the first; `addresses` are the known ones."""

    pattern: str
    plan: NodePlan
    first: int
    addresses: tuple[Nla, ...]

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.addresses)

    def name_of(self, member: int) -> str:
        """Return the name of a member, counted from 0."""
        return self.pattern.replace("*", str(self.first + member))


def crowd_of(rest: PatternRest) -> CrowdPlan:
    """Return the crowd for the rest of a pattern, with all addresses. Raises `UsageError` for receivers that the model does not describe."""
    wrong = _unmodelled(rest.plan)
    if wrong:
        raise UsageError(
            f"no model describes the receivers {rest.pattern!r}: {wrong}",
            remedy="leave out --real, and all receivers have the production core",
        )
    return CrowdPlan(pattern=rest.pattern, plan=rest.plan, first=rest.first, addresses=rest.addresses)


def _unmodelled(plan: NodePlan) -> str:
    """Return what a plan has that the model lacks; empty if the model describes it."""
    parameters, segment = plan.parameters, plan.segments[0]
    impairment = segment.impairment
    reasons = {
        "no receivers": plan.role is not Role.RECEIVER,
        "several segments": len(plan.segments) > 1,
        "a unicast leg": segment.peers is not None,
        "several streams": len(plan.streams) > 1,
        "an acknowledged stream or congestion control": any(one.flow not in ("rate", "yield") for one in plan.streams),
        "a stream without repair": any(one.order == "unreliable" for one in plan.streams),
        "a signed stream": any(one.is_proved for one in plan.streams),
        "codes of control packets": any(one.known_keys is not None for one in plan.streams),
        "parity": bool(parameters.fec_group),
        "tuned back-offs": parameters.nak_bo_tuning != "off",
        "copies of NAKs to the group": parameters.nak_group_copy,
        "losses in bursts, duplicates or disorder": impairment != Impairment(loss=impairment.loss),
        "no parent in the file": not plan.parents,
    }
    return ", ".join(reason for reason, holds in reasons.items() if holds)
