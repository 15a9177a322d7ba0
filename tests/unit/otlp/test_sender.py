"""Metrics at a collector of OpenTelemetry: the same as for Prometheus, and failures of the collector."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitor import monitor as monitor_module
from deploy.monitor.http_service import PageService, no_resources
from deploy.monitor.prometheus import Metrics
from deploy.otlp import sender as sender_module
from deploy.otlp.sender import OtlpSender
from deploy.otlp.target import DEFAULT_IVL_S, OtlpTarget
from pgm.errors import PeerRefused
from pgm.fleet.nodes import HostRecord, NodeRecord, NodeState, NodeWatch, TreeView
from pgm.mutual_tls.refusals import Refusals
from tests.cli.command import CommandResult, invoked
from tests.unit.fleet.agents import snapshot
from tests.unit.otlp.collector import collecting, labels_of


def view_of(*uptimes: tuple[int, float], lost: int = 7) -> TreeView:
    """Return desks with processes and uptimes, of a fleet."""
    nodes = []
    for at, (pid, uptime_s) in enumerate(uptimes):
        own = snapshot(f"desk-{at}", "receiver", lost_sqns=lost) | {"pid": pid, "uptime_s": uptime_s}
        own |= {"file": "ab12", "file_part": "cd34"}
        nodes.append(NodeRecord("t", f"desk-{at}", "receiver", NodeState.UP, snapshot=own, host="h"))
    return TreeView(tuple(nodes), 0.0, 0.1, hosts=(HostRecord("h", "10.0.0.1"),))


def test_otlp_data_are_those_for_prometheus() -> None:
    view = view_of((1, 50.0), (2, 100.0))
    text = Metrics().render(view)[0].decode()
    wanted = {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    with collecting() as collector:
        target = OtlpTarget(f"{collector.url}/v1/metrics", {"Authorization": "Bearer abc", "x-scope": "t"})
        sender = OtlpSender(target, Metrics().families)
        assert sender.send(view)
        request = collector.requests.get(timeout=10)
        assert sender.send(view_of((1, 60.0), (3, 1.0)))
        later = collector.requests.get(timeout=10)
    assert request.path == "/v1/metrics"
    assert (request.headers["authorization"], request.headers["x-scope"]) == ("Bearer abc", "t")
    found = {
        (metric.name, frozenset(labels_of(point).items()), point.as_double)
        for metric in request.metrics()
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
    }
    assert found == wanted
    by_name = {metric.name: metric for metric in request.metrics()}
    assert by_name["pgm_lost_sqns"].sum.is_monotonic
    assert by_name["pgm_lost_sqns"].sum.aggregation_temporality == 2  # cumulative
    assert by_name["pgm_lost_sqns"].description.startswith("Sqns")
    assert by_name["pgm_up"].HasField("gauge")
    assert labels_of(by_name["pgm_topology_file_info"].gauge.data_points[0])["file"] == "ab12"
    first, second = request.points(), later.points()
    starts = [
        points["pgm_lost_sqns", desk][1].start_time_unix_nano
        for points in (first, second)
        for desk in ("desk-0", "desk-1")
    ]
    assert starts[0] == starts[2], "a process keeps its start"
    assert starts[3] - starts[1] > 90e9, "the next process has its own"
    resource = {one.key: one.value.string_value for one in request.message.resource_metrics[0].resource.attributes}
    assert (resource["service.name"], bool(resource["service.version"]), bool(resource["host.name"])) == (
        "pgm",
        True,
        True,
    )


def test_otlp_many_nodes_are_sent_in_bounded_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "MOST_POINTS", 300)
    with collecting() as collector:
        assert OtlpSender(OtlpTarget(collector.url, {}), Metrics().families).send(view_of(*[(1, 5.0)] * 5))
        sizes = []
        while not collector.requests.empty():
            request = collector.requests.get()
            sizes.append(
                sum(len((one.sum if one.HasField("sum") else one.gauge).data_points) for one in request.metrics())
            )
    assert len(sizes) > 1
    assert max(sizes) <= 300


async def test_otlp_failures_are_told_once_and_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(sender_module, "log", lambda code, text: told.append((code, text)))
    views = iter([view_of((1, 1.0)), OSError("too many files"), view_of((1, 2.0)), view_of((1, 3.0))])
    done = trio.Event()

    async def look() -> TreeView:
        one: Any = next(views, None)
        if isinstance(one, OSError):
            raise one
        if one is None:
            done.set()
            await trio.sleep_forever()
        collector.status = 400 if one.nodes[0].snapshot["uptime_s"] < 3 else 200
        return one

    with collecting() as collector:
        secret = f"http://user:secret@127.0.0.1:{collector.port}/v1/metrics?key=secret"
        sender = OtlpSender(OtlpTarget(secret, {}, 0.001), Metrics().families)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run, look)
            await done.wait()
            nursery.cancel_scope.cancel()
        assert collector.requests.qsize() == 3
    assert [code for code, _ in told] == ["otlp-fails", "otlp-resumes"]
    assert "400" in told[0][1]
    assert "secret" not in str(told)


def test_otlp_failure_has_the_cause_that_retries_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tries again within 2 s, and its last message tells that alone."""
    told: list[str] = []
    monkeypatch.setattr(sender_module, "log", lambda _, text: told.append(text))
    with collecting() as collector:
        port = collector.port
    assert not OtlpSender(OtlpTarget(f"http://127.0.0.1:{port}/?key=secret", {}, 2.0), Metrics().families).send(
        view_of()
    )
    [text] = told
    assert "refused" in text
    assert "secret" not in text


async def test_otlp_has_the_refusals_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    refusals = Refusals()
    refusals.add(PeerRefused("unknown", "no node has these keys"))
    with collecting() as collector:
        [send] = monitor_module.otlp_resources(OtlpTarget(collector.url, {}))(PageService(NodeWatch(), refusals)).tasks
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            request = await trio.to_thread.run_sync(lambda: collector.requests.get(timeout=10))
            nursery.cancel_scope.cancel()
    [refused] = [metric.sum for metric in request.metrics() if metric.name == "pgm_monitor_refused"]
    assert {labels_of(point)["reason"]: point.as_double for point in refused.data_points}["unknown"] == 1


def monitored(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[CommandResult, list[Any]]:
    """Return the result of `pgm monitor` that serves nothing, and its tasks in the background."""
    tasks: list[Any] = []
    monkeypatch.setattr(monitor_module, "run_service", lambda *_: None)
    monkeypatch.setattr(monitor_module, "otlp_resources", lambda target: tasks.append(target) or no_resources)
    return invoked("monitor", "--port", "0", *arguments), tasks


def test_otlp_options_make_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "headers"
    file.write_text("# of the collector\nAuthorization: Bearer a b\n\nx-tenant:7\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    done, (target,) = monitored(monkeypatch, "--otlp", "http://10.0.0.1:4318", "--otlp-headers", str(file))
    assert done.code == 0, done
    wanted = OtlpTarget(
        "http://10.0.0.1:4318/v1/metrics", {"Authorization": "Bearer a b", "x-tenant": "7"}, DEFAULT_IVL_S
    )
    assert target == wanted
    assert "Bearer" not in repr(target)
    _, (target,) = monitored(monkeypatch, "--otlp", "https://c/own/path?x=1", "--otlp-interval", "2")
    assert target == attrs.evolve(wanted, url="https://c/own/path?x=1", headers={}, interval_s=2.0)
    assert monitored(monkeypatch)[1] == [None]
    file.write_text("password of the collector\n")
    refused, _ = monitored(monkeypatch, "--otlp", "http://c", "--otlp-headers", str(file))
    refused.complains(2, "line 1 is no header")
    assert "password" not in refused.err
    for url in ("collector:4318", "ftp://c", "http://", "http://[::1", "http://c:0"):
        monitored(monkeypatch, "--otlp", url)[0].complains(2, "no URL of a collector")
    monitored(monkeypatch, "--otlp-headers", str(file))[0].complains(2, "--otlp-headers needs --otlp")


def test_otlp_without_its_extra_tells_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    done = invoked("monitor", "--port", "0", "--otlp", "http://127.0.0.1:4318")
    done.complains(2, "pgm monitor --otlp needs opentelemetry.sdk.metrics", "pip install 'pgm-repair-network[otlp]'")
    assert CliRunner().invoke(monitor_module.monitor, ["--help"]).output.count("--otlp") >= 4
