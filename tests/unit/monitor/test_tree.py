"""The tree of nodes as the monitor's page shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.monitor.history import History
from deploy.monitor.html_page import one_node, overview
from deploy.monitor.prometheus import Metrics
from deploy.monitor.tree import in_tree
from pgm.fleet.nodes import NodeAddress, NodeRecord, NodeState, NodeWatch, TreeView
from tests.net.support.lab import ROOT


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TreeView:
    """Return a tree of two tiers without running nodes."""
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    return NodeWatch([str(ROOT / "deploy/topologies/loopback-demo.toml")]).look()


def test_tree_children_of_each_node(planned: TreeView) -> None:
    assert {node.state for node in planned.nodes} == {NodeState.ABSENT}
    told = [f"{'  ' * depth}{node.name}" for depth, node in in_tree(planned.nodes)]
    assert told == [
        "source",
        "  east-aggregator",
        "    east-repairer",
        *(f"    east-{number}" for number in range(1, 5)),
        "  west-repairer",
        "    far-west-aggregator",
        "      far-west-repairer",
        *(f"      far-west-{number}" for number in range(1, 5)),
        *(f"    west-{number}" for number in range(1, 5)),
    ]


def record(name: str, role: str, *places: NodeAddress, parents: tuple[str, ...] = ()) -> NodeRecord:
    """Return a node that a file lists."""
    return NodeRecord("t", name, role, planned_parents=parents, planned_places=places)


def test_tree_aggregator_is_not_below_its_first_repairer() -> None:
    aggregator = record(
        "a", "aggregator", NodeAddress("core", "up", "1"), NodeAddress("lan", "down", "2"), parents=("3", "9")
    )
    repairer = record("r", "repairer", NodeAddress("lan", "both", "3"), parents=("2",))
    assert [(depth, one.name) for depth, one in in_tree([aggregator, repairer])] == [(0, "a"), (1, "r")]


def test_tree_idle_node_is_below_the_relay_of_its_segment() -> None:
    aggregator = record("a", "aggregator", NodeAddress("core", "up", "1"), NodeAddress("lan", "down", "2"))
    receiver = record("d", "receiver", NodeAddress("lan", "up", "4"))
    assert [depth for depth, _ in in_tree([receiver, aggregator])] == [0, 1]
    elsewhere = record("d", "receiver", NodeAddress("lan", "up", "4"), parents=("10.0.0.1",))
    assert [depth for depth, _ in in_tree([aggregator, elsewhere])] == [0, 0]


def test_tree_circular_parents_are_shown_once() -> None:
    first = record("a", "repairer", NodeAddress("lan", "both", "1"), parents=("2",))
    second = record("b", "repairer", NodeAddress("lan", "both", "2"), parents=("1",))
    assert sorted(one.name for _, one in in_tree([first, second])) == ["a", "b"]


def test_tree_names_are_escaped(planned: TreeView) -> None:
    bad = NodeRecord('<script>"', "<b>'&", "receiver")
    view = TreeView((bad,), 0.0, 0.0)
    for page in (overview(view), one_node(view, bad, History())):
        assert "<script>&" not in page
        assert '<script>"' not in page
        assert "<b>'" not in page
        assert "&lt;b&gt;" in page
    assert "No node runs" in overview(TreeView((), 0.0, 0.0))
    assert overview(planned).count("<tr ") == 18


def test_tree_nodes_of_other_hosts_are_not_expected_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file places all nodes on other hosts, except that receivers without an address may run anywhere."""
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    view = NodeWatch([str(ROOT / "deploy/topologies/trading-floor.toml")]).look()
    assert {node.state for node in view.nodes} == {NodeState.ELSEWHERE}
    text = Metrics().render(view, "")[0].decode()
    assert "pgm_up{" not in text
    assert f'pgm_monitor_nodes{{state="elsewhere"}} {float(len(view.nodes))}' in text
