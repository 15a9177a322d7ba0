"""Answers of broken and hostile agents: views tell the host, and never fail."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock

import h11
import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from deploy.doctor.fleet import fleet_findings
from deploy.monitor.columns import COLUMNS
from deploy.monitor.history import History
from deploy.monitor.html_page import one_node, overview
from deploy.monitor.listen_commands import command_lines
from deploy.monitor.prometheus import Metrics
from deploy.status import ctl, status
from deploy.status import fleet as fleet_text
from deploy.status.detail import details
from deploy.status.peers import PeerNames
from pgm.errors import ProcessError, UsageError, WireError
from pgm.fleet.agent_client import AgentClient, _exchanged, _object_of, text_untrusted
from pgm.fleet.fingerprint import file_digest
from pgm.fleet.nodes import HostRecord, NodeRecord, TreeView
from pgm.fleet.snapshot_form import flaw_of_control_untrusted, flaw_of_untrusted
from pgm.fleet.watch import FleetWatch, HostAnswer
from pgm.flight.contents import from_json_untrusted
from tests.unit.fleet.agents import row
from tests.unit.fleet.test_watch import FLOOR

FLEET = FleetWatch(FLOOR, "1")
RATE = {"per_s": 2.5, "peak_per_s": 3.0, "peak_at": 1e9}
SESSION: dict[str, Any] = {
    "stream": "quotes",
    "source": "exchange",
    "framing": "batch",
    "protection": {"text": "clear", "signed": ""},
    "tsi": "1.2.3.4.5.6.7",
    "data_port": 7500,
    "state": "open",
    "trail": 1,
    "lead": 9,
    "missing_sqns": 1,
    "pending_sqns": 0,
    "held_octets": 5,
    "parent": "10.0.0.12",
    "silent_ns": 5,
    "verified_ns": -1,
    "file": "ab cd",
    "children": {"floor-2": 3},
    "counts": {"lost_sqns": 1},
    "acked": {
        "stable": 5,
        "members": 3,
        "held_up_by": "10.0.2.2",
        "acks": {"10.0.2.2": 5},
        "lag": 1,
        "untaken": 1,
        "lags": [{"address": "10.0.2.2", "lag": 1, "members": 1, "is_branch": True, "held_up_by": "10.0.2.3"}],
    },
    "askers": [{"address": "10.0.2.2", "nak_packets": 1, "nak_sqns": 1, "braked": 0, "has_excess_naks": False}],
    "lines": [
        {"segment": "a", "packets": 1, "first_packets": 1, "lost_packets": 0, "behind_ns": 5, "is_down": False},
    ],
}
EVENT = {"id": "parent-changed", "text": "10.0.0.12 replaces 10.0.0.11", "at_s": 1e9}
GOOD = row("desk-1")
GOOD["snapshot"] |= {
    "counters": {"lost_sqns": 1, "delivered_packets": 7, "rejects": {"length": 3}},
    "rates": {
        name: {"1s": RATE, "1min": RATE, "5min": RATE} for name in ("received_packets", "missing_sqns", "lost_sqns")
    },
    "sessions": [SESSION],
    "segments": [
        {"segment": "floor-2", "side": "up", "group": "239.0.0.1:3056", "interface": "eth0", "address": "10.0.2.2"}
        | {"rcvbuf": 1, "sndbuf": 1}
    ],
    "subjects": {"quotes": {"a.b": 3}},
    "events": [EVENT],
    "last_event": dict(EVENT),
    "file": "ab",
    "file_part": "cd",
}
STATE = {
    "agent": "a",
    "host": "floor",
    "version": "1",
    "time_s": 1e9,
    "topology": {"hash": file_digest(FLOOR), "entries": {"exchange": "cd"}},
    "nodes": [GOOD],
    "left_out": 0,
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**4000, -(10**40), 1 << 64, float("nan"), float("inf"), 1e300, -1e300, -1, 0]),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["\x1b[2J", "\ud800", "<script>", "10.0.0.1", "%s{0}", "pgm | x"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from places(member, (*path, key))


PLACES = [path for path in places(STATE) if path]


def changed(path: tuple[Any, ...], value: Any, answer: dict[str, Any] = STATE) -> dict[str, Any]:
    """Return an answer of an agent with another value at a path; `...` removes it."""
    state = copy.deepcopy(answer)
    inner: Any = state
    for step in path[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return state


def shown(view: TreeView) -> None:
    """Show a view in every way that commands have."""
    out = io.StringIO()
    terminal = Console(file=out, width=200)
    patched = pytest.MonkeyPatch()
    try:
        for module in (fleet_text, status):
            patched.setattr(module, "console", lambda: terminal)
        for name in ("warn", "remedy"):
            patched.setattr(fleet_text, name, terminal.print)
        names = PeerNames.of_nodes(view.nodes, FLEET.name)
        fleet_text.print_fleet(view, lambda rows: status.print_rows(rows, names=names, clear=False), clear=False)
    finally:
        patched.undo()
    json.dumps(view.row()).encode()
    history = History()
    for at_s in (1.0, 2.0):
        history.sample(view, at_s)
    overview(view).encode()
    for _ in range(2):
        Metrics().render(view)
    for node in view.nodes:
        for column in COLUMNS.values():
            column.text(node)
            column.number(node)
        one_node(view, node, history).encode()
        if node.snapshot is not None:
            for part in details(node.snapshot, 80, names):
                terminal.print(part)
            command_lines(node.snapshot)
    out.getvalue().encode()
    assert "\x1b[2J" not in out.getvalue()


def seen(state: dict[str, Any]) -> TreeView:
    """Return the view of an answer that has come over the wire."""
    fleet = FleetWatch(FLOOR, "1")  # without numbers of an earlier answer
    told = _object_of("x", 200, json.dumps(state).encode())
    return fleet.merge([HostAnswer(FLEET.hosts[3], "10.0.2.1", 0.1, told, at_s=1e9)], 0.0, 1.0)


def test_good_answer_of_an_agent_has_no_flaw() -> None:
    view = seen(STATE)
    assert [(host.name, host.problem, host.is_malformed) for host in view.hosts] == [("floor", "", False)]
    assert len(view.snapshots) == 1
    shown(view)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(PLACES), value=VALUES | st.just(...))
def test_any_change_of_an_answer_is_shown_or_told(path: tuple[Any, ...], value: Any) -> None:
    view = seen(changed(path, value))
    shown(view)
    host = view.hosts[0]
    assert host.is_malformed == bool(host.problem)
    if path[:3] == ("nodes", 0, "snapshot") and len(path) > 3 and path[3] != "topology":
        assert len(view.snapshots) == (not host.is_malformed)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("sessions", 0, "lead"), "9", ".sessions[0].lead: no whole number"),
        (("sessions", 0, "askers", 0, "address"), ..., ".sessions[0].askers[0].address: missing"),
        (("sessions", 0), [], ".sessions[0]: no table"),
        (("counters", "lost_sqns"), {"x": 1}, ".counters.lost_sqns: no number"),
        (("counters", "rejects"), 5, ".counters.rejects: no table"),
        (("rates", "lost_sqns", "1min"), ..., ".rates.lost_sqns.1min: missing"),
        (("uptime_s",), float("nan"), ".uptime_s: no number"),
        (("events", 0, "at_s"), 1e300, ".events[0].at_s: no time"),
        (("rss_bytes",), True, ".rss_bytes: no whole number"),
    ],
)
def test_malformed_session_is_told_by_host_and_place(path: tuple[Any, ...], value: Any, told: str) -> None:
    view = seen(changed(("nodes", 0, "snapshot", *path), value))
    host = view.hosts[0]
    assert host.problem == f"nodes[0].snapshot{told}"
    assert fleet_text.problems_of(view)[0][0] == f"host floor sends a malformed answer: {host.problem}"
    assert "sends a malformed answer" in overview(view)
    assert {node.state.name for node in view.nodes if node.name == "floor-2-repairer"} == {"UNREACHABLE"}
    assert 'pgm_agent_up{host="floor"} 0.0' in Metrics().render(view)[0].decode()


def test_unknown_keys_of_a_later_version_are_no_flaw() -> None:
    view = seen(changed(("nodes", 0, "snapshot", "sessions", 0, "news"), {"of": ["a", {"later": None}]}))
    assert (view.hosts[0].problem, view.snapshots[0]["sessions"][0]["news"]) == ("", {"of": ["a", {"later": None}]})
    deep: Any = 5
    for _ in range(300):
        deep = [deep]
    assert flaw_of_untrusted({**GOOD["snapshot"], "news": deep}) == ".news: nested too deeply"


@given(text=st.text())
def test_texts_of_agents_have_no_controls_and_stay_json(text: str) -> None:
    for ascii_only in (True, False):
        octets = json.dumps({"a": text}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        told = json.loads(text_untrusted(octets))["a"]
        assert all(ord(one) >= 32 or one in "\n\t" for one in told)
        told.encode()
        if text.isprintable():
            assert told == text


@settings(deadline=None, max_examples=100)
@given(octets=st.binary(max_size=200), status_code=st.integers(100, 599))
def test_any_octets_of_an_agent_are_an_answer_or_an_error(octets: bytes, status_code: int) -> None:
    for body in (octets, b'{"error":' + octets + b"}", b'{"error": {"message": ' + octets + b"}}", b"[" * 100_000):
        try:
            assert isinstance(_object_of("x", status_code, body), dict)
        except (ProcessError, UsageError) as error:
            str(error).encode()
    head = b"HTTP/1.1 %d X\r\n" % status_code
    for wire in (octets, head + octets, head + b"content-length: 5\r\n\r\n" + octets, head + b"\r\n" + octets):
        trio.run(_exchange, wire)


async def _exchange(wire: bytes) -> None:
    """Exchange a request with an agent that sends these octets and ends."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(wire)
    await theirs.send_eof()
    request = h11.Request(method="GET", target="/", headers=[("host", "x")])
    try:
        with trio.fail_after(5):
            await _exchanged(ours, request, b"")
    except h11.RemoteProtocolError:
        pass


@settings(deadline=None, max_examples=100)
@given(rows=VALUES, value=VALUES)
def test_findings_and_recorders_of_agents_never_fail(rows: Any, value: Any) -> None:
    class Fleet:
        def look(self) -> TreeView:
            return TreeView((), 0.0, 0.0)

        def doctor(self, _: TreeView) -> dict[str, Any]:
            return {"h": [rows, {"level": value}, {"level": "ok", "check": value}]}

    fleet: Any = Fleet()
    assert len(fleet_findings(fleet)) >= 1
    empty = {"version": 1, "facts": {}, "sessions": [], "records": [], "boot_id": "", "wall_offset_ns": 0}
    for ring in (rows, {**empty, "records": [rows]}, {**empty, "facts": rows}, {**empty, "sessions": [rows]}):
        try:
            from_json_untrusted(ring)
        except WireError:
            continue


SETTING = {"name": "rate", "segment": None, "value": "1Mbit/s", "start": "1Mbit/s", "fixed": "", "note": "n"}
CHANGE = {"name": "loss", "segment": "core", "old": "1%", "new": "2%"}
CONTROLS: list[dict[str, Any]] = [
    {"topology": "t", "node": "n", "role": "source", **more}
    for more in (
        {"released": "10.0.0.1", "sessions": 1},
        {"changed": [CHANGE], "settings": [SETTING]},
        {"settings": [SETTING]},
    )
]


@settings(deadline=None, max_examples=60)
@given(answer=st.sampled_from(CONTROLS), value=VALUES | st.just(...), data=st.data())
def test_settings_that_an_agent_tells_are_printed_or_told(
    answer: dict[str, Any], value: Any, data: st.DataObject
) -> None:
    assert flaw_of_control_untrusted(answer) == ""
    told = changed(data.draw(st.sampled_from([path for path in places(answer) if path])), value, answer)
    patched = pytest.MonkeyPatch()
    patched.setattr(AgentClient, "post", AsyncMock(return_value=_object_of("x", 200, json.dumps(told).encode())))
    node, view = NodeRecord("t", "n", host="h"), TreeView((), 0.0, 0.0, hosts=(HostRecord("h", "10.0.0.1"),))
    try:
        found = FLEET.control(node, view, {})
        ctl.print_answer(found)
    except ProcessError as error:
        problem = error.message
    else:
        problem = ""
    finally:
        patched.undo()
    assert not problem or problem.startswith("host h sends a malformed answer: answer")


def test_answer_without_nodes_is_malformed() -> None:
    assert seen({}).hosts[0].problem == "`nodes` is no list"
