"""Parts of the campaign of ten hosts that need no hosts: its topology file, its rules, and its judgement of verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgm.fleet.hosts import hosts_of
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all
from tests.net.campaigns.ten_hosts.budgets import BUDGETS
from tests.net.campaigns.ten_hosts.losses import LINKS, Planted, Verdict
from tests.net.campaigns.ten_hosts.network import NODES, file_text
from tests.net.campaigns.ten_hosts.planting import ODATA, Rule, into


@pytest.mark.parametrize("own", [{}, *({one.node: one.parameters} for one in BUDGETS)], ids=str)
def test_topology_file_has_a_host_for_each_node(own: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(file_text(own))
    topology = load_checked(file)
    assert [host.nodes for host in hosts_of(topology, plan_all(topology))] == [(name,) for name in plan_all(topology)]
    assert set(plan_all(topology)) == set(NODES)


def test_rule_names_the_link_and_the_packets() -> None:
    rule = Rule("switch", into("desk-1", "floor-a"), ODATA, 7, 3)
    assert rule.text == 'oifname "a-desk-1" udp dport > 0 @th,96,8 4 @th,192,32 7-9 counter drop'


def test_verdict_is_right_at_the_planted_place_alone() -> None:
    name, _, _, at, *loss = LINKS[1]
    planted = Planted("link", name, 7, at, (loss[0], loss[1], loss[2]))
    told = {"kind": "link", "node": "relay-a", "segment": "core", "is_certain": True}
    assert Verdict(planted, {"loss": told}, 1).is_right
    for change in ({"node": "relay-b"}, {"kind": "segment"}, {"segment": "floor-a"}, {"is_certain": False}):
        assert not Verdict(planted, {"loss": {**told, **change}}, 1).is_right
