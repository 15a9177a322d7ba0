"""`pgm agent` beside running nodes: the fleet view of them, TLS, and clients without rights."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.parameters import Parameters
from pgm.spark.fleet.options import FleetOptions
from pgm.spark.fleet.places import PlaceAway, places_of
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from pgm.topology.load import loads
from tests.cli.command import CommandResult, invoked
from tests.cli.monitor.certificates import certificate
from tests.cli.test_json import documented
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, Processes, processes

TOKEN = "a-token-of-many-characters"


@contextmanager
def open_port() -> Iterator[int]:
    """Yield a port that is free."""
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        port = sock.getsockname()[1]
    yield port


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Processes, Process, int]]:
    """Run a source and an agent with a token and TLS; the file names a receiver that does not run."""
    place = Place.new()
    with open_port() as port, processes(f"{one_segment(place)}\n[fleet]\nport = {port}\n", f"t{place.number}") as tree:
        tree.start("source", "--idle")
        token = tree.folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        cert, key = certificate(tree.folder, "127.0.0.1")
        options = ["--token-file", token, "--tls-cert", cert, "--tls-key", key, "--apply", "--telemetry", tree.folder]
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(tree.folder))
        agent = Process(
            "agent",
            ["agent", str(tree.file), *map(str, options), "--json"],
            env={"PGM_RUNTIME_DIR": str(tree.folder)},
        )
        tree.all.append(agent)
        tree.running["source"].line_with("ready:")
        agent.first_printed()
        yield tree, agent, port


def fleet(tree: Processes, *words: str) -> CommandResult:
    verb, *more = words
    words = ("--fleet", "--token-file", tree.folder / "token", "--ca-file", tree.folder / "agent.pem")
    return invoked(verb, tree.file, *more, *words)


def test_agent_tells_the_fleet_and_withstands_others(running: tuple[Processes, Process, int]) -> None:
    tree, agent, port = running
    documented("agent", agent.first_printed())
    told = fleet(tree, "status", "--json")
    assert told.code == 1, told  # desk-1 does not run
    documented("status --fleet", told.json)
    documented("status --fleet, each of hosts[]", told.json["hosts"][0])
    assert [(node["node"], node["host"]) for node in told.json["nodes"]] == [("source", socket.gethostname())]
    assert told.json["absent"] == [[tree.name, "desk-1"]]
    assert told.json["hosts"][0]["problem"] == ""
    text = fleet(tree, "status")
    assert "source @" in text.out
    assert "not running: desk-1" in text.err
    _changes_settings(tree)
    _checks_hosts(tree)
    _applies(tree)
    _serves_event_logs(tree, port)
    _refuses_others(tree)
    _withstands_the_hostile(port)
    again = fleet(tree, "status", "--json")
    assert again.json["nodes"][0]["pid"] == told.json["nodes"][0]["pid"]
    assert agent.process.poll() is None


def _serves_event_logs(tree: Processes, port: int) -> None:
    """Executors of Spark read a log by rows over TLS, as they are numbered, and hear of a wrong token."""
    log = EventLog(tree.folder, "desk-9", attrs.evolve(Parameters(), telemetry_rows=10), in_background=False)
    for number in range(25):
        log.add(Event(number * 1000, "desk-9", "receiver", "lan", "gap", "tsi", number, 1))
    log.close()
    min(tree.folder.glob("desk-9-*.parquet")).unlink()
    options = FleetOptions(
        agents=(f"https://127.0.0.1:{port}",),
        token_file=str(tree.folder / "token"),
        ca_file=str(tree.folder / "agent.pem"),
    )
    (place,) = places_of(options).values()
    (state,) = place.states(15_000)
    assert (state.first, state.next, state.cut, state.newest_us) == (10, 25, 16, 24_000)
    found = [(first, table.column("first").to_pylist()) for first, table in place.rows(state.name, 0, 22)]
    assert found == [(10, list(range(10, 20))), (20, [20, 21])]
    with pytest.raises(PlaceAway, match="no log"):
        list(place.rows("desk-9-0", 0, 5))
    (tree.folder / "wrong-token").write_text("another token")
    (place,) = places_of(attrs.evolve(options, token_file=str(tree.folder / "wrong-token"))).values()
    with pytest.raises(PlaceAway, match="refuses the token"):
        place.states(None)


def _changes_settings(tree: Processes) -> None:
    done = fleet(tree, "ctl", "set", "rate=20Mbit/s", "--node", "source")
    assert (done.code, done.out) == (0, "source: rate = 20Mbit/s, was 400Mbit/s\n")
    refused = fleet(tree, "ctl", "set", "rate=900Gbit/s", "--node", "sou*")
    refused.complains(2, "source: rate = 900Gbit/s is out of range")
    fleet(tree, "ctl", "get", "--node", "desk-1").complains(1, "these nodes run: source")
    documented("ctl get", fleet(tree, "ctl", "--json").json)
    rows = fleet(tree, "top", "--json").json
    assert (rows["node"], rows["role"]) == ("source", "source")


def _checks_hosts(tree: Processes) -> None:
    checks = fleet(tree, "doctor", "--json").json["checks"]
    assert ["topology file", socket.gethostname(), "ok"] in [
        [row["check"], row["subject"], row["level"]] for row in checks
    ]
    assert any(row["subject"].startswith(f"{socket.gethostname()}: ") for row in checks)
    invoked("doctor", tree.file, "--fleet", "--node", "source").complains(2, "no --node")


def _applies(tree: Processes) -> None:
    """A file with another rate is taken by the host. A new receiver would need a pgm up."""
    before, new = tree.file.read_text(), tree.folder / "new.toml"
    new.write_text(before.replace("count = 1", "count = 2"))
    refused = applied(tree, new)
    assert (refused.code, tree.file.read_text()) == (2, before)
    assert "node desk-2 must start here, and no pgm up of this tree runs on this host" in refused.err
    new.write_text(before.replace("400Mbit/s", "300Mbit/s"))
    assert applied(tree, new).code == 0
    assert tree.file.read_text() == new.read_text()
    assert tree.status("source")["file"] == loads(new.read_text()).digest
    assert "300Mbit/s" in fleet(tree, "ctl", "get", "--node", "source").out
    invoked("agent", tree.file, "--apply").complains(2, "--apply needs a token or named nodes")


def applied(tree: Processes, new: Path) -> CommandResult:
    words = ("--fleet", "--token-file", tree.folder / "token", "--ca-file", tree.folder / "agent.pem")
    return invoked("apply", new, *words)


def _refuses_others(tree: Processes) -> None:
    """Assert the reasons without TLS, with another authority, and without the token."""
    plain = invoked("status", tree.file, "--fleet")
    assert "if the agent has --tls-cert, give --ca-file" in plain.err
    other = tree.folder / "other"
    other.mkdir()
    cert, _ = certificate(other, "127.0.0.1")
    assert "self-signed certificate" in invoked("status", tree.file, "--fleet", "--ca-file", cert).err
    tokenless = invoked("status", tree.file, "--fleet", "--ca-file", tree.folder / "agent.pem")
    assert "the agent refuses the token" in tokenless.err
    wrong = other / "token"
    wrong.write_text(f"{TOKEN}x")
    wrong.chmod(0o600)
    refused = invoked(
        "status", tree.file, "--fleet", "--ca-file", tree.folder / "agent.pem", "--token-file", wrong, "--json"
    )
    assert "refuses the token" in refused.json["hosts"][0]["problem"]


def _request(port: int, octets: bytes) -> bytes:
    """Send octets over TLS. Return what comes until the agent closes."""
    context = ssl.create_default_context()
    found = bytearray()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    with closing(plain), context.wrap_socket(plain) as secure, contextlib.suppress(ConnectionError, ssl.SSLError):
        secure.sendall(octets)
        while chunk := secure.recv(65_536):
            found += chunk
    return bytes(found)


def _asked(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    access = f"Authorization: Bearer {TOKEN}"
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", access, *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _status(answer: bytes) -> int:
    return int(answer.split()[1])


def _withstands_the_hostile(port: int) -> None:
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]  # no handshake
    for path in (
        "/fleet/v1/../../etc/passwd",
        "/fleet/v1/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/fleet/v1/state/",
    ):
        assert _status(_request(port, _asked("GET", path))) in (307, 404)
    assert _status(_request(port, _asked("POST", "/fleet/v1/state"))) == 405
    assert _status(_request(port, b"GET /fleet/v1/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == 401
    huge = b"x" * 1_000_000
    answer = _request(port, _asked("POST", "/fleet/v1/control", "Content-Length: 1000000", body=huge))
    assert not answer or _status(answer) == 400
    assert not _request(port, b"GET / HTTP/1.1\r\nX: " + huge).startswith(b"HTTP/1.1 2")
    nameless = b"POST /fleet/v1/netcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    assert _status(_request(port, nameless)) == 401
    assert _status(_request(port, _asked("POST", "/fleet/v1/netcheck", "Content-Length: 2", body=b"{}"))) == 400
    wanted = "/fleet/v1/apply"
    for value in ({}, {"do": "prepare"}, {"do": "prepare", "id": "../x", "text": "", "old_digest": ""}, {"do": 1}):
        body = json.dumps(value).encode()
        assert _status(_request(port, _asked("POST", wanted, f"Content-Length: {len(body)}", body=body))) == 400
    for value in (
        {},
        [],
        {"node": "../source", "request": {"do": "get"}},
        {"node": "source", "request": {"do": "sing"}},
        {"node": "source", "request": {"do": "file"}},  # requests of pgm apply, which only its own host may make
        {"node": "source", "request": {"do": "check", "old": "/dev/null"}},
        {"node": "source", "request": {"do": "reload", "old": ["get"]}},
        {"node": "source", "request": {"do": ["get"]}},
    ):
        body = json.dumps(value).encode()
        answer = _request(port, _asked("POST", "/fleet/v1/control", f"Content-Length: {len(body)}", body=body))
        assert _status(answer) == 400
        problem: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert set(problem["error"]) == {"message", "remedy"}
    for sock in silent:
        sock.close()
