"""Known nodes, their expiry and number, and the sums of their counters by stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitor.prometheus import Metrics
from pgm.fleet import nodes as watched
from pgm.fleet.nodes import GONE_KEPT_S, NodeRecord, NodeState, NodeWatch, TreeView
from pgm.net.control.status_socket import serve_status, status_path
from tests.folders import short_folder


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with short_folder() as made:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(made))
        yield made


def snapshot(topology: str, node: str, **more: Any) -> dict[str, Any]:
    """Return the status of a node."""
    base = {
        "topology": topology,
        "node": node,
        "role": "receiver",
        "pid": 1,
        "uptime_s": 1.0,
        "rss_bytes": 1,
        "cpu_s": 0.1,
    }
    return {**base, "counters": {}, "rates": {}, "sessions": [], "segments": [], **more}


class Clock:
    """Clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_nodes_are_found_are_gone_and_are_forgotten(folder: Path) -> None:
    clock = Clock()
    nodes = NodeWatch(clock=clock)
    assert nodes.look().nodes == ()

    async def states() -> dict[str, NodeState]:
        view = await trio.to_thread.run_sync(nodes.look)
        return {f"{one.topology}/{one.name}": one.state for one in view.nodes}

    async with trio.open_nursery() as nursery:
        for name in ("n10", "n9"):
            path = status_path("a/b", name)
            await nursery.start(serve_status, path, lambda name=name: snapshot("a/b", name))
        await nursery.start(serve_status, status_path("odd", "x"), lambda: ["something", "else"])
        (folder / "odd" / "left-behind.sock").touch()
        assert await states() == {"a/b/n9": NodeState.UP, "a/b/n10": NodeState.UP, "odd/x": NodeState.STUCK}
        assert list(await states()) == ["a/b/n9", "a/b/n10", "odd/x"]
        assert [one["node"] for one in (await trio.to_thread.run_sync(NodeWatch(["a/b"]).look)).snapshots] == [
            "n9",
            "n10",
        ]
        nursery.cancel_scope.cancel()
    assert set((await states()).values()) == {NodeState.GONE}
    clock.now += GONE_KEPT_S + 1
    assert await states() == {}


@pytest.mark.usefixtures("folder")
async def test_nodes_polled_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "MOST_NODES", 2)
    nodes = NodeWatch()
    for names in ("abc", "def"):
        async with trio.open_nursery() as nursery:
            for name in names:
                await nursery.start(serve_status, status_path("t", name), lambda name=name: snapshot("t", name))
            view = await trio.to_thread.run_sync(nodes.look)
            assert len(view.snapshots) == 2
            assert view.left_out == 1
            assert len(view.nodes) == 2
            nursery.cancel_scope.cancel()


def session(tsi: str, stream: str = "s", **counts: int) -> dict[str, Any]:
    """Return a session of a snapshot."""
    return {"tsi": tsi, "stream": stream, "counts": counts, "missing_sqns": 1, "pending_sqns": 0, "held_octets": 2}


def test_nodes_files_are_labels_and_those_of_sources_are_counts() -> None:
    """A source's SPMs are not signed in most trees: as labels, their digests would make any number of series."""
    same, other = f"{1:016x} {2:016x}", f"{3:016x} {4:016x}"
    sessions = [{**session(f"1.{n}"), "file": file} for n, file in enumerate((same, other, "", other, 5))]
    told = {"file": f"{1:016x}", "file_part": f"{5:016x}"}
    desk = snapshot("t", "desk", sessions=sessions) | told
    bad = [snapshot("t", f"bad-{n}") | {"file": file} for n, file in enumerate((None, ["x"], 'a"', "", "f" * 80))]
    nodes = [NodeRecord("t", one["node"], "receiver", NodeState.UP, 0.0, one) for one in (desk, *bad)]
    text = Metrics().render(TreeView(tuple(nodes), 0.0, 0.0))[0].decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    infos = [sample for sample in samples if sample.name == "pgm_topology_file_info"]
    labels = {"topology": "t", "node": "desk", "role": "receiver", "file": f"{1:016x}", "part": f"{5:016x}"}
    assert [(sample.labels, sample.value) for sample in infos] == [(labels, 1.0)]
    counts = [sample for sample in samples if sample.name == "pgm_stream_other_file_sessions"]
    assert [(sample.labels["node"], sample.value) for sample in counts] == [("desk", 3.0)]


def test_nodes_stream_counters_only_grow() -> None:
    metrics = Metrics()

    def total(state: NodeState, pid: int, *sessions: dict[str, Any]) -> float | None:
        one = NodeRecord("t", "n", "receiver", state, 0.0, snapshot("t", "n", pid=pid, sessions=list(sessions)))
        text, _ = metrics.render(TreeView((one,), 0.0, 0.0))
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                if sample.name == "pgm_stream_lost_sqns_total" and sample.labels["stream"] == "s":
                    return sample.value
        return None

    assert total(NodeState.UP, 1, session("a", lost_sqns=5)) == 5
    assert total(NodeState.UP, 1, session("a", lost_sqns=6), session("b", lost_sqns=1)) == 7
    assert total(NodeState.UP, 1, session("b", lost_sqns=2)) == 8, "the counts of session a stay after its end"
    assert total(NodeState.STUCK, 1) is None
    assert total(NodeState.UP, 1) == 8
    assert total(NodeState.UP, 1, session("a", lost_sqns=1)) == 9, "session a restarted from 0"
    assert total(NodeState.UP, 1, session("a", "other", lost_sqns=1)) == 9
    assert total(NodeState.UP, 2, session("a", lost_sqns=1)) == 1, "another process counts from 0"


def test_a_node_that_runs_again_elsewhere_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second demo has a folder of its own; the detail must come from the second one."""
    with short_folder() as first, short_folder() as second:
        folders = [first / "t", second / "t"]
        answers = {folders[0] / "n.sock": snapshot("t", "n", pid=1), folders[1] / "n.sock": snapshot("t", "n", pid=2)}
        running: list[Path] = []
        for path in answers:
            path.parent.mkdir()
            path.touch()
        monkeypatch.setattr(watched, "tree_folders", lambda: running)
        monkeypatch.setattr(watched, "_ask", answers.__getitem__)
        nodes = NodeWatch()

        def look() -> list[tuple[NodeState, int]]:
            return [(one.state, one.snapshot["pid"]) for one in nodes.look().nodes if one.snapshot is not None]

        running[:] = folders[:1]
        assert look() == [(NodeState.UP, 1)]
        running.clear()
        assert look() == [(NodeState.GONE, 1)]
        running[:] = folders[1:]
        assert look() == [(NodeState.UP, 2)]
        running[:] = folders
        assert look() == [(NodeState.UP, 2), (NodeState.UP, 1)]


def test_nodes_of_one_name_are_one_sample() -> None:
    """Two values for the same labels would be invalid, as after one demo ends and another runs."""
    gone, old, new = (
        NodeRecord(
            "t", "n", "receiver", state, 0.0, snapshot("t", "n", pid=pid, sessions=[session("a", lost_sqns=pid)])
        )
        for state, pid in ((NodeState.GONE, 1), (NodeState.UP, 2), (NodeState.UP, 3))
    )

    def samples(*nodes: NodeRecord) -> dict[tuple[str, str], list[float]]:
        text, _ = Metrics().render(TreeView(nodes, 0.0, 0.0))
        found: dict[tuple[str, str], list[float]] = {}
        for family in text_string_to_metric_families(text.decode()):
            for one in family.samples:
                found.setdefault((one.name, str(sorted(one.labels.items()))), []).append(one.value)
        return found

    for nodes, is_up, lost, left_out in (
        ((gone,), 0, None, 0),
        ((gone, old), 1, 2, 0),
        ((old, gone), 1, 2, 0),
        ((gone, old, new), 1, 2, 1),
    ):
        found = samples(*nodes)
        assert all(len(values) == 1 for values in found.values())
        by_name = {name: value for (name, _), [value] in found.items() if name != "pgm_monitor_nodes"}
        assert (by_name["pgm_up"], by_name.get("pgm_stream_lost_sqns_total")) == (is_up, lost)
        assert found["pgm_monitor_nodes", "[('state', 'left out')]"] == [left_out]


def test_nodes_polled_in_parallel_follow_the_limit_of_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request holds a socket, and drawing the page opens files too."""
    (folder / "t").mkdir()
    for number in range(20):
        (folder / "t" / f"n{number}.sock").touch()
    at_once, most, lock = 0, 0, threading.Lock()

    def ask(path: Path) -> dict[str, Any]:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)  # lets the other requests come
        with lock:
            at_once -= 1
        return snapshot("t", path.stem)

    monkeypatch.setattr(watched, "ask_status", ask)
    monkeypatch.setattr(watched.resource, "getrlimit", lambda _: (12, 12))
    assert len(NodeWatch().look().snapshots) == 20
    assert 1 <= most <= 3


def test_nodes_stuck_node_keeps_its_role(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "t").mkdir()
    (folder / "t" / "n.sock").touch()
    clock, answers = Clock(), [snapshot("t", "n"), *([NodeState.STUCK] * 3), NodeState.GONE]
    nodes = NodeWatch(clock=clock)
    monkeypatch.setattr(watched, "_ask", lambda _: answers.pop(0))
    seen = []
    for _ in range(5):
        [one] = nodes.look().nodes
        seen.append((one.role, one.state, clock.now - one.since_s))
        clock.now += GONE_KEPT_S + 1
    spent = GONE_KEPT_S + 1
    assert seen == [
        ("receiver", NodeState.UP, 0.0),
        ("receiver", NodeState.STUCK, 0.0),
        ("receiver", NodeState.STUCK, spent),
        ("receiver", NodeState.STUCK, 2 * spent),
        ("receiver", NodeState.GONE, 0.0),
    ]
