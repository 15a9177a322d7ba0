"""Trees of any shape: they pass the check, and their plans map back to the names of the file."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pgm.topology.check import check
from pgm.topology.load import loads
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all
from tests.unit.topology.test_load import spelled
from tests.unit.topology.trees import GOOD

Subnet = tuple[
    int, bool, bool, int
]  # the segment above it, whether its relay repairs or has a standby, and its receivers

SUBNETS = st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=7)


def grown(subnets: list[Subnet]) -> dict[str, Any]:
    """Return a topology file on loopback: segment 0 with the source, and a segment for every subnet."""
    count = len(subnets) + 1
    nodes: dict[str, Any] = {
        "source": {"role": "source", "segment": "s0", "address": "127.9.0.1", "streams": ["numbers"]}
    }
    speakers = {0: "source"}
    for number, (wish, repairs, paired, receivers) in enumerate(subnets, 1):
        above = wish % number
        relay = {"role": "repairer" if repairs else "aggregator", "parents": [speakers[above]]}
        speakers[number] = f"relay{number}"
        nodes |= {f"relay{number}": relay | _seats(above, number, 10)}
        if paired:
            nodes |= {f"standby{number}": relay | {"standby_of": f"relay{number}"} | _seats(above, number, 100)}
        if not repairs:
            relay["repairers"] = [f"repairer{number}"]
            nodes[f"relay{number}"] |= relay
            own = {"role": "repairer", "segment": f"s{number}", "address": f"127.9.{number}.2"}
            nodes[f"repairer{number}"] = own | {"parents": [f"relay{number}"]}
        pool = {"count": receivers, "addresses": f"127.9.{number}.200-127.9.{number}.209"}
        nodes[f"r{number}-*"] = {"role": "receiver", "segment": f"s{number}", "parents": [f"relay{number}"]} | pool
    segments = {
        f"s{number}": {"group": f"239.192.9.{number + 1}", "interface": f"127.9.{number}.0/24"}
        for number in range(count)
    }
    streams = {"numbers": {"data_port": 7500, "rate": "8Mbit/s"}}
    return {"version": 1, "name": "grown", "streams": streams, "segments": segments, "nodes": nodes}


def _seats(above: int, below: int, base: int) -> dict[str, Any]:
    return {
        "upstream": {"segment": f"s{above}", "address": f"127.9.{above}.{base + below}"},
        "downstream": [{"segment": f"s{below}", "address": f"127.9.{below}.{base}"}],
    }


@given(SUBNETS)
def test_plans_lead_back_to_the_names_they_came_from(subnets: list[Subnet]):
    document = grown(subnets)
    topology = loads(spelled(document))
    report = check(topology)
    assert report.is_good, report.errors
    plans = plan_all(topology)
    homes = {seat.address: plan for plan in plans.values() for seat in plan.segments}
    assert len(homes) == sum(len(plan.segments) for plan in plans.values())
    for name, plan in plans.items():
        entry = document["nodes"].get(name) or document["nodes"][f"{name.split('-')[0]}-*"]
        assert [homes[address].name for address in plan.parents] == entry.get("parents", [])
        assert [homes[address].name for one in plan.repairers for address in one] == entry.get("repairers", [])
        assert all(_answers(homes[address], address) for address in plan.parents)
        assert all(name in {homes[back].name for back in homes[one].partners} for one in plan.partners)
        assert _root(plan, homes).role is Role.SOURCE


def _answers(plan: NodePlan, address: str) -> bool:
    return any(seat.address == address for seat in plan.downstream)


def _root(plan: NodePlan, homes: dict[str | None, NodePlan]) -> NodePlan:
    while plan.parents:
        plan = homes[plan.parents[0]]
    return plan


def test_a_file_spelled_otherwise_is_the_same_tree():
    one, other = loads(GOOD), loads(spelled(tomllib.loads(GOOD)))
    assert one == other
    assert {name: plan.parameters for name, plan in plan_all(one).items()} == {
        name: plan.parameters for name, plan in plan_all(other).items()
    }
