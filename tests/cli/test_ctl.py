"""`pgm ctl` on running nodes: changes take effect, refusals give a reason, and nonsense is harmless."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import pgm
from pgm.core.effects import Effect, Effects, Notice
from pgm.errors import ProcessError, UnitError, UsageError
from pgm.net.control.control_socket import ask_control, control_path
from pgm.net.control.settings import SETTINGS, NodeSettings
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.node_links import NodeLinks
from pgm.parameters import ROWS
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import parse_rate
from tests.cli.command import CommandResult, invoked
from tests.cli.test_json import documented
from tests.folders import short_folder
from tests.net.support.lab import ROOT
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Processes, count, processes
from tests.unit.core.source.sources import source

RATE = "16Mbit/s"
PAGE = (ROOT / "docs/guide/operations.md").read_text()


@pytest.fixture(scope="module")
def tree() -> Iterator[Processes]:
    """Run a source that sends continuously, and a receiver that loses some packets."""
    place = Place.new()
    text = one_segment(place, loss='{ loss = "5%" }', rate=RATE, parameters='excess_nak_window_ivl = "0s"')
    with processes(text, f"t{place.number}") as running:
        running.start_all(["desk-1"])
        running.start("source", "--generate", "100000000")
        running.until("desk-1", lambda one: count(one, "delivered_packets"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PGM_RUNTIME_DIR", str(running.folder))
            yield running


def ctl(tree: Processes, node: str, *words: str) -> CommandResult:
    return invoked("ctl", tree.file, "--node", node, *words)


def per_second(tree: Processes, least: float, counter: str) -> float:
    """Return the packets that the source sends in a second, measured over a growth of the counter."""
    first = tree.status("source")
    then = tree.until("source", lambda one: count(one, counter) - count(first, counter) >= least)
    return (count(then, counter) - count(first, counter)) / (then["uptime_s"] - first["uptime_s"])


def test_ctl_changes_the_rate_of_a_sending_source(tree: Processes) -> None:
    """The rate falls at once and returns to the value of the file; the source reports and counts both changes."""
    slow = parse_rate("2Mbit/s")
    changed = ctl(tree, "source", "set", "rate=2Mbit/s")
    assert (changed.code, changed.out) == (0, f"source: rate = 2Mbit/s, was {RATE}\n"), changed
    tree.running["source"].line_with(f"setting-changed: rate = 2Mbit/s, was {RATE}, by process ")
    assert per_second(tree, slow / 8, "odata_octets") < 1.1 * slow
    assert "2Mbit/s" in ctl(tree, "source", "get").out
    again = ctl(tree, "source", "set", "rate=start", "--json").json
    documented("ctl set", again)
    documented("ctl set.changed[]", again["changed"][0])
    documented("ctl.settings[]", again["settings"][0])
    tree.until("source", lambda one: count(one, "settings_changed") == 2)
    assert per_second(tree, 4 * slow / 8, "odata_octets") > 1.5 * slow


def test_hangup_reloads_what_can_be_set_in_place(tree: Processes) -> None:
    """The rest of the file needs a restart, and a wrong file changes nothing. None of them ends the node."""
    source, before = tree.running["source"], tree.file.read_text()
    hangup = functools.partial(source.process.send_signal, signal.SIGHUP)
    try:
        tree.file.write_text(before.replace(RATE, "4Mbit/s").replace("ihb_min", 'ihb_max = "1s", ihb_min'))
        hangup()
        source.line_with(f"setting-changed: rate = 4Mbit/s, was {RATE}, by a reload of the file")
        source.line_with("a restart is needed for ihb_max")
        source.line_with("settings changed: 1")
        tree.file.write_text("nonsense")
        hangup()
        source.line_with("reload-failed: ")
    finally:
        tree.file.write_text(before)
    hangup()
    source.line_with(f"setting-changed: rate = {RATE}, was 4Mbit/s")
    desk = tree.running["desk-1"]
    desk.process.send_signal(signal.SIGHUP)
    desk.line_with("reloaded: ")
    assert (source.process.poll(), desk.process.poll()) == (None, None)


def test_ctl_changes_and_ends_injected_losses(tree: Processes) -> None:
    """A receiver without losses sends no more NAKs."""
    assert tree.status("desk-1")["counters"]["injected_losses"]
    done = ctl(tree, "desk-*", "set", "loss=off", "--segment", "lan")
    assert done.out == "desk-1: loss on lan = 0%, was 5%\ndesk-1: burst_loss on lan = 0%, was 0%\n"
    lost = count(tree.status("desk-1"), "injected_losses")
    first = count(tree.status("desk-1"), "delivered_packets")
    then = tree.until("desk-1", lambda one: count(one, "delivered_packets") > first + 300)
    assert count(then, "injected_losses") == lost
    assert then["segments"][0]["injected"]["asked"] == 0
    ctl(tree, "desk-1", "set", "loss=3%", "burst_loss=1%", "burst_length=4")
    then = tree.until("desk-1", lambda one: count(one, "injected_losses") > lost + 10)
    assert then["segments"][0]["injected"]["asked"] == pytest.approx(1 - 0.97 * 0.99)


def test_ctl_shows_settings_of_all_nodes_or_one(tree: Processes) -> None:
    rows = {row["node"]: row for row in map(json.loads, invoked("ctl", tree.file, "--json").out.splitlines())}
    assert set(rows) == {"source", "desk-1"}
    documented("ctl get", rows["source"])
    assert {row["name"] for row in rows["source"]["settings"]} == set(SETTINGS)
    named = invoked("ctl", tree.name, "--node", "source", "get", "txw_secs", "--stream", "s")
    assert "txw_secs: cannot be changed while it runs: windows, caches and tables get their size" in named.out
    assert "rx_wake_ivl: cannot" in invoked("ctl", tree.name, "--node", "source", "get", "rx_rest_ivl").out


def test_the_examples_of_the_page(tree: Processes) -> None:
    """The examples run as written, with the names of this tree. A rate above that of the file is not among them."""
    block = next(one for one in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "pgm ctl" in one)
    here = {"tree.toml": str(tree.file), "exchange": "source", "rate=20Mbit/s": "rate=2Mbit/s"}
    for line in block.splitlines():
        done = invoked(*[here.get(word, word) for word in shlex.split(line, comments=True)[1:]])
        assert (done.code, bool(done.out)) == (0, True), done


@pytest.mark.parametrize(
    ("node", "words", "code", "says"),
    [
        ("source", ("set", "rate=17Mbit/s"), 2, f"were made for {RATE} at the start"),
        ("source", ("set", "rate=fast"), 2, "source: rate = fast: 'fast' is not a rate"),
        ("source", ("set", "rate=1Mbit/s", "txw_secs=1s"), 2, "get their size from the topology file"),
        ("source", ("set", "nak_bo_ivl=1ms"), 2, "timers of several nodes fit each other"),
        ("source", ("set", "so_rcvbuf=1MiB"), 2, "sockets are opened with it"),
        ("source", ("set", "rats=1Mbit/s"), 2, "did you mean 'rate'?"),
        ("source", ("set", "rate"), 2, "as in: set rate=20Mbit/s"),
        ("source", ("set", "rate=1Mbit/s", "--stream", "t"), 2, "has no stream 't'"),
        ("source", ("get", "groop"), 2, "there is no setting 'groop'"),
        (
            "source",
            ("set", "parents=relay"),
            2,
            "parents is a key of the topology file, which a node reads at its start",
        ),
        ("source", ("set", "window=1s"), 2, "write it in a copy of the topology file"),
        ("source", ("release", "10.0.0.1"), 2, "no node has a reduced budget"),
        ("source", ("release",), 2, "`release` needs one child's address"),
        ("source", ("release", "desk-7"), 2, "'desk-7' is no address"),
        ("desk-1", ("set", "rate=1Mbit/s"), 2, "a rate is a source's"),
        ("desk-1", ("set", "loss=200%"), 2, "loss = 200%: '200%' is more than 100 %"),
        ("desk-1", ("set", "burst_length=nan"), 2, "mean length of bursts"),
        ("desk-1", ("set", "burst_length=0"), 2, "burst_length = 0: 0.0 is not a mean length of bursts"),
        ("desk-1", ("set", "burst_length=long"), 2, "burst_length = long: this is no number"),
        ("desk-1", ("set", "loss=1%", "--segment", "roof"), 2, "is not on a segment 'roof'"),
        ("desk-1", ("release", "10.0.0.1"), 2, "name the node it asks"),
        ("desk-9", ("get",), 1, "these nodes run: desk-1, source"),
    ],
)
def test_ctl_refused_change_says_why_and_changes_nothing(
    tree: Processes, node: str, words: tuple[str, ...], code: int, says: str
) -> None:
    before = {name: _values(tree, name) for name in ("source", "desk-1")}
    ctl(tree, node, *words).complains(code, says)
    assert {name: _values(tree, name) for name in ("source", "desk-1")} == before


def _values(tree: Processes, node: str) -> object:
    return ask_control(control_path(tree.name, node), {"do": "get"})["settings"]


@pytest.mark.parametrize(
    ("request_", "example"),
    [
        ({"do": "release"}, '"child": "10.0.2.7"'),
        ({"do": "get", "stream": 7}, '"stream": "quotes"'),
        ({"do": "set", "settings": {"rate": 7}}, '"rate": "20Mbit/s"'),
        ({}, '{"do": "get"}'),
    ],
)
def test_ctl_incomplete_request_shows_the_missing_part(request_: dict[str, Any], example: str) -> None:
    with pytest.raises(UsageError, match="is missing or no text") as caught:
        SETTINGS_OF_A_SOURCE.answer(request_, "somebody")
    assert example in caught.value.remedy


@pytest.mark.parametrize("line", [b"\xff\n", b"[" * 4000 + b"\n", b"1\n", b"{}\n", b'{"do": 7}\n', b"x" * 5000, b"\n"])
def test_ctl_nonsense_is_answered_counted_and_harmless(tree: Processes, line: bytes) -> None:
    refused = count(tree.status("desk-1"), "control_refused")
    path = control_path(tree.name, "desk-1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(path))
        sock.sendall(line)
        answer = json.loads(sock.makefile().readline())
    assert answer["error"]["remedy"]
    assert count(tree.status("desk-1"), "control_refused") == refused + 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_ctl_silent_client_does_not_block_others(tree: Processes) -> None:
    """Silent clients are dropped in turn, and a client that has disconnected is dropped at once."""
    path = str(control_path(tree.name, "desk-1"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.connect(path)
        for _ in range(8):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
                gone.connect(path)
                gone.sendall(b'{"do": "get"}\n')
        assert ask_control(Path(path), {"do": "get"})["node"] == "desk-1"


def test_ctl_killed_node_does_not_block_others(tree: Processes) -> None:
    """The socket of the killed node still exists."""
    dead = control_path(tree.name, "desk-0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(dead))
    done = invoked("ctl", tree.file)
    dead.unlink()
    assert done.code == 1
    assert "receiver desk-1" in done.out
    assert "source source" in done.out
    assert "no answer from desk-0" in done.err


def test_ctl_without_nodes_names_the_remedy(tree: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoked("ctl", tree.file, "set", "rate=1Mbit/s").complains(2, "`set` needs --node")
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    invoked("ctl", tree.file).complains(1, "no node of", "start one with")
    with pytest.raises(ProcessError, match="no answer from"):
        ask_control(tmp_path / "nobody.ctl", {"do": "get"})


class _NoticeApplication:
    """Application that takes notices."""

    def take(self, effect: Effect) -> None:
        assert isinstance(effect, Notice)

    def after(self) -> Effects:
        return ()


SETTINGS_OF_A_SOURCE = NodeSettings(
    plan_node(loads(one_segment(Place(1))), "source"),
    TrioDriver(source(), TrioReads(NodeLinks(())), _NoticeApplication()),
)  # shared by all examples
_JSON = st.recursive(
    st.none()
    | st.sampled_from(["1Mbit/s", "1%", "start", "off", "s", "lan"])
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from([*SETTINGS, "txw_secs", "so_rcvbuf", "excess_nak_policy", "x"]) | st.text(max_size=5)


@given(
    request=st.dictionaries(
        st.sampled_from(["do", "settings", "names", "stream", "segment", "child"]),
        st.sampled_from(["get", "set", "release"]) | st.dictionaries(_NAMES, _JSON, max_size=3) | _JSON,
    )
)
def test_ctl_any_request_is_answered_or_refused(request: dict[str, Any]) -> None:
    with contextlib.suppress(UsageError, UnitError):
        assert SETTINGS_OF_A_SOURCE.answer(request, "somebody")["node"] == "source"


def test_ctl_page_lists_the_settings() -> None:
    assert re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE) == [
        (name, who, what) for name, (who, what) in SETTINGS.items()
    ]
    assert not set(SETTINGS) & set(ROWS)


async def test_ctl_changes_settings_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of a program change like those of a node, with a notice.

    With `if-free`, a second process of the node leaves the answers to the first one.
    """
    place = Place.new()
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(place))
    notices: list[Notice] = []
    with short_folder() as folder:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        path = control_path(f"t{place.number}", "source")
        async with pgm.open_source(file, node="source", answer="yes", on_notice=notices.append) as opened:
            request = {"do": "set", "settings": {"rate": "1Mbit/s"}}
            answer = await trio.to_thread.run_sync(ask_control, path, request)
            assert answer["changed"][0]["new"] == "1Mbit/s"
            assert (opened.counters.settings_changed, [one.code for one in notices]) == (1, ["setting-changed"])
        assert not path.exists()
        other = Place.new()
        (again := tmp_path / "again.toml").write_text(
            one_segment(other).replace(f"t{other.number}", f"t{place.number}")
        )  # another tree of the same name
        async with pgm.open_receiver(file, node="desk-1", answer="yes"):
            async with pgm.open_receiver(again, node="desk-1", answer="if-free"):
                path = control_path(f"t{place.number}", "desk-1")
                assert (await trio.to_thread.run_sync(ask_control, path, {"do": "get"}))["role"] == "receiver"
            with pytest.raises(ProcessError, match="already running"):
                async with pgm.open_receiver(again, node="desk-1", answer="yes"):
                    raise AssertionError("the endpoint was opened")
        with pytest.raises(UsageError, match="is unknown"):
            async with pgm.open_receiver(file, node="desk-1", answer="maybe"):
                raise AssertionError("the endpoint was opened")
        with pytest.raises(UsageError, match="names no node"):
            async with pgm.open_receiver(place.url(), answer="yes"):
                raise AssertionError("the endpoint was opened")


def test_ctl_changes_settings_of_send(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.new()
    with processes(one_segment(place), f"t{place.number}") as running:
        source = running.start("source", verb="send", stdin=subprocess.PIPE)
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(running.folder))
        running.until("source", lambda one: one["role"] == "source")
        assert invoked("ctl", running.name, "--node", "source", "set", "rate=1Mbit/s").code == 0
        source.line_with("setting-changed: rate = 1Mbit/s")
