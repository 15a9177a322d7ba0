"""`pgm netcheck` of ten namespaces: its time, its verdicts of a sound network, beside a running stream, and of drawn faults.

    python -m tests.net.campaigns.netcheck_ten_hosts --faults 10

A source, two relays, two repairers and five receivers have an agent each; three bridges are the switches. Each fault is made
at a drawn place, found, and mended.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import ProcessError
from pgm.net.control.status_socket import ask_status, status_path
from tests.folders import short_folder
from tests.net.campaigns.fleet_agents import cpu_of
from tests.net.netcheck.fleet_process import FleetProcess, fleet
from tests.net.netcheck.switch import add_bridge, plug
from tests.net.support.lab import Host, lab

NAME = "ten"
# host -> the bridge and the address of each of its interfaces
HOSTS: dict[str, dict[str, str]] = {
    "source": {"core": "10.1.0.1"},
    "relay1": {"core": "10.1.0.2", "floor1": "10.2.1.1"},
    "relay2": {"core": "10.1.0.3", "floor2": "10.2.2.1"},
    "keeper1": {"floor1": "10.2.1.2"},
    "keeper2": {"floor2": "10.2.2.2"},
    **{f"desk{number}": {"floor1": f"10.2.1.{10 + number}"} for number in (1, 2, 3)},
    **{f"desk{number}": {"floor2": f"10.2.2.{10 + number}"} for number in (4, 5)},
}
NETWORKS = {"core": "10.1.0.0/24", "floor1": "10.2.1.0/24", "floor2": "10.2.2.0/24"}
GROUPS = {"core": "239.192.8.1", "floor1": "239.192.8.2", "floor2": "239.192.8.3"}
_RATE = "40Mbit/s"
_PATIENCE_S = 120.0
_MESSAGES = 100_000  # for some 50 s, longer than a netcheck
_KEYS = ("delivered_packets", "missing_sqns", "lost_sqns", "foreign_packets", "rejected_packets")


def tree() -> str:
    """Return the topology file."""
    lines = [f'version = 1\nname = "{NAME}"\n[streams.s]\ndata_port = 7500\nrate = "{_RATE}"\nwindow = "10s"']
    for name, network in NETWORKS.items():
        lines.append(f'[segments.{name}]\ngroup = "{GROUPS[name]}"\ninterface = "{network}"')
    lines.append(
        '[nodes.source]\nrole = "source"\nsegment = "core"\naddress = "10.1.0.1"\nstreams = ["s"]\nparameters = { txw_max_rte = "20Mbit/s" }'
    )
    for host, places in HOSTS.items():
        floor = next(reversed(places))
        if host.startswith("relay"):
            up, down = places["core"], places[floor]
            lines.append(
                f'[nodes.{host}]\nrole = "aggregator"\nparents = ["source"]\n'
                f'upstream = {{ segment = "core", address = "{up}" }}\n'
                f'downstream = [{{ segment = "{floor}", address = "{down}" }}]'
            )
        elif host != "source":
            role = "repairer" if host.startswith("keeper") else "receiver"
            parents = [f"relay{floor[-1]}"]
            keys = f'role = "{role}"\nsegment = "{floor}"\naddress = "{places[floor]}"\nparents = {parents}'
            lines.append(f"[nodes.{host}]\n{keys}".replace("'", '"'))
    agents = ", ".join(f'"{management(number)}"' for number in range(len(HOSTS)))
    lines.append(f"[fleet]\nagents = [{agents}]")
    return "\n".join(lines) + "\n"


def management(number: int) -> str:
    """Return the address of a host on the network of the operator."""
    return f"10.9.0.{number + 1}"


@attrs.frozen
class TenHosts:
    """The hosts with their agents, and the operator's host."""

    operator: Host
    switch: Host
    hosts: dict[str, Host]
    process: FleetProcess

    def netcheck(self, *words: str) -> tuple[dict[str, Any], float]:
        """Return the answer of `pgm netcheck --json`, and its time."""
        began = time.monotonic()
        done = self.process.netcheck(self.operator, "--json", *words)
        took_s = time.monotonic() - began
        assert done.out, done.err
        told: dict[str, Any] = json.loads(done.out)
        assert "error" not in told, told
        return told, took_s

    def names(self) -> dict[str, str]:
        """Return the names of the hosts in findings, which have one host name and differ by the agents' addresses."""
        status = self.process.run(
            self.operator, "status", str(self.process.folder / "tree.toml"), "--fleet", "--json", *self.token
        )
        rows = json.loads(status.out)["hosts"]
        by_address = {row["address"]: row["name"] for row in rows}
        return {name: by_address[management(number)] for number, name in enumerate(HOSTS)}

    @property
    def token(self) -> tuple[str, str]:
        """Return the option for the token."""
        return "--token-file", str(self.process.folder / "token")

    def cpu_s(self) -> float:
        """Return the processor time of all agents."""
        return sum(map(cpu_of, self.process.agents))


@contextmanager
def running() -> Iterator[TenHosts]:
    """Run the agents of the ten hosts."""
    with short_folder() as folder, lab() as made:
        switch, operator = made.host("switch"), made.host("oper")
        hosts = {name: made.host(name) for name in HOSTS}
        for bridge in (*NETWORKS, "manage"):
            add_bridge(switch, bridge)
        plug(switch, "manage", operator, "manage", f"{management(200)}/24")
        for number, (name, places) in enumerate(HOSTS.items()):
            plug(switch, "manage", hosts[name], "manage", f"{management(number)}/24")
            for at, (bridge, address) in enumerate(places.items()):
                plug(switch, bridge, hosts[name], f"eth{at}", f"{address}/24")
            hosts[name].run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
        with fleet(Path(folder), tree(), list(hosts.values())) as process:
            yield TenHosts(operator, switch, hosts, process)


def wrong(told: dict[str, Any]) -> set[str]:
    """Return the findings that are not ok, in short."""
    return {f"{row['check']}: {row['subject']}" for row in told["checks"] if row["level"] != "ok"}


def beside_a_stream(made: TenHosts) -> dict[str, Any]:
    """Run all nodes with a stream, and a netcheck beside it. Return what the receivers took and missed meanwhile."""
    file = str(made.process.folder / "tree.toml")
    for name in reversed(HOSTS):
        more = ["--generate", str(_MESSAGES)] if name == "source" else []
        made.process.start(made.hosts[name], "run", file, "--node", name, *more)
    desks = [name for name in HOSTS if name.startswith("desk")]
    for name in desks:
        made.operator.until(lambda name=name: _counters(made, name).get("delivered_packets"), _PATIENCE_S)
    before = {name: _counters(made, name) for name in desks}
    told, took_s = made.netcheck()
    after = {name: _counters(made, name) for name in desks}
    moved = {key: sum(after[name].get(key, 0) - before[name].get(key, 0) for name in desks) for key in _KEYS}
    return {"took_s": round(took_s, 1), "wrong": sorted(wrong(told)), "segments": told["segments"], "receivers": moved}


def _counters(made: TenHosts, name: str) -> dict[str, int]:
    path = made.process.folder / name / NAME / status_path(NAME, name).name
    try:
        counters: dict[str, int] = ask_status(path)["counters"]
    except ProcessError:
        return {}
    return counters


@attrs.frozen
class DrawnFault:
    """A fault at a drawn place: the commands that make and mend it, and the findings that must name it."""

    kind: str
    host: str  # where the commands run
    make: str
    mend: str
    check: str
    subjects: tuple[str, ...]  # words that each are in the subject of a finding
    beside: tuple[str, ...] = ()  # other checks that the fault fails as well

    def is_named(self, found: set[str]) -> bool:
        """Return whether the findings name the fault, and nothing else."""
        checks = {one.partition(":")[0] for one in found}
        own = [one for one in found if one.startswith(f"{self.check}:")]
        is_told = all(any(subject in one for one in own) for subject in self.subjects)
        return is_told and len(own) == len(self.subjects) and checks <= {self.check, *self.beside}


_RULE = (
    "nft add table inet f; nft add chain inet f c '{{ type filter hook input priority 0; }}'; nft add rule inet f c {}"
)
_MEND = "nft delete table inet f"


def drawn(draw: random.Random, names: dict[str, str]) -> DrawnFault:
    """Return a fault at a place that `draw` chooses. `names` has the name of each host in the findings."""
    segment = draw.choice(list(NETWORKS))
    members = [name for name, places in HOSTS.items() if segment in places]
    sender = next(name for name in members if name == "source" or (name.startswith("relay") and segment != "core"))
    host = draw.choice([name for name in members if name != sender])
    place, group = HOSTS[host], GROUPS[segment]
    interface = f"eth{list(place).index(segment)}"
    way = f"{segment}: {names[sender]} to {names[host]}"
    from_sender = f"ip saddr {HOSTS[sender][segment]} ip daddr {group}"
    kind = draw.choice(("deaf", "loss", "slow", "unicast", "mtu", "leak"))
    if kind == "deaf":
        return DrawnFault(kind, host, _RULE.format(f"{from_sender} drop"), _MEND, "multicast", (way,))
    if kind == "loss":
        rule = f"{from_sender} udp length 108 numgen random mod 10 0 drop"
        return DrawnFault(kind, host, _RULE.format(rule), _MEND, "loss", (way,))
    if kind == "slow":
        rule = f"{from_sender} udp length 1400-65535 limit rate over 100 kbytes/second burst 20 kbytes drop"
        return DrawnFault(kind, host, _RULE.format(rule), _MEND, "bandwidth", (way,))
    if kind == "unicast":
        rule = f"ip daddr {HOSTS[sender][segment]} ip saddr {place[segment]} udp dport 9766 drop"
        return DrawnFault(kind, sender, _RULE.format(rule), _MEND, "unicast", (way,))
    if kind == "mtu":
        make, mend = (f"ip link set {interface} mtu {octets}" for octets in (1300, 1500))
        others = [name for name in members if name != host]
        ways = [f"{segment}: {names[one]} to {names[host]}" for one in others]
        backs = [f"{segment}: {names[host]} to {names[one]}" for one in others]
        return DrawnFault(kind, host, make, mend, "path MTU", (*ways, *backs), ("MTU",))
    other = draw.choice([name for name in NETWORKS if name != segment])
    make = f"ip link add cable0 type veth peer name cable1; ip link set cable0 master {segment} up; ip link set cable1 master {other} up"
    pairs = [(segment, other), (other, segment)]
    told = tuple(
        f"{heard}: {names[name]} by eth{list(HOSTS[name]).index(at)}"
        for heard, at in pairs
        for name in HOSTS
        if at in HOSTS[name]
    )
    return DrawnFault(kind, "", make, "ip link delete cable0", "containment", told)


def with_faults(made: TenHosts, count: int, seed: int) -> list[dict[str, Any]]:
    """Make faults one after the other. Return whether each was named alone."""
    draw = random.Random(seed)
    names = made.names()
    rows = []
    for _ in range(count):
        fault = drawn(draw, names)
        host = made.hosts[fault.host] if fault.host else made.switch
        host.run("sh", "-c", fault.make)
        told, took_s = made.netcheck()
        host.run("sh", "-c", fault.mend)
        found = wrong(told)
        row = {"kind": fault.kind, "host": fault.host, "is_named": fault.is_named(found), "took_s": round(took_s, 1)}
        rows.append(row if row["is_named"] else {**row, "wanted": fault.subjects, "found": sorted(found)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def campaign(faults: int, seed: int) -> dict[str, Any]:
    """Return what a campaign has measured."""
    with running() as made:
        before_s = made.cpu_s()
        told, took_s = made.netcheck()
        sound = {"took_s": round(took_s, 1), "hosts": len(told["hosts"]), "wrong": sorted(wrong(told))}
        sound["cpu_s_an_agent"] = round((made.cpu_s() - before_s) / len(HOSTS), 2)
        print(json.dumps({"sound": sound}), flush=True)
        rows = with_faults(made, faults, seed)
        stream = beside_a_stream(made)
    named = sum(row["is_named"] for row in rows)
    return {
        "sound": sound,
        "faults": len(rows),
        "named": named,
        "slowest_s": max((row["took_s"] for row in rows), default=0),
        "stream": stream,
    }


def run() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(campaign(options.faults, options.seed)))


if __name__ == "__main__":
    run()
