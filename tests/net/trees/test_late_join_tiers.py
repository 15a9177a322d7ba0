"""Late joiners whose segment has only an aggregator.

History comes from the repairer above it, and the source gets no NAK for it.

    source ── core ── upper (repairer) ── floor ── lower (aggregator) ── subnet ── desk-1, desk-2
"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from tests.net.support.lab import lab, needs_namespaces
from tests.net.support.places import BRISK
from tests.net.support.processes import Process, count, processes

COUNT, MORE = 1500, 50
TREE = f"""
version = 1
name = "tiers"
parameters = {{ {BRISK}, join_ivl = "0ns" }}
[streams.s]
data_port = 7500
rate = "80Mbit/s"
window = "200ms"
[segments]
core = {{ group = "239.192.61.1", interface = "10.61.1.0/24" }}
floor = {{ group = "239.192.61.2", interface = "10.61.2.0/24" }}
subnet = {{ group = "239.192.61.3", interface = "10.61.3.0/24" }}
[nodes.source]
role = "source"
segment = "core"
address = "10.61.1.1"
streams = ["s"]
[nodes.upper]
role = "repairer"
upstream = {{ segment = "core", address = "10.61.1.2" }}
downstream = [{{ segment = "floor", address = "10.61.2.1" }}]
parents = ["source"]
[nodes.lower]
role = "aggregator"
upstream = {{ segment = "floor", address = "10.61.2.2" }}
parameters = {{ relay_cache_ivl = "0s" }}  # all history comes from above
downstream = [{{ segment = "subnet", address = "10.61.3.1" }}]
parents = ["upper"]
[nodes."desk-*"]
role = "receiver"
segment = "subnet"
count = 2
addresses = "10.61.3.2-10.61.3.3"
parents = ["lower"]
"""


def lines(first: int, end: int) -> bytes:
    return b"".join(b"%06d %s\n" % (number, b"." * 900) for number in range(first, end))


@needs_namespaces
def test_late_join_two_joiners_cost_one_copy_and_no_source() -> None:
    with lab() as made, processes(TREE, "tiers") as tree:
        hosts = {name: made.host(name) for name in ("source", "upper", "lower", "desks")}
        made.join(hosts["source"], "10.61.1.1/24", hosts["upper"], "10.61.1.2/24")
        made.join(hosts["upper"], "10.61.2.1/24", hosts["lower"], "10.61.2.2/24")
        made.join(hosts["lower"], "10.61.3.1/24", hosts["desks"], "10.61.3.2/24")
        hosts["desks"].add_address("vlower", "10.61.3.3/24")
        upper, lower = (tree.start(node, host=hosts[node]) for node in ("upper", "lower"))
        for element in (upper, lower):
            element.line_with("ready:")
        source = tree.start("source", "--lines", host=hosts["source"], verb="send", stdin=subprocess.PIPE)
        stdin = source.process.stdin
        assert stdin is not None
        stdin.write(lines(0, COUNT))
        stdin.flush()
        tree.until("upper", lambda snapshot: count(snapshot, "received_packets") == COUNT)
        tree.until("lower", lambda snapshot: snapshot["sessions"] and snapshot["sessions"][0]["trail"] > COUNT // 2)
        lower.process.send_signal(
            signal.SIGSTOP
        )  # until both are there: however long starting takes, they join at once
        late = [
            tree.start(node, "--lines", "--from", start, host=hosts["desks"], verb="recv")
            for node, start in (("desk-1", "oldest"), ("desk-2", "last:1000"))
        ]
        hosts["desks"].until(lambda: listening(late[0].process.pid) >= len(late))
        lower.process.send_signal(signal.SIGCONT)
        for process in late:
            process.line_with("late-join: session")
        stdin.write(lines(COUNT, COUNT + MORE))
        stdin.close()
        sent = source.account()
        whole, part = (got(process) for process in late)
        counted = {node: tree.status(node)["counters"] for node in ("upper", "lower")}
    expected = lines(0, COUNT + MORE).decode().splitlines()
    assert whole == expected
    assert part == expected[-len(part) :]
    assert len(part) == 1000 + MORE
    assert sent["counters"].get("nak_packets_in", 0) == 0
    # A copy for each would be COUNT + 1000. Between busy processes some of one copy is lost or late, and asked for again.
    assert COUNT <= counted["upper"].get("rdata_packets", 0) < COUNT + 1000 / 2, counted


def listening(process: int) -> int:
    """Count the sockets bound to the group of the subnet in the network namespace of a process."""
    group = bytes((239, 192, 61, 3))[::-1].hex().upper()
    return Path(f"/proc/{process}/net/udp").read_text().count(f" {group}:")


def got(process: Process) -> list[str]:
    """Return a receiver's output, once it has ended."""
    assert process.wait() == 0, process.log
    assert json.loads(process.lines[-1][1])["lost"] == 0
    return process.printed
