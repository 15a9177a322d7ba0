"""`pgm monitor` beside running nodes: the pages it serves, its access rules, and its end."""

from __future__ import annotations

import base64
import contextlib
import html
import http.client
import io
import ipaddress
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitor.http_service import MOST_REQUESTS, AccessControl
from deploy.monitor.monitor import DEFAULT_PORT, Access, warn_of_others
from pgm.core.counters import ROWS
from pgm.deprecated import COUNTERS
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import PATIENCE_S, Process, Processes, processes

MESSAGES = 200
TOKEN = "a-token-of-many-characters"


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send one request over a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()


def metrics(port: int) -> dict[tuple[str, str], float]:
    """Return every sample by name and node."""
    families = text_string_to_metric_families(get(port, "/metrics")[2].decode())
    return {
        (sample.name, sample.labels.get("node", sample.labels.get("state", ""))): sample.value
        for family in families
        for sample in family.samples
        if "reason" not in sample.labels
    }


def metrics_once(port: int, holds: Callable[[dict[tuple[str, str], float]], object]) -> dict[tuple[str, str], float]:
    """Ask until the samples satisfy a condition: a monitor serves one view of the nodes for up to a second."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(found := metrics(port)) and time.monotonic() < deadline:
        pass
    return found


@pytest.fixture
def running() -> Iterator[tuple[Processes, Process, Process]]:
    """Run a source and a receiver that have passed on messages with losses, and two monitors, one with a token."""
    place = Place.new()
    with processes(one_segment(place, loss='{ loss = "5%" }'), f"t{place.number}") as tree:
        desk = tree.start("desk-1")
        source = tree.start("source", stdin=subprocess.PIPE)
        token = tree.folder / "token"
        token.write_text(f"{TOKEN}\n")
        token.chmod(0o600)
        env = {"PGM_RUNTIME_DIR": str(tree.folder)}
        opened, guarded = [
            Process("monitor", ["monitor", *arguments, "--port", "0", "--json"], env=env)
            for arguments in ([str(tree.file)], ["--token-file", str(token), "--bind", "0.0.0.0"])
        ]
        tree.all += [opened, guarded]
        desk.line_with("ready:")
        assert source.process.stdin is not None
        source.process.stdin.write(b"a message\n" * MESSAGES)
        source.process.stdin.flush()
        tree.until("desk-1", lambda snapshot: snapshot["counters"].get("delivered_packets") == MESSAGES)
        yield tree, opened, guarded


def test_monitor_serves_counters_of_nodes(running: tuple[Processes, Process, Process]) -> None:
    tree, opened, guarded = running
    port = opened.first_printed()["port"]
    documented("monitor", opened.first_printed())
    _says_what_status_says(tree, port)
    _says_the_counters_table(port)
    _does_what_the_page_says(port)
    _shows_people(tree, port)
    _needs_its_token(guarded.first_printed()["port"])
    assert get(port, "/metrics", "POST")[0] == 405
    assert get(port, "/etc/passwd")[0] == 404
    assert get(port, "/metrics", "HEAD")[2] == b""
    tree.running["desk-1"].kill()
    found = metrics_once(port, lambda found: not found["pgm_up", "desk-1"])
    assert (found["pgm_up", "source"], found["pgm_up", "desk-1"]) == (1, 0)
    assert ("pgm_delivered_packets_total", "desk-1") not in found
    assert json.loads(get(port, "/status.json")[2])["gone"] == [[tree.name, "desk-1"]]
    _ends_whatever_others_do(opened, port)


def _says_what_status_says(tree: Processes, port: int) -> None:
    keys = ("odata_packets", "delivered_packets", "delivered_octets", "received_packets", "repaired_sqns")

    def are_equal(found: dict[tuple[str, str], float]) -> bool:
        counters = {name: tree.status(name)["counters"] for name in ("source", "desk-1")}
        return all(
            found.get((f"{prefix}_{key}_total", name)) == counters[name].get(key, 0)
            for prefix in ("pgm", "pgm_stream")
            for name in counters
            for key in keys
        )

    found = metrics_once(port, are_equal)
    assert are_equal(found), found
    told = json.loads(get(port, "/status.json")[2])
    documented("monitor, its /status.json", told)
    rows = {row["node"]: row for row in told["nodes"]}
    for row in rows.values():
        documented("status", row)
    assert found["pgm_repaired_sqns_total", "desk-1"] > 0
    assert found["pgm_lost_sqns_total", "desk-1"] == 0
    assert found["pgm_stream_sessions", "desk-1"] == 1
    assert found["pgm_topology_file_info", "desk-1"] == 1
    assert rows["desk-1"]["sessions"][0]["file"] == f"{rows['source']['file']} {rows['source']['file_part']}"
    assert found["pgm_monitor_nodes", "up"] == 2


def _says_the_counters_table(port: int) -> None:
    """Assert that every row of docs/reference/counters.md is a family with its text, labelled by names of the topology alone."""
    text = get(port, "/metrics")[2].decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for row in ROWS:
        family = families[f"pgm_{row.name}"]
        assert family.documentation.startswith(row.metadata["doc"].rstrip("."))
        assert family.type == (
            "gauge" if " now" in row.metadata["unit"] or " at most" in row.metadata["unit"] else "counter"
        )
        assert {tuple(sorted(sample.labels)) for sample in family.samples} == {("node", "role", "topology")}
    for former, name in COUNTERS.items():
        assert families[f"pgm_{former}"].documentation.startswith(f"Deprecated: now pgm_{name}")
    openmetrics = get(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics[1]["content-type"].startswith("application/openmetrics-text")
    assert openmetrics[2].endswith(b"# EOF\n")


def _does_what_the_page_says(port: int) -> None:
    """Assert that the program of the page runs and that every series named there exists."""
    page = (ROOT / "docs/guide/monitoring.md").read_text()
    *_, program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert f"127.0.0.1:{DEFAULT_PORT}" in program
    told = io.StringIO()
    with contextlib.redirect_stdout(told), pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "127.0.0.1")
        exec(program.replace(str(DEFAULT_PORT), str(port)), {})
    assert told.getvalue() == f"source 0 delivered, 0 lost\ndesk-1 {MESSAGES} delivered, 0 lost\n"
    types = set(re.findall(r"^# TYPE (\w+) ", get(port, "/metrics")[2].decode(), re.MULTILINE))
    named = set(re.findall(r"\bpgm_[a-z_]+\b", page))
    assert len(named) > 12
    assert named <= types


def _shows_people(tree: Processes, port: int) -> None:
    """Assert that the tree and the page of each node appear, load nothing from elsewhere, and are safe in a browser."""
    status, headers, text = get(port, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    page = text.decode()
    links = [html.unescape(one) for one in re.findall(r'<a href="(/node[^"]*)"', page)]
    assert list(dict.fromkeys(re.sub(".*name=", "", one) for one in links)) == ["source", "desk-1"]
    assert "//" not in page.replace("http-equiv", "")
    for name, kind in (("monitor.css", "text/css"), ("monitor.js", "text/javascript")):
        assert f'"/{name}"' in page
        assert get(port, f"/{name}")[1]["content-type"].startswith(kind)
    desk = get(port, links[1])[2].decode()
    told = " ".join(re.sub("<[^>]*>", " ", desk).split())
    assert f"delivered_packets {MESSAGES} packets {doc_of('delivered_packets')}" in told
    assert tree.status("desk-1")["sessions"][0]["tsi"] in told
    _explains_packets(port, page)
    assert get(port, "/node?topology=x&name=desk-1")[0] == 404
    assert get(port, "/node")[0] == 404


def _explains_packets(port: int, page: str) -> None:
    """Assert that the pages lead to the ladder diagram of a lost packet, and that bad packets are refused."""
    [worst] = [html.unescape(one) for one in re.findall(r'<a href="(/explain[^"]*)"', page)]
    first = re.findall(r'<a href="(/explain[^"]*sqn[^"]*)"', get(port, worst)[2].decode())[0]
    told = get(port, html.unescape(first))[2].decode()
    assert "lost:    desk-1 dropped" in told
    picture = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', told)
    assert "gap found" in base64.b64decode(picture[0]).decode()
    for query in (
        "sqn=x",
        "stream=s&sqn=",
        "stream=%3Cb%3E&sqn=1",
        "stream=s&sqn=1&at=nobody",
        "stream=s&sqn=" + "9" * 30,
    ):
        status, headers, _ = get(port, f"{worst}&{query}")
        assert status == (200 if query.endswith("sqn=") else 400)
        assert headers["content-type"].startswith("text/html" if status == 200 else "text/plain")
    assert get(port, "/explain?topology=x")[0] == 404


def doc_of(counter: str) -> str:
    """Return the text of a row of the counter table."""
    return next(row.metadata["doc"] for row in ROWS if row.name == counter)


def _needs_its_token(port: int) -> None:
    basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
    for path in ("/", "/node", "/monitor.js", "/metrics", "/status.json", "/nothing"):
        assert get(port, path)[0] == 401
        assert get(port, path, Authorization=f"Bearer {TOKEN}x")[0] == 401
        assert get(port, path, Authorization="Basic ?")[0] == 401
    assert "Bearer" in get(port, "/metrics")[1]["www-authenticate"]
    assert get(port, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert get(port, "/metrics", Authorization=f"Basic {basic}")[0] == 200
    assert get(port, "/healthz")[2] == b"ok\n"


def _ends_whatever_others_do(monitor: Process, port: int) -> None:
    """Assert that the monitor ends despite connections that are silent, incomplete, or slow to read."""
    with closing(socket.create_connection(("127.0.0.1", port))), closing(socket.socket()) as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", port))
        greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100 + b"GET /met")
        assert get(port, "/healthz")[0] == 200
        monitor.process.send_signal(signal.SIGTERM)
        assert monitor.wait(patience_s=30) == 0


def test_monitor_names_unusable_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    invoked("monitor", "no-such-tree").complains(2, "neither a topology file nor a topology that runs here")
    invoked("monitor", tmp_path / "none.toml").complains(2, "none.toml")
    invoked("monitor", "--bind", "everywhere").complains(2, "not an IP address")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        invoked("monitor", "--port", str(taken.getsockname()[1])).complains(1, "cannot listen on 127.0.0.1")
    token = tmp_path / "token"
    invoked("monitor", "--token-file", token).complains(2, "No such file")
    for wrong in ("short", "two words of a long token", "x" * 5000, ""):
        token.write_text(wrong)
        invoked("monitor", "--token-file", token).complains(2, "a token is one word")
    invoked("monitor", "--client", "desk-1").complains(2, "--client needs --mutual-tls")
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    invoked("monitor").complains(2, "hypercorn, which is not installed", "pip install 'pgm-repair-network[monitor]'")


def test_monitor_requests_over_the_limit_are_refused() -> None:
    """Requests over the limit are refused at once, and requests within the limit are served."""
    statuses: list[int] = []

    async def run() -> None:
        gate = trio.Event()

        async def slow(_scope: Any, _receive: Any, send: Any) -> None:
            await gate.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        door = AccessControl(slow, None)
        async with trio.open_nursery() as nursery:
            for _ in range(MOST_REQUESTS + 3):
                nursery.start_soon(door, {"type": "http", "path": "/", "headers": []}, None, send)
            await trio.testing.wait_all_tasks_blocked()
            assert statuses == [503] * 3
            gate.set()

    trio.run(run)
    assert statuses == [503] * 3 + [200] * MOST_REQUESTS


@pytest.mark.parametrize(
    ("address", "token", "says"),
    [
        ("127.0.0.1", None, ""),
        ("::1", None, ""),
        ("0.0.0.0", None, "any host that reaches 0.0.0.0 can read the numbers"),
        ("10.0.0.1", TOKEN, "the token travels in clear text"),
    ],
)
def test_monitor_warns_when_bound_beyond_loopback(
    capsys: pytest.CaptureFixture[str], address: str, token: str | None, says: str
) -> None:
    warn_of_others(Access(token), ipaddress.ip_address(address))
    told = capsys.readouterr().err
    assert says in told if says else not told
