"""Pictures of the monitor's pages: the tree with folded receivers, and the last hour of a node."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest

from deploy.monitor.history import History
from deploy.monitor.html_page import one_node, overview
from deploy.monitor.pictures import Fold, branches_of, chart, tree_pictures
from deploy.monitor.prometheus import Metrics
from pgm.fleet.nodes import HostRecord, NodeRecord, NodeState, NodeWatch, TreeView
from tests.net.support.lab import ROOT
from tests.unit.fleet.agents import snapshot


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TreeView:
    """Return a tree of two tiers without running nodes."""
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    return NodeWatch([str(ROOT / "deploy/topologies/loopback-demo.toml")]).look()


def rates(**per_s: float) -> dict[str, Any]:
    """Return rates of a snapshot, the same in all windows."""
    return {
        name: {window: {"per_s": rate, "peak_at": None} for window in ("1s", "1min", "5min")}
        for name, rate in per_s.items()
    }


def up(node: NodeRecord, lost: int = 0, **per_s: float) -> NodeRecord:
    """Return a node that runs with some rates, at the places of its plan."""
    link = {"group": "239.0.0.1:3056", "interface": "lo", "rcvbuf": 1, "sndbuf": 1}
    seats = [{**link, "segment": one.segment, "side": one.side, "address": one.address} for one in node.planned_places]
    told = snapshot(node.name, node.role, lost_sqns=lost)
    return attrs.evolve(
        node,
        state=NodeState.UP,
        host="alpha",
        snapshot={**told, "topology": node.topology, "segments": seats, "rates": rates(**per_s)},
    )


def test_picture_folds_receivers_by_segment(planned: TreeView) -> None:
    told = [
        (branch.depth, f"{len(branch.nodes)} on {branch.item.segment}")
        if isinstance(branch.item, Fold)
        else (branch.depth, branch.item.name)
        for branch in branches_of(planned.nodes)
    ]
    assert told == [
        (0, "source"),
        (1, "east-aggregator"),
        (2, "east-repairer"),
        (2, "4 on east"),
        (1, "west-repairer"),
        (2, "far-west-aggregator"),
        (3, "far-west-repairer"),
        (3, "4 on far-west"),
        (2, "4 on west"),
    ]


def test_picture_shows_rate_and_loss_where_it_is_wrong(planned: TreeView) -> None:
    nodes = [
        up(node, received_packets=950.0, missing_sqns=50.0 if node.name == "east-2" else 0.0)
        if node.role in ("receiver", "repairer")
        else up(node, sent_packets=1000.0)
        for node in planned.nodes
    ]
    nodes = [
        up(node, lost=3, received_packets=950.0, lost_sqns=0.1) if node.name == "west-1" else node for node in nodes
    ]
    branches = {branch.nodes[0].name: branch for branch in branches_of(nodes)}
    assert (branches["east-1"].health, branches["east-1"].loss) == ("odd", 0.05)
    assert branches["west-1"].health == "bad"
    assert branches["far-west-1"].health == "ok"
    pictures = tree_pictures(nodes)
    assert 'class="bad"' in pictures
    assert "5.0%" in pictures
    assert "950/s" in pictures
    assert "4 receivers" in pictures
    assert "on west, 4 up, 3 lost" in pictures
    for picture in re.findall(r"<svg.*?</svg>", pictures):
        quoted = re.sub(r"=(\w+)(?=[ >])", r'="\1"', picture)
        assert len(ElementTree.fromstring(quoted).findall(".//rect")) == 9
    assert "style=" not in pictures  # the policy of the pages forbids it


def test_picture_escapes_names() -> None:
    bad = NodeRecord('<script>"', "<b>'&", "receiver", host="<i>")
    pictures = tree_pictures([bad])
    assert "<b>'" not in pictures
    assert "<i>" not in pictures
    assert "<script>" not in pictures


def test_overview_of_a_fleet_has_its_hosts_and_what_is_wrong(planned: TreeView) -> None:
    hosts = (
        HostRecord("alpha", "10.0.0.1", version="1", file="aa", has_other_file=True, differing=("east-*",)),
        HostRecord("beta", "10.0.0.2", problem="no answer within 2 s", remedy="start it"),
    )
    source, *others = planned.nodes
    view = attrs.evolve(planned, nodes=(up(source), *others), hosts=hosts)
    page = overview(view)
    assert "<b>1 of 2</b>hosts answer" in page
    assert "host beta does not answer: no answer within 2 s <i>(start it)</i>" in page
    assert "another topology file, in which these nodes differ: east-*" in page
    metrics = Metrics().render(view)[0].decode()
    assert 'pgm_agent_up{host="beta"} 0.0' in metrics
    assert 'pgm_agent_other_file{host="alpha"} 1.0' in metrics
    assert 'pgm_up{host="alpha",node="source",role="source",topology="loopback-demo"} 1.0' in metrics


def test_history_keeps_an_hour_of_samples(planned: TreeView) -> None:
    node = next(node for node in planned.nodes if node.name == "east-1")
    history = History()
    for at in range(400):
        is_up = at != 398
        told = up(node, lost=at // 2, received_packets=float(at)) if is_up else node
        history.sample(attrs.evolve(planned, nodes=(told,)), at_s=10.0 * at)
    assert (len(history.times), history.times[0]) == (360, 400.0)
    flow = history.of(node, "flow")
    assert flow[0] == 40.0
    assert math.isnan(flow[-2])
    assert flow[-1] == 399.0
    lost = history.of(node, "lost")
    assert lost[1:5] == [0.0, 1.0, 0.0, 1.0]
    assert all(map(math.isnan, lost[-2:]))  # nobody knows when these were lost
    page = one_node(attrs.evolve(planned, nodes=(up(node),)), up(node), history)
    assert page.count("<svg class=chart") == 3  # series without any number but 0 are left out
    history.sample(attrs.evolve(planned, nodes=()), at_s=4000.0)
    assert all(map(math.isnan, history.of(node, "flow")))


def test_chart_leaves_holes() -> None:
    picture = chart([1.0, math.nan, 2.0, 4.0], 8)
    assert picture.count("M") == 3  # the axis, and a line on each side of the hole
    assert "nan" not in picture
