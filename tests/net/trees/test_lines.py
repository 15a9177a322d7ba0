"""Streams from two lines on real sockets, and the page about them."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import pgm
from deploy.status.status import _lines
from pgm.topology.load import loads
from tests.net.support.elements import running
from tests.net.support.lab import ROOT
from tests.net.support.listening import taking
from tests.net.support.opened import messages_of_sizes
from tests.net.support.pages import blocks, page
from tests.net.support.places import Place
from tests.net.support.processes import streaming

PATIENCE_S = 60
FIVE = 'loss = { loss = "5%" }'
LINE_OF_DESK = 'parents = ["exchange"]\nlines = [{'
PAGE = page("guide/ab-feeds.md")


def block(language: str, number: int = 0) -> str:
    return blocks(PAGE, language)[number]


@pytest.fixture
def tree(place: Place) -> str:
    """Return the tree of the page, with this test's own addresses."""
    other = Place.new()
    text = (
        (block("toml") + block("toml", 1)).replace("127.0.79.", f"{place.net}.").replace("127.0.80.", f"{other.net}.")
    )
    text = text.replace("239.192.79.1", place.group(0)).replace("239.192.79.2", place.group(1))
    return text.replace("3079", f"{place.port}").replace('"two-lines"', f'"t{place.number}"')


def test_the_example_does_what_the_page_says(tree: str, tmp_path: Path) -> None:
    (tmp_path / "tree.toml").write_text(tree)
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == "", done.stderr
    first, *lines, both = done.stdout.splitlines()
    assert first == "20000 messages, 0 lost"
    shares = [re.fullmatch(r"line-[ab] lost one in (\d+)", line) for line in lines]
    assert len(shares) == 2
    assert all(share is not None and 15 <= int(share[1]) <= 27 for share in shares)
    share = re.fullmatch(r"both lost one in (\d+)", both)
    assert share is not None
    assert 150 <= int(share[1]) <= 2000


def test_the_tree_of_the_page_passes_a_strict_check(tree: str, tmp_path: Path) -> None:
    (tmp_path / "tree.toml").write_text(tree)
    command = [sys.executable, "-m", "deploy", "check", "--strict", str(tmp_path / "tree.toml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_acknowledged_with_a_repairer_on_both_lines(tree: str) -> None:
    """A receiver with one line alone gets from the repairer the packets that only the other line brought."""
    single = '[nodes.single]\nrole = "receiver"\nsegment = "line-b"\naddress = "{}"\nparents = ["local", "exchange"]\n'
    [own] = re.findall(r'address = "([0-9.]+)\.10", parents', tree)
    tree = tree.replace('rate = "400Mbit/s"', 'rate = "40Mbit/s"\nflow = "acked"') + single.format(f"{own}.11")
    topology = loads(tree)
    sent = messages_of_sizes([500] * 2000)
    async with running(topology, "local") as elements, AsyncExitStack() as stack:
        receivers = [
            await stack.enter_async_context(pgm.open_receiver(topology, node=node)) for node in ("desk", "single")
        ]
        taken = await stack.enter_async_context(taking(*receivers))
        async with pgm.open_source(topology, node="exchange") as source:
            with trio.fail_after(PATIENCE_S):
                await source.send(sent[0])
                while source.counters.members_joined < 1:  # noqa: ASYNC110 - a counter has no event
                    await trio.sleep(0.01)
                await source.send_batch(sent[1:])
                await source.stable(len(sent) - 1)
            assert [len(one.messages) for one in taken] == [len(sent)] * 2
            [session] = elements.core("local").status(0)
        local = elements.core("local").counters
    assert [one.messages for one in taken] == [sent] * 2
    assert not any(one.lost for one in taken)
    assert min(line.lost_packets for line in session.lines) > 20
    assert local.twin_packets > len(sent) // 2
    assert receivers[1].counters.repaired_locally > 20
    assert source.counters.nak_sqns_in < receivers[1].counters.repaired_locally / 2


async def test_the_line_that_works_will_do(tree: str) -> None:
    topology = loads(tree.replace(FIVE, "").replace(LINE_OF_DESK, f'{LINE_OF_DESK} loss = {{ loss = "100%" }},'))
    sent = messages_of_sizes([500] * 2000)
    async with pgm.open_receiver(topology, node="desk") as receiver, taking(receiver) as [taken]:
        async with pgm.open_source(topology, node="exchange") as source:
            for at in range(0, len(sent), 50):
                await source.send_batch(sent[at : at + 50])
                await trio.sleep(0.001)
        [session] = receiver.sessions
    assert taken.messages == sent
    assert not taken.lost
    a, b = session.lines
    assert a.first_packets + receiver.counters.repaired_sqns == len(sent)
    assert b.packets == 0
    shown = _lines({"sessions": [attrs.asdict(session)]})
    assert shown == f"line-a lost {a.lost_packets / len(sent):.1%}, 0.0 ms behind; line-b lost 0.0%, down"


def lines_of(snapshot: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the first session's segment of each line, and whether it is down: under load a line may be, briefly."""
    return [(line["segment"], line["is_down"]) for line in snapshot["sessions"][0]["lines"]]


def test_a_relay_that_is_killed_takes_one_line_with_it(place: Place) -> None:
    """Two repairers carry the stream to a segment each.

    One is killed in the middle, and no receiver misses a message.
    """
    groups = {"core": place.group(0), "a": place.group(1), "b": place.group(2)}
    text = RELAYED.format(name=f"t{place.number}", port=place.port, net=place.net, **groups)
    with streaming(text, f"t{place.number}", ["desk"], ["relay-a", "relay-b"]) as stream:
        stream.until_delivered(2000)
        stream.tree.until("desk", lambda snapshot: lines_of(snapshot) == [("line-a", False), ("line-b", False)])
        stream.tree.running["relay-a"].process.kill()
        stream.until_delivered(5000)
        stream.tree.until("desk", lambda snapshot: lines_of(snapshot) == [("line-a", True), ("line-b", False)])
        stream.end_whole()


RELAYED = """
version = 1
name = "{name}"
parameters = {{ fin_quiet_ivl = "300ms" }}
streams.quotes = {{ data_port = 7500, rate = "40Mbit/s" }}
[segments.core]
group = "{core}"
port = {port}
interface = "{net}.0/24"
[segments.line-a]
group = "{a}"
port = {port}
interface = "{net}.0/24"
[segments.line-b]
group = "{b}"
port = {port}
interface = "{net}.0/24"
[nodes.source]
role = "source"
segment = "core"
address = "{net}.1"
streams = ["quotes"]
[nodes.relay-a]
role = "repairer"
upstream = {{ segment = "core", address = "{net}.2" }}
downstream = [{{ segment = "line-a", address = "{net}.3" }}]
parents = ["source"]
[nodes.relay-b]
role = "repairer"
upstream = {{ segment = "core", address = "{net}.4" }}
downstream = [{{ segment = "line-b", address = "{net}.5" }}]
parents = ["source"]
[nodes.desk]
role = "receiver"
segment = "line-a"
address = "{net}.10"
parents = ["relay-a"]
lines = [{{ segment = "line-b", address = "{net}.11", parents = ["relay-b"] }}]
"""
