"""One view of the nodes of all hosts, from what the agents tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.status.fleet import problems_of
from pgm.fleet import watch
from pgm.fleet.fingerprint import fingerprint_of
from pgm.fleet.hosts import FleetHost
from pgm.fleet.nodes import NodeState, TreeView
from pgm.fleet.watch import FleetWatch, HostAnswer
from tests.unit.fleet.agents import answer, row, silence, snapshot

FLOOR = Path(__file__).resolve().parents[3] / "deploy/topologies/trading-floor.toml"


@pytest.fixture
def fleet() -> FleetWatch:
    return FleetWatch(FLOOR, "1")


def states(view: TreeView) -> dict[str, tuple[str, str]]:
    return {node.name: (node.state.name, node.host) for node in view.nodes}


def test_fleet_view_has_every_node_of_the_file(fleet: FleetWatch) -> None:
    exchange, core, relay, floor = fleet.hosts
    view = fleet.merge(
        [
            answer(exchange, "a", row("exchange", "source")),
            answer(core, "b"),
            silence(relay),
            answer(floor, "c", row("floor-2-repairer", "repairer"), row("desk-1"), row("desk-9")),
        ],
        10.0,
        12.0,
    )
    assert states(view) == {
        "exchange": ("UP", "host-a"),
        "core-repairer": ("ABSENT", "host-b"),
        "floor-2-aggregator": ("UNREACHABLE", "10.0.0.12"),
        "floor-2-repairer": ("UP", "host-c"),
        "desk-1": ("UP", "host-c"),
        "desk-2": ("ELSEWHERE", ""),
        "desk-3": ("ELSEWHERE", ""),
        "desk-4": ("ELSEWHERE", ""),
        "desk-9": ("UP", "host-c"),
    }
    assert view.took_s == 2.0
    assert [host.problem for host in view.hosts] == ["", "", "", "no answer within 2 s"]
    told = [message for message, _ in problems_of(view)]
    assert told == [
        "host 10.0.0.12 does not answer: no answer within 2 s",
        "not running: core-repairer (host-b)",
        "unknown, because the agents of their hosts do not answer: floor-2-aggregator (10.0.0.12)",
        "on no host of the file, and no agent tells of them: desk-2, desk-3, desk-4",
    ]


def test_fleet_keeps_the_last_numbers_of_a_silent_host(fleet: FleetWatch) -> None:
    exchange, *others = fleet.hosts
    fleet.merge([answer(exchange, "a", row("exchange", "source", odata_packets=7))], 0.0, 1.0)
    for now_s in (3.0, 5.0):
        view = fleet.merge([silence(exchange), *map(silence, others)], 2.0, now_s)
        node = next(node for node in view.nodes if node.name == "exchange")
        assert (node.state, node.since_s) == (NodeState.UNREACHABLE, 3.0)
        assert node.snapshot is not None
        assert node.snapshot["counters"] == {"odata_packets": 7}
        assert view.snapshots == []


def test_fleet_host_with_several_addresses_counts_once(fleet: FleetWatch) -> None:
    """One host may have the addresses of two nodes, and its agent may answer at one of them only."""
    exchange, core, *_ = fleet.hosts
    both = row("exchange", "source"), row("core-repairer", "repairer")
    view = fleet.merge([answer(exchange, "a", *both), silence(core)], 0.0, 1.0)
    assert [host.name for host in view.hosts] == ["host-a"]


def test_fleet_tells_files_that_differ(fleet: FleetWatch, tmp_path: Path) -> None:
    other = tmp_path / "tree.toml"
    other.write_text(FLOOR.read_text().replace("count = 4", "count = 5"))
    files: list[dict[str, Any]] = [fingerprint_of(FLOOR).row(), fingerprint_of(other).row()]
    other.write_text(FLOOR.read_text().replace("10.0.2.2", "10.0.2.3"))
    files.append(fingerprint_of(other).row())
    rows = [row("exchange", "source"), row("core-repairer", "repairer"), row("floor-2-aggregator", "aggregator")]
    hosts = zip(fleet.hosts, "abc", rows, files, strict=False)
    view = fleet.merge([answer(host, name, one, topology=file) for host, name, one, file in hosts], 0.0, 1.0)
    assert [(host.has_other_file, host.differing) for host in view.hosts] == [
        (False, ()),
        (True, ()),
        (True, ("floor-2-aggregator", "floor-2-repairer", "desk-*")),
    ]
    told = [message for message, _ in problems_of(view)]
    assert told[0] == "host host-b has another topology file, in which no node differs"
    assert told[1].endswith("in which these nodes differ: floor-2-aggregator, floor-2-repairer, desk-*")


def test_fleet_hosts_of_one_name_are_told_apart(fleet: FleetWatch) -> None:
    exchange, core, *_ = fleet.hosts
    rows = row("exchange", "source"), row("core-repairer", "repairer")
    answers = [answer(exchange, "a", rows[0], host="vm"), answer(core, "b", rows[1], host="vm")]
    view = fleet.merge(answers, 0.0, 1.0)
    assert [host.name for host in view.hosts] == ["vm (10.0.0.10)", "vm (10.0.0.11)"]
    assert states(view)["core-repairer"] == ("UP", "vm (10.0.0.11)")


async def test_fleet_asks_an_agent_once_and_silent_hosts_rarely(
    fleet: FleetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, core, relay, floor = fleet.hosts
    asked: list[FleetHost] = []
    silent = {relay}

    async def ask_host(_: object, host: FleetHost) -> HostAnswer:
        asked.append(host)
        return silence(host) if host in silent else answer(host, "a" if host.name != floor.name else "c")

    monkeypatch.setattr(watch, "ask_host", ask_host)
    now = 1000.0
    monkeypatch.setattr(watch.time, "monotonic", lambda: now)
    assert [host.name for host in (await fleet.ask()).hosts] == ["host-a", "host-c", "10.0.0.12"]
    assert set(asked) == set(fleet.hosts)
    asked.clear()
    await fleet.ask()
    both = FleetHost(("10.0.0.10",), ("exchange", "core-repairer"))
    assert set(asked) == {both, floor}
    asked.clear()
    silent |= {both}
    await fleet.ask()
    assert set(asked) == {both, floor, exchange, core}
    now += 11
    asked.clear()
    await fleet.ask()
    assert relay in asked


@pytest.mark.parametrize(
    "rows",
    [
        "nodes",
        [],
        [{**row("exchange"), "topology": "another"}] * 1025,
        [1, None, [], {}],
        [{**row("exchange"), "state": "dancing"}, {**row("exchange"), "snapshot": None}],
        [{**row("exchange"), "snapshot": {**snapshot("exchange"), "sessions": 5}}],
        [{**row("exchange"), "topology": "another"}, {**row("exchange"), "snapshot": 17}],
    ],
)
def test_fleet_drops_rows_without_the_form_of_a_node(fleet: FleetWatch, rows: Any) -> None:
    state = {"agent": "a", "host": None, "topology": [], "nodes": rows, "left_out": "many"}
    view = fleet.merge([HostAnswer(fleet.hosts[0], "10.0.0.10", 0.1, state)], 0.0, 1.0)
    assert states(view)["exchange"][0] == ("ABSENT" if rows == [] else "UNREACHABLE")
    assert view.left_out == 0
    host = view.hosts[0]
    assert (host.file, host.is_malformed) == ("", rows != [])
    assert problems_of(view)[0][0].startswith(f"host {host.name} sends a malformed answer: ") == (rows != [])
