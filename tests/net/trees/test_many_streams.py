"""Many streams of a node in processes of their own: `pgm run`, and members that send and receive on one address."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deploy.node.sample_messages import digest
from tests.net.endpoint.test_nodes import mesh
from tests.net.support.child import Child
from tests.net.support.lab import ROOT
from tests.net.support.places import LOSSY, Place
from tests.net.support.processes import processes

MESSAGES = 400
# Each member sends in its own stream, and receives what all members send there, itself included.
MEMBER = """
import json, sys
import trio
import pgm

async def main(file, node, messages, members):
    got, lost, may_end = {}, 0, trio.Event()

    async def take(receiver):
        nonlocal lost
        async for item in receiver:
            if isinstance(item, pgm.Message):
                got.setdefault(item.tsi.hex(), []).append(item.payload.decode())
            lost += isinstance(item, pgm.Lost)
            if len(got) == members and all(len(one) == messages for one in got.values()):
                may_end.set()

    async with pgm.open_node(file, node=node) as here, trio.open_nursery() as nursery:
        async with here.receiver("s0") as receiver:
            nursery.start_soon(take, receiver)
            async with here.source("s0") as source:
                while receiver.known_sources < members:
                    await trio.sleep(0.01)
                for number in range(messages):
                    await source.send(f"{node} {number}".encode())
                with trio.fail_after(50):
                    await may_end.wait()
            nursery.cancel_scope.cancel()
            print(json.dumps({"got": sorted(got.values()), "lost": lost, **receiver.counters.snapshot()}))

file, node, messages, members = sys.argv[1:]
trio.run(main, file, node, int(messages), int(members))
"""


def lossy_wan(place: Place) -> str:
    """Return the example of two streams from one source, on loopback."""
    text = (ROOT / "deploy/topologies/lossy-wan.toml").read_text()
    for number in range(3):
        text = text.replace(f'interface = "10.3.{number}.0/24"', f'interface = "lo"\nport = {place.port}')
        text = text.replace(f"239.192.30.{number + 1}", place.group(number))
        text = text.replace(f"10.3.{number}.", f"{place.net}.{number + 1}")  # 10.3.1.1 is .21
    text = text.replace('name = "lossy-wan"', f'name = "t{place.number}"\nparameters = {{ {LOSSY} }}')
    for count, host in ((12, 100), (8, 120)):
        text = text.replace(f"count = {count}\n", f'addresses = "{place.address(host)}-{place.address(host)}"\n')
    return text


def test_run_sends_all_streams_of_lossy_wan(place: Place) -> None:
    text, name = lossy_wan(place), f"t{place.number}"
    elements, receivers = ("lisbon-repairer", "oslo-repairer"), ("lisbon-1", "oslo-1")
    with processes(text, name) as tree:
        tree.start_all(elements)
        works = tree.start_all(receivers, "--generate", str(MESSAGES))
        source = tree.start("desk", "--generate", str(MESSAGES), "--hold", stdin=subprocess.PIPE)
        source.line_with("ready:")
        assert [row["stream"] for row in tree.status("desk")["sessions"]] == ["prices", "news"]
        for receiver, streams in zip(receivers, (2, 1), strict=True):
            tree.until(receiver, lambda snapshot, streams=streams: len(snapshot["sessions"]) == streams)  # type: ignore[misc]
        assert source.process.stdin is not None
        source.process.stdin.write(b"\n")
        source.process.stdin.flush()
        for receiver, streams in zip(receivers, (2, 1), strict=True):
            tree.until(
                receiver,
                lambda snapshot, streams=streams: snapshot["counters"].get("delivered_packets") == streams * MESSAGES,  # type: ignore[misc]
            )
        assert source.account()["counters"]["odata_packets"] == 2 * MESSAGES
        for work, streams in zip(works, (2, 1), strict=True):
            work.process.terminate()
            row = work.account()
            assert (row["delivered"], row["lost"]) == (streams * MESSAGES, 0)
            assert (row["duplicates"], row["out_of_order"], row["damaged"]) == (0, 0, 0)
            assert row["sha256"] == digest(MESSAGES, 1400, 1)


class Member(Child):
    """Process of one member."""

    def __init__(self, file: Path, node: str, members: int) -> None:
        self.name = node
        self._readers = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(file), node, str(MESSAGES), str(members)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )

    @property
    def log(self) -> str:
        """Return nothing: the output is one line at the end."""
        return ""


def test_members_hear_all_members_and_themselves(place: Place, tmp_path: Path) -> None:
    file, names = tmp_path / "mesh.toml", ["member-1", "member-2", "member-3"]
    file.write_text(mesh(place, members=3, parameters=LOSSY, loss='loss = { loss = "3%" }'))
    members = [Member(file, name, len(names)) for name in names]
    try:
        for member in members:
            output, _ = member.process.communicate(timeout=member.PATIENCE_S)
            row = json.loads(output.decode().splitlines()[-1])
            assert row["got"] == [[f"{name} {number}" for number in range(MESSAGES)] for name in names]
            assert row["lost"] == 0
            assert row["repaired_sqns"] > 0
    finally:
        for member in members:
            member.close()
