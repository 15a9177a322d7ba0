"""Ten hosts on one machine, two routers, one switch and the host of an operator.

    source   relay-a   relay-b   hall-1                core     10.60.1.0/24, a bridge
               |          |
               |          +- keeper-b  desk-3  desk-4  floor-b  10.60.3.0/24, a bridge
               |          +- router-2 - far-1          leg      10.60.4.0/24, by unicast through the router
               +- keeper-a  desk-1  desk-2             floor-a  10.60.2.0/24, a bridge

Router 1 joins the core and floor-a, and router 2 floor-b, far-1 and the operator. The switch carries the three bridges, and
loses what the campaign wants. Every host has a name, a user's runtime folder, an agent with TLS and a token, and one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import ProcessError
from pgm.net.control.status_socket import ask_status
from tests.cli.monitor.certificates import certificate
from tests.folders import short_folder
from tests.net.campaigns.ten_hosts.forks import Command, Forks
from tests.net.support.lab import Host, Lab, lab

TREE = "ten"
PORT = 3057
AGENT_PORT = 9765
TOKEN = "a-token-of-many-characters"
NET = "10.60"
LANS = {"core": 1, "floor-a": 2, "floor-b": 3}
_LETTERS = {"core": "c", "floor-a": "a", "floor-b": "b"}
# host -> number on each LAN
PLACES: Mapping[str, Mapping[str, int]] = {
    "source": {"core": 1},
    "relay-a": {"core": 2, "floor-a": 1},
    "relay-b": {"core": 3, "floor-b": 1},
    "hall-1": {"core": 5},
    "keeper-a": {"floor-a": 2},
    "desk-1": {"floor-a": 11},
    "desk-2": {"floor-a": 12},
    "keeper-b": {"floor-b": 2},
    "desk-3": {"floor-b": 13},
    "desk-4": {"floor-b": 14},
}
FAR = f"{NET}.4.5"
LEG_END = f"{NET}.3.101"  # address of relay-b for the leg
NODES = (*PLACES, "far-1")
_GATE = 254  # number of the router on each LAN


def address(host: str, lan: str) -> str:
    """Return the address of a host on a LAN."""
    return f"{NET}.{LANS[lan]}.{PLACES[host][lan]}"


def port_of(host: str, lan: str) -> str:
    """Return the interface of the switch that leads to a host."""
    return f"{_LETTERS[lan]}-{host}"


def file_text(own: Mapping[str, str] | None = None) -> str:
    """Return the topology file. `own` has further parameters of nodes, by name."""
    own = own or {}
    common = 'so_rcvbuf = "64KiB", fin_quiet_ivl = "300ms", nak_rpt_ivl = "50ms"'

    def parameters(name: str) -> str:
        return f"parameters = {{ {own[name]} }}\n" if name in own else ""

    def receiver(name: str, lan: str, parents: str) -> str:
        head = f'[nodes.{name}]\nrole = "receiver"\nsegment = "{lan}"\naddress = "{address(name, lan)}"\n'
        return f"{head}parents = [{parents}]\n{parameters(name)}"

    lines = [
        f'version = 1\nname = "{TREE}"\nparameters = {{ {common} }}',
        '[streams.s]\ndata_port = 7500\nrate = "700kbit/s"\nwindow = "4s"',
        f"[fleet]\nport = {AGENT_PORT}",
    ]
    for lan, number in LANS.items():
        lines.append(
            f'[segments.{lan}]\ngroup = "239.192.60.{number}"\nport = {PORT}\ninterface = "{NET}.{number}.0/24"'
        )
    lines += [
        f"[segments.leg]\nunicast = true\nport = {PORT}",
        f'[nodes.source]\nrole = "source"\nsegment = "core"\naddress = "{address("source", "core")}"\nstreams = ["s"]',
        parameters("source"),
        f'[nodes.relay-a]\nrole = "aggregator"\nupstream = {{ segment = "core", address = "{address("relay-a", "core")}" }}',
        f'downstream = [{{ segment = "floor-a", address = "{address("relay-a", "floor-a")}" }}]',
        f'parents = ["source"]\nrepairers = ["keeper-a"]\n{parameters("relay-a")}',
        f'[nodes.relay-b]\nrole = "aggregator"\nupstream = {{ segment = "core", address = "{address("relay-b", "core")}" }}',
        f'downstream = [{{ segment = "floor-b", address = "{address("relay-b", "floor-b")}" }}, '
        f'{{ segment = "leg", address = "{LEG_END}" }}]',
        f'parents = ["source"]\nrepairers = ["keeper-b"]\n{parameters("relay-b")}',
        f'[nodes.keeper-a]\nrole = "repairer"\nsegment = "floor-a"\naddress = "{address("keeper-a", "floor-a")}"',
        f'parents = ["relay-a"]\n{parameters("keeper-a")}',
        f'[nodes.keeper-b]\nrole = "repairer"\nsegment = "floor-b"\naddress = "{address("keeper-b", "floor-b")}"',
        f'parents = ["relay-b"]\n{parameters("keeper-b")}',
        receiver("hall-1", "core", '"source"'),
        *(receiver(name, "floor-a", '"keeper-a", "relay-a"') for name in ("desk-1", "desk-2")),
        *(receiver(name, "floor-b", '"keeper-b", "relay-b"') for name in ("desk-3", "desk-4")),
        f'[nodes.far-1]\nrole = "receiver"\nsegment = "leg"\naddress = "{FAR}"\nparents = ["relay-b"]',
        parameters("far-1"),
    ]
    return "\n".join(lines) + "\n"


@attrs.define
class Hosts:
    """Running hosts. `tree.toml` in `folder` is the file of all; `runtime` of a host is its own folder."""

    folder: Path
    hosts: dict[str, Host]
    switch: Host
    routers: dict[str, Host]
    operator: Host
    file: Path
    forks: Forks
    nodes: dict[str, Command] = attrs.field(factory=dict)
    agents: dict[str, Command] = attrs.field(factory=dict)

    def runtime(self, host: str) -> Path:
        """Return the runtime folder of a host."""
        return self.folder / host

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of a command of an operator on a host."""
        return {
            "PGM_RUNTIME_DIR": str(self.runtime(host)),
            "PGM_TOKEN_FILE": str(self.folder / "token"),
            "PGM_CA_FILE": str(self.folder / "agent.pem"),
            "COLUMNS": "160",
        }

    def start_node(self, name: str, *options: str, file: Path | None = None, module: str = "") -> Command:
        """Start the node of a host, without waiting for it."""
        words = [str(file or self.file), name] if module else ["run", str(file or self.file), "--node", name, *options]
        self.nodes[name] = self.forks.start(self.hosts[name], words, self.environment(name), module)
        return self.nodes[name]

    def start_agent(self, host: str) -> Command:
        """Start the agent of a host, without waiting for it."""
        files = ["--tls-cert", str(self.folder / "agent.pem"), "--tls-key", str(self.folder / "agent-key.pem")]
        words = ["agent", str(self.file), "--bind", "0.0.0.0", "--token-file", str(self.folder / "token"), *files]
        self.agents[host] = self.forks.start(self.hosts[host], [*words, "--json"], self.environment(host))
        return self.agents[host]

    def begin(self, *words: str) -> Command:
        """Start a command of pgm on the operator's host, without waiting for it."""
        return self.forks.start(self.operator, words, self.environment("operator"))

    def operate(self, *words: str) -> Command:
        """Run a command of pgm on the operator's host to its end."""
        command = self.begin(*words)
        command.wait()
        return command

    def status(self, node: str) -> dict[str, Any]:
        """Return a node's snapshot. Raises `ProcessError`."""
        return ask_status(self.runtime(node) / TREE / f"{node}.sock")

    def sessions(self, node: str) -> list[dict[str, Any]]:
        """Return the sessions of a node; none if it does not answer."""
        try:
            found: list[dict[str, Any]] = self.status(node)["sessions"]
        except ProcessError:
            return []
        return found

    def lead(self) -> int:
        """Return the newest sqn of the source."""
        [session] = self.status("source")["sessions"]
        return int(session["lead"])


def _cable(switch: Host, host: Host, lan: str, address_of_host: str) -> None:
    port = port_of(host.name, lan)
    switch.run("ip", "link", "add", port, "type", "veth", "peer", "name", lan, "netns", str(host.holder.pid))
    switch.run("sh", "-c", f"ip link set {port} master {lan} && ip link set {port} up")
    # packets leave one by one: a rule judges each of them, and not a whole train
    lines = [
        f"ip address add {address_of_host}/24 dev {lan}",
        f"ip link set {lan} up",
        f"ethtool -K {lan} tx-udp-segmentation off gso off >/dev/null",
        f"ip route add 224.0.0.0/4 dev {lan} metric {LANS[lan]}",
        f"sysctl -qw net.ipv4.conf.{lan}.rp_filter=0 net.ipv4.conf.all.rp_filter=0",
    ]
    host.run("sh", "-c", "set -e; " + "; ".join(lines))


def _route(made: Lab, hosts: dict[str, Host]) -> tuple[dict[str, Host], Host]:
    """Make the routers and the operator, and give each host a way to all networks."""
    routers = {name: made.host(name) for name in ("router-1", "router-2")}
    operator = made.host("operator")
    made.join(routers["router-1"], f"{NET}.8.1/24", routers["router-2"], f"{NET}.8.2/24")
    made.join(routers["router-2"], f"{NET}.4.254/24", hosts["far-1"], f"{FAR}/24")
    made.join(routers["router-2"], f"{NET}.9.254/24", operator, f"{NET}.9.2/24")
    for router in routers.values():
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    operator.run("ip", "route", "add", "default", "via", f"{NET}.9.254")
    hosts["far-1"].run("ip", "route", "add", "default", "via", f"{NET}.4.254")
    return routers, operator


@contextmanager
def hosts_of_ten() -> Iterator[Hosts]:
    """Make all hosts for the length of a block, without nodes and agents."""
    with short_folder() as folder, lab() as made:
        switch = made.host("switch")
        switch.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        for lan in LANS:
            switch.run("sh", "-c", f"ip link add {lan} type bridge mcast_snooping 0 && ip link set {lan} up")
        hosts: dict[str, Host] = {name: made.host(name) for name in NODES}
        for name, places in PLACES.items():
            for lan in places:
                _cable(switch, hosts[name], lan, address(name, lan))
        hosts["relay-b"].run("ip", "address", "add", f"{LEG_END}/24", "dev", "floor-b")
        routers, operator = _route(made, hosts)
        for lan, router in (("core", "router-1"), ("floor-a", "router-1"), ("floor-b", "router-2")):
            _cable(switch, routers[router], lan, f"{NET}.{LANS[lan]}.{_GATE}")
        routers["router-1"].run("ip", "route", "add", f"{NET}.0.0/16", "via", f"{NET}.8.2")
        routers["router-2"].run("ip", "route", "add", f"{NET}.0.0/16", "via", f"{NET}.8.1")
        for name, places in PLACES.items():
            lan = list(places)[-1]
            hosts[name].run("ip", "route", "add", "default", "via", f"{NET}.{LANS[lan]}.{_GATE}")
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        every = [address(name, lan) for name, places in PLACES.items() for lan in places]
        certificate(folder, *every, FAR, LEG_END)
        file = folder / "tree.toml"
        file.write_text(file_text())
        for name in (*NODES, "operator"):
            (folder / name).mkdir(mode=0o700)
        forks = Forks(folder)
        try:
            yield Hosts(folder, hosts, switch, routers, operator, file, forks)
        finally:
            forks.close()


def start_tree(ten: Hosts) -> None:
    """Start all nodes and agents, and wait until every receiver has data."""
    receivers = [name for name in NODES if name != "source"]
    for name in receivers:
        ten.start_node(name)
    for host in NODES:
        ten.start_agent(host)
    for name in receivers:
        ten.nodes[name].line_with("ready:")
    ten.start_node("source", "--generate", "100000000", "--size", "500").line_with("ready:")
    for host in NODES:
        ten.agents[host].line_with("ready")
    for name in receivers:
        ten.nodes[name].until(partial(ten.sessions, name))
