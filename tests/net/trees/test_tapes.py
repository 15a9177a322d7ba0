"""Tapes of real nodes replay to the same hash: of each role and surface, and of a node that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Closed, Message
from pgm.errors import TapeError
from pgm.tape.replay import Replay
from pgm.tape.taping import tapes_of
from pgm.topology.load import loads
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_node
from tests.net.support.lab import ROOT
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place, below_a_relay, one_segment
from tests.net.support.processes import count, processes

LOSS = '{ loss = "20%" }'
MESSAGES = 4000


def lossy_tree(place: Place) -> str:
    core = place.segment("core", 0)
    settings = 'txw_unsent_bytes = "64KiB", nak_data_retries = 200, nak_ncf_retries = 200'
    text = below_a_relay(place, parameters=settings, quiet="1s", loss=LOSS, has_repairer=True, rate="16Mbit/s")
    return text.replace(core, f"{core}\nloss = {LOSS}")


def replayed(base: Path, node: str) -> Replay:
    """Return the finished replay of the only tape of a node."""
    (tape,) = tapes_of(base, node)
    replay = Replay(tape)
    replay.run()
    assert replay.inputs > 0
    return replay


def test_tapes_of_all_roles_replay_and_a_killed_one_to_its_end(place: Place, tmp_path: Path) -> None:
    tape = ("--tape", str(tmp_path))
    with processes(lossy_tree(place), f"t{place.number}") as tree:
        tree.start_all(["relay", "repairer"], *tape)
        work = ("--generate", str(MESSAGES), "--until-closed")
        desk, other = tree.start_all(["desk-1", "desk-2"], *work, *tape)
        source = tree.start("source", "--generate", str(MESSAGES), *tape)
        tree.until("desk-1", lambda snapshot: count(snapshot, "delivered_packets") > 500)
        desk.kill()
        source.account()
        assert other.account()["delivered"] > MESSAGES // 2
        for node in ("relay", "repairer"):
            tree.running[node].process.send_signal(signal.SIGTERM)
            tree.running[node].account()
    killed = replayed(tmp_path, "desk-1")
    assert killed.end is None
    assert killed.checks > 1
    assert killed.core.counters.delivered_packets > 400
    for node in ("source", "relay", "repairer", "desk-2"):
        replay = replayed(tmp_path, node)
        assert (replay.end, replay.checked_inputs) == ("", replay.inputs)


def test_replay_command_stops_at_an_event_and_a_sqn(place: Place, tmp_path: Path) -> None:
    with processes(lossy_tree(place), f"t{place.number}") as tree:
        tree.start_all(["relay"])
        desk = tree.start("desk-1", "--generate", "300", "--until-closed", "--tape", str(tmp_path))
        desk.line_with("ready:")
        tree.start("source", "--generate", "300")
        desk.account()
    whole = command("replay", str(tmp_path), "--json")
    assert (whole["ending"], whole["difference"], whole["node"]) == ("ended", "", "desk-1")
    assert whole["proved_inputs"] == whole["inputs"]
    stopped = command("replay", str(tmp_path), "--break", "repaired", "--json")
    assert stopped["stopped_at"] == "event repaired"
    assert stopped["last"][-1]["did"][0]["action"] == "repaired"
    until = command("replay", str(tmp_path), "--until", "200", "--json")
    assert until["inputs"] <= whole["inputs"]
    assert any(one["first"] <= 200 < one["end"] for did in until["last"][-1]["did"] for one in did["sqns"]), until[
        "last"
    ][-1]


def command(*arguments: str) -> dict[str, object]:
    """Return the last line of a command's output."""
    # Another seed of hashes than that of the node: no order may depend on it.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-m", "deploy", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


# Surfaces


def taped(node: str, base: Path, text: str) -> NodePlan:
    return attrs.evolve(plan_node(loads(text), node), tape=str(base))


def text_of(place: Place, *, framing: str = "plain", flow: str = "rate") -> str:
    stream = f'[streams.s]\nframing = "{framing}"\nflow = "{flow}"'
    return one_segment(place, loss=LOSS, parameters="nak_data_retries = 200").replace("[streams.s]", stream)


@pytest.mark.parametrize("framing", ["plain", "batch", "zeromq"])
async def test_tapes_of_endpoints_in_trio_replay(place: Place, tmp_path: Path, framing: str) -> None:
    text = text_of(place, framing=framing)
    received = 0
    with trio.fail_after(PATIENCE_S):
        async with pgm.open_receiver(taped("desk-1", tmp_path, text)) as receiver, trio.open_nursery() as tasks:

            async def send() -> None:
                async with pgm.open_source(taped("source", tmp_path, text)) as source:
                    while not receiver.known_sources:  # noqa: ASYNC110 - a property has no event
                        await trio.sleep(0.01)
                    for number in range(400):
                        await source.send(b"%d" % number * (1 + number % 50))
                        if number % 7 == 0:
                            await trio.sleep(0.001)
                    await source.send_batch([b"a" * 900] * 200)

            tasks.start_soon(send)
            async for item in receiver:
                if isinstance(item, Closed):
                    break
                received += isinstance(item, Message)
    assert received == 600
    for node in ("source", "desk-1"):
        assert replayed(tmp_path, node).end == ""


async def test_tape_of_an_acked_receiver_replays_its_application(place: Place, tmp_path: Path) -> None:
    text = text_of(place, flow="acked")
    with trio.fail_after(PATIENCE_S):
        async with (
            pgm.open_receiver(taped("desk-1", tmp_path, text), ack="manual") as receiver,
            trio.open_nursery() as tasks,
        ):

            async def send() -> None:
                async with pgm.open_source(taped("source", tmp_path, text)) as source:
                    await source.joined(1)
                    for number in range(300):
                        await source.send(b"%d" % number)
                    await source.flush()
                    await source.stable()

            tasks.start_soon(send)
            async for item in receiver:
                if isinstance(item, Message):
                    receiver.ack(item)
                if isinstance(item, Closed):
                    break
    for node in ("source", "desk-1"):
        assert replayed(tmp_path, node).end == ""


def test_tapes_of_endpoints_in_asyncio_replay(place: Place, tmp_path: Path) -> None:
    text = text_of(place)

    async def main() -> None:
        async with pgm.open_receiver(taped("desk-1", tmp_path, text)) as receiver:

            async def send() -> None:
                async with pgm.open_source(taped("source", tmp_path, text)) as source:
                    while not receiver.known_sources:  # noqa: ASYNC110 - a property has no event
                        await asyncio.sleep(0.01)
                    for number in range(300):
                        await source.send(b"%d" % number)

            task = asyncio.create_task(send())
            async for item in receiver:
                if isinstance(item, Closed):
                    break
            await task

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    for node in ("source", "desk-1"):
        assert replayed(tmp_path, node).end == ""


def test_tapes_of_busy_poll_endpoints_replay(place: Place, tmp_path: Path) -> None:
    text = text_of(place)
    begun = threading.Event()

    def receive() -> None:
        with pgm.blocking.open_receiver(taped("desk-1", tmp_path, text), busy_poll=True) as receiver:
            begun.set()
            for item in receiver:
                if isinstance(item, Closed):
                    break

    thread = threading.Thread(target=receive)
    thread.start()
    assert begun.wait(PATIENCE_S)
    with pgm.blocking.open_source(taped("source", tmp_path, text), busy_poll=True) as source:
        for number in range(300):
            source.send(b"%d" % number)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    for node in ("source", "desk-1"):
        assert replayed(tmp_path, node).end == ""


async def test_tape_that_cannot_be_written_refuses_the_start(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(TapeError):
        async with pgm.open_source(taped("source", file, text_of(place))):
            pass
