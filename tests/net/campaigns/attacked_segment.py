"""Forgeries on a real segment: a signed tree of real processes in a network namespace, with and without an attack by turns.

    python -m tests.net.campaigns.attacked_segment --turns 3 --rate 2000 20000 --sender own --guard authenticated

A source, a relay, a repairer and two receivers are processes. The attacker is another one, on the segment of the
receivers: an ordinary UDP sender, with an address of its own or with those of all nodes. Receivers compare every message
with the source's. The command prints the packets delivered a second, and the processor time of all nodes, for each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from deploy.node.sample_messages import digest
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.trust.private_keys import PrivateFile, PrivateKeys
from tests.folders import short_folder
from tests.net.support.lab import Host, lab
from tests.net.support.places import Place
from tests.net.support.processes import Processes, count
from tests.unit.trust.keys import private_keys

SIZE = 1400
DESKS = ("desk-1", "desk-2")
NODES = ("relay", "repairer", *DESKS, "source")
KEYS = private_keys(1)
_SENDERS = {"own": (66,), "member": (102,), "forged": (66, 1, 3, 4, 100, 101)}  # hosts whose addresses the attacker has
_MEMBERS = (3, 4, 100, 101)
_PATIENCE_S = 300.0  # on a busy machine
_FRESH = 200  # new forgeries a second: their making takes the attacker longer than their sending
_LEAST_SHARE = 0.8  # of the calm rate
_TICKS = os.sysconf("SC_CLK_TCK")


def text_of(place: Place, folder: Path, rate: str, *, guard: str = "signed") -> str:
    """Return the topology. `guard` is the protection of the stream: plain, signed, or authenticated as well."""
    lines = [f'{node} = ["{keys.public.line}"]' for node, keys in keys_by_node(guard).items()]
    keys_table = "\n".join(["[keys]", *lines] if lines else [])
    return f"""
version = 1
name = "t{place.number}"
key_directory = "{folder}/keys"
parameters = {{ fin_quiet_ivl = "1s" }}
[streams.s]
data_port = 7500
rate = "{rate}"
window = "10s"
signed = {"false" if guard == "plain" else "true"}
authenticated = {"true" if guard == "authenticated" else "false"}
{place.segment("core", 0)}
{place.segment("floor", 1)}
[nodes.source]
role = "source"
segment = "core"
address = "{place.address(1)}"
streams = ["s"]
[nodes.relay]
role = "aggregator"
upstream = {{ segment = "core", address = "{place.address(2)}" }}
downstream = [{{ segment = "floor", address = "{place.address(3)}" }}]
parents = ["source"]
[nodes.repairer]
role = "repairer"
segment = "floor"
address = "{place.address(4)}"
parents = ["relay"]
[nodes."desk-*"]
role = "receiver"
segment = "floor"
count = 3
addresses = "{place.address(100)}-{place.address(102)}"
parents = ["repairer", "relay"]
{keys_table}
"""


def keys_by_node(guard: str) -> dict[str, PrivateKeys]:
    """Return the keys that a protection needs."""
    if guard == "plain":
        return {}
    if guard == "signed":
        return {"source": KEYS}
    others = ("relay", "repairer", "desk-1", "desk-2", "desk-3")
    return {"source": KEYS} | {node: private_keys(10 + number) for number, node in enumerate(others)}


@attrs.frozen
class Turn:
    """One turn, with or without forgeries. Packets are those of both receivers together."""

    seconds: float
    forged: int
    delivered: int
    cpu_s: dict[str, float]  # processor time by node
    attacker_cpu_s: float

    @property
    def rate(self) -> float:
        """Return the delivered packets a second."""
        return self.delivered / self.seconds


@attrs.define
class Segment:
    """The running tree."""

    tree: Processes
    place: Place
    host: Host
    messages: int

    def start(self) -> None:
        """Start all nodes, and the stream."""
        check = ("--generate", "1", "--size", str(SIZE), "--until-closed")
        started = [self.tree.start(node, host=self.host) for node in ("relay", "repairer")]
        started += [self.tree.start(node, *check, host=self.host) for node in DESKS]
        for process in started:
            process.line_with("ready:")
        send = ("--generate", str(self.messages), "--size", str(SIZE), "--hold")
        source = self.tree.start("source", *send, host=self.host, stdin=subprocess.PIPE)
        source.line_with("ready:")
        for node in DESKS:
            self.tree.until(node, lambda snapshot: snapshot["sessions"])
        assert source.process.stdin is not None
        source.process.stdin.write(b"\n")
        source.process.stdin.flush()

    def _delivered(self) -> tuple[float, int]:
        """Return the time, and the packets that both receivers have delivered by then."""
        total = sum(count(self.tree.until(node, lambda _: True), "delivered_packets") for node in DESKS)
        return time.monotonic(), total

    def _cpu(self) -> dict[str, float]:
        return {node: _cpu_of(self.tree.running[node].process.pid) for node in NODES}

    def attacker(self, sender: str, rate: int, for_s: float) -> subprocess.Popen[bytes]:
        """Start an attacker on the receivers' segment, who listens first."""
        place = self.place
        addresses = [place.address(host) for host in _SENDERS[sender]]
        members = [place.address(host) for host in _MEMBERS]
        options = ["--group", place.group(1), "--port", str(place.port), "--source", place.address(3), "--hold"]
        options += [
            "--rate",
            str(rate),
            "--fresh",
            str(_FRESH),
            "--seconds",
            str(for_s),
            "--address",
            *addresses,
            "--members",
            *members,
        ]
        command = [sys.executable, "-m", "tests.attacks.program", *options]
        return self.host.start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def turn(self, for_s: float, attacker: subprocess.Popen[bytes] | None = None) -> Turn:
        """Count for some time, or while the attacker attacks."""
        (begun, before), cpu = self._delivered(), self._cpu()
        said = {"sent": 0, "cpu_s": 0.0}
        if attacker is None:
            time.sleep(for_s)
        else:
            said = json.loads(attacker.communicate(b"\n")[0])
        cpu_after, (ended, after) = self._cpu(), self._delivered()
        used = {node: cpu_after[node] - cpu[node] for node in NODES}
        return Turn(ended - begun, said["sent"], after - before, used, said["cpu_s"])

    def end(self) -> dict[str, int]:
        """Wait for the end. Return the lost messages of each receiver; all others came once, in order and unchanged."""
        expected = digest(self.messages, SIZE, 1)
        lost = {}
        for node in DESKS:
            self.tree.running[node].wait(_PATIENCE_S)
            row = self.tree.running[node].account()
            lost[node] = row["lost"]
            assert row["delivered"] + row["lost"] == self.messages, (node, row)
            assert row["duplicates"] == row["out_of_order"] == row["damaged"] == 0, (node, row)
            assert row["lost"] or row["sha256"] == expected, (node, row)
        return lost


def _cpu_of(pid: int) -> float:
    """Return the processor seconds of a process and of the children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def attacked(rate: str, messages: int, *, guard: str = "signed") -> Iterator[Segment]:
    """Run a tree whose stream has begun."""
    place = Place.new()
    with short_folder() as folder, lab() as hosts:
        host = hosts.host("tree")
        host.run("ip", "route", "add", "224.0.0.0/4", "dev", "lo")
        host.run("ip", "link", "set", "lo", "multicast", "on")
        text = text_of(place, folder, rate, guard=guard)
        name = loads(text).name
        os.environ["PGM_KEY_DIR"] = str(folder / "keys")
        for node, keys in keys_by_node(guard).items():
            write_private_file(place_of(name, node), PrivateFile(name, node, keys))
        tree = Processes(folder, text, f"t{place.number}")
        try:
            segment = Segment(tree, place, host, messages)
            segment.start()
            yield segment
        finally:
            tree.close()


def _row(name: str, turn: Turn) -> str:
    cpu = ", ".join(f"{node} {used:.2f}" for node, used in turn.cpu_s.items())
    forged = f"{turn.forged:,} forgeries, {turn.forged / turn.seconds:,.0f}/s"
    return f"{name}: {turn.seconds:.1f} s, {forged}, {turn.rate:,.0f} delivered/s; CPU s: {cpu}, attacker {turn.attacker_cpu_s:.2f}"


def main() -> int:
    """Run turns with and without the attack, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--rate", type=int, nargs="+", default=[20_000], help="forgeries a second; a turn for each")
    parser.add_argument("--stream", type=int, default=10, help="rate of the stream, Mbit/s")
    parser.add_argument("--sender", choices=_SENDERS, default="own", help="whose addresses the attacker has")
    parser.add_argument("--guard", choices=("plain", "signed", "authenticated"), default="signed", help="of the stream")
    given = parser.parse_args()
    seconds = given.turns * (1 + 2 * len(given.rate)) * given.seconds + 5
    messages = int(seconds * given.stream * 1_000_000 / 8 / (SIZE + 24))
    calm: list[Turn] = []
    by_rate: dict[int, list[Turn]] = {rate: [] for rate in given.rate}
    with attacked(f"{given.stream}Mbit/s", messages, guard=given.guard) as segment:
        time.sleep(1.0)
        for _ in range(given.turns):
            calm.append(segment.turn(given.seconds))
            print(_row("calm", calm[-1]), flush=True)
            for rate, turns in by_rate.items():
                attacker = segment.attacker(given.sender, rate, given.seconds)
                time.sleep(given.seconds / 2)  # it listens
                turns.append(segment.turn(given.seconds, attacker))
                print(_row("attacked", turns[-1]), flush=True)
        for node in NODES:
            counters = segment.tree.until(node, lambda _: True)["counters"]
            print(node, {name: value for name, value in counters.items() if value and _tells_of_attack(name)})
        lost = segment.end()
    shares = []
    for rate, turns in by_rate.items():
        shares.append(statistics.median(one.rate for one in turns) / statistics.median(one.rate for one in calm))
        costs = ", ".join(f"{node} {_cost_us(node, calm, turns):.1f}" for node in NODES)
        forged = sum(one.forged for one in turns)
        attacker_us = 1e6 * sum(one.attacker_cpu_s for one in turns) / max(1, forged)
        real = forged / sum(one.seconds for one in turns)
        per_cpu = _packets_a_cpu_second(turns) / _packets_a_cpu_second(calm)
        print(
            f"{rate:,}/s ({real:,.0f}/s): {shares[-1]:.2f} of the calm rate, {per_cpu:.2f} of the calm packets a CPU second; "
            f"CPU us of a forgery: {costs}, attacker {attacker_us:.1f}"
        )
    print(f"{messages:,} messages, once, in order, unchanged, lost: {lost}")
    return 0 if min(shares) >= _LEAST_SHARE else 1


def _packets_a_cpu_second(turns: list[Turn]) -> float:
    """Return the packets delivered for each second of processor time of all nodes: a figure for a busy machine."""
    return sum(one.delivered for one in turns) / max(1e-9, sum(sum(one.cpu_s.values()) for one in turns))


def _cost_us(node: str, calm: list[Turn], turns: list[Turn]) -> float:
    """Return the processor time, us, of a node for each forgery, beyond that of a calm turn of the same length."""
    calm_share = sum(one.cpu_s[node] for one in calm) / sum(one.seconds for one in calm)
    used = sum(one.cpu_s[node] - calm_share * one.seconds for one in turns)
    return 1e6 * used / max(1, sum(one.forged for one in turns))


def _tells_of_attack(name: str) -> bool:
    return any(part in name for part in ("forged", "unlisted", "refused", "uncoded", "foreign", "braked", "unproved", "unverified", "stale", "lost", "socket", "missing", "jumps", "sessions", "rejects"))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
