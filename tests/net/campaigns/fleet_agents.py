"""Many agents on one machine, asked by one fleet view: the time of a refresh, and the processor time of an agent.

    python -m tests.net.campaigns.fleet_agents --hosts 100 --nodes 10 --seconds 60

Each host is an address of one namespace, with `pgm agent` with TLS and a token. The agents are forks of this process, which
saves the time of a hundred starts, and each takes one address for its own. One process answers at the status sockets of
all nodes with the snapshot of a real receiver, because a thousand real nodes do not fit into one machine.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import cbor2
import trio

from deploy.cli import main
from deploy.monitor import agent, agent_service  # loaded before the forks
from deploy.terminal.tls_files import trusted_by
from pgm.fleet import nodes as node_table
from pgm.fleet.fingerprint import fingerprint_of
from pgm.fleet.watch import FleetWatch
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all
from tests.cli.monitor.certificates import certificate
from tests.folders import short_folder
from tests.net.support.lab import ROOT, Host, lab
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import processes

TOKEN = "a-token-of-many-characters"
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 300.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: no agent outlives the campaign


def address(host: int, end: int = 1) -> str:
    """Return an address on the link between a host and the operator."""
    return f"10.77.{host}.{end}"


def text_of(hosts: int, nodes: int) -> str:
    """Return a topology file with receivers on each host."""
    lines = [
        'version = 1\nname = "fleet"\n[streams.s]\ndata_port = 7500\nrate = "8Mbit/s"',
        '[segments.lan]\ngroup = "239.192.9.1"\ninterface = "10.77.0.0/16"',
        '[nodes.source]\nrole = "source"\nsegment = "lan"\naddress = "10.77.1.254"\nstreams = ["s"]',
    ]
    for host in range(1, hosts + 1):
        for node in range(1, nodes + 1):
            keys = f'role = "receiver"\nsegment = "lan"\naddress = "{address(host)}"\nparents = ["source"]'
            lines.append(f"[nodes.h{host}-{node}]\n{keys}")
    return "\n".join(lines)


def real_snapshot() -> dict[str, Any]:
    """Return the snapshot of a receiver that has received messages with losses."""
    place = Place.new()
    with processes(one_segment(place, loss='{ loss = "5%" }'), f"t{place.number}") as tree:
        tree.start("desk-1").line_with("ready:")
        tree.start("source", "--generate", "2000")
        return tree.until("desk-1", lambda snapshot: snapshot["rates"].get("delivered_packets"))


async def answer_for_nodes(folder: Path, hosts: int, nodes: int) -> None:
    """Answer at the status sockets of all nodes of all hosts, until cancelled."""
    snapshot = json.loads((folder / "snapshot.json").read_text())
    async with trio.open_nursery() as nursery:
        for host in range(1, hosts + 1):
            for node in range(1, nodes + 1):
                name = f"h{host}-{node}"
                octets = cbor2.dumps({**snapshot, "topology": "fleet", "node": name})
                path = folder / str(host) / "fleet" / f"{name}.sock"
                sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
                await sock.bind(str(path))
                sock.listen(16)
                nursery.start_soon(_serve, trio.SocketListener(sock), octets)
        (folder / "ready").touch()


async def _serve(listener: trio.SocketListener, octets: bytes) -> None:
    while True:
        async with await listener.accept() as stream:
            with contextlib.suppress(trio.BrokenResourceError):  # an agent that waited for too long has gone
                await stream.send_all(octets)


def refresh(folder: Path, seconds: float) -> dict[str, Any]:
    """Refresh the fleet view every two seconds. Return the times, and the nodes that were seen."""
    fleet = FleetWatch(folder / "tree.toml", "", TOKEN, trusted_by(folder / "agent.pem"))
    fleet.client = attrs.evolve(fleet.client, timeout_s=20.0)  # on a busy machine
    fleet.look()  # the agents' first answers make their fingerprints
    until, took, cpu = time.monotonic() + seconds, [], time.process_time()
    up = hosts = 0
    while (began := time.monotonic()) < until:
        view = fleet.look()
        took.append(view.took_s)
        up, hosts = len(view.snapshots), sum(not host.problem for host in view.hosts)
        time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))
    octets = len(json.dumps(view.row()))
    return {"up": up, "hosts": hosts, "octets": octets, "took_s": took, "cpu_s": time.process_time() - cpu}


def cpu_of(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


@attrs.frozen
class Campaign:
    """Agents that run, and the host from which they are asked."""

    folder: Path
    operator: Host
    agents: list[int]  # process ids


@contextmanager
def running(hosts: int, nodes: int) -> Iterator[Campaign]:
    """Run the agents of all hosts, beside one process for their nodes."""
    with short_folder() as folder, lab() as made:
        (folder / "tree.toml").write_text(text_of(hosts, nodes))
        (folder / "snapshot.json").write_text(json.dumps(real_snapshot()))
        certificate(folder, *(address(host) for host in range(1, hosts + 1)))
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        operator = made.host("operator")
        for number in range(1, hosts + 1):
            (folder / str(number) / "fleet").mkdir(parents=True)
        adding = f"for n in $(seq {hosts}); do ip address add 10.77.$n.1/32 dev lo; done"
        operator.run("sh", "-c", adding)
        words = [sys.executable, "-m", __spec__.name, "--serve", str(folder), "--hosts", str(hosts)]
        nodes_process = subprocess.Popen([*words, "--nodes", str(nodes)], cwd=ROOT)
        agents: list[int] = []
        _read_once(folder / "tree.toml")
        try:
            for number in range(1, hosts + 1):
                agents.append(_agent(folder, operator, number))
            deadline = time.monotonic() + _PATIENCE_S
            while not all((folder / str(number) / "out").stat().st_size for number in range(1, hosts + 1)):
                assert time.monotonic() < deadline, "an agent has ended"
                time.sleep(0.2)
            yield Campaign(folder, operator, agents)
        finally:
            nodes_process.kill()
            nodes_process.wait()
            for pid in agents:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _read_once(file: Path) -> None:
    """Give all forks what each would read and plan for seconds at its start."""
    topology, fingerprint = load_checked(file), fingerprint_of(file)
    plans = plan_all(topology)
    for module in (node_table, agent):
        module.load_checked = lambda _: topology  # type: ignore[attr-defined]
    node_table.plan_all = lambda _: plans  # type: ignore[attr-defined]
    agent_service.fingerprint_of = lambda _: fingerprint  # type: ignore[attr-defined]


def _agent(folder: Path, host: Host, number: int) -> int:
    """Run `pgm agent` on a host in a fork of this process, whose modules are loaded. Return its process id."""
    (folder / str(number) / "out").touch()
    pid = os.fork()
    if pid:
        return pid
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
        for kind in ("user", "net"):
            space = os.open(f"/proc/{host.holder.pid}/ns/{kind}", os.O_RDONLY)
            assert libc.setns(space, 0) == 0, os.strerror(ctypes.get_errno())
        os.dup2(os.open(folder / str(number) / "out", os.O_WRONLY), 1)
        os.environ["PGM_RUNTIME_DIR"] = str(folder / str(number))
        node_table.is_own_address = lambda one: one == address(number)  # type: ignore[assignment]
        access = ("--token-file", "token", "--tls-cert", "agent.pem", "--tls-key", "agent-key.pem")
        words = [word if word.startswith("--") else str(folder / word) for word in access]
        main(["agent", str(folder / "tree.toml"), "--bind", address(number), *words, "--json"], standalone_mode=False)
    finally:
        os._exit(1)


def campaign(hosts: int, nodes: int, seconds: float) -> dict[str, Any]:
    """Return what a campaign has measured."""
    with running(hosts, nodes) as made:
        before = [cpu_of(agent) for agent in made.agents]
        began = time.monotonic()
        words = [sys.executable, "-m", __spec__.name, "--ask", str(made.folder), "--seconds", str(seconds)]
        asked = made.operator.start(*words, stdout=subprocess.PIPE)
        octets, _ = asked.communicate(timeout=seconds + _PATIENCE_S)
        lasted = time.monotonic() - began
        shares = [(cpu_of(agent) - was) / lasted for agent, was in zip(made.agents, before, strict=True)]
        told: dict[str, Any] = json.loads(octets)
    took = sorted(told.pop("took_s"))
    return {
        **told,
        "refreshes": len(took),
        "median_s": round(took[len(took) // 2], 3),
        "slowest_s": round(took[-1], 3),
        "agent_core_share_mean": round(sum(shares) / len(shares), 5),
        "agent_core_share_most": round(max(shares), 5),
        "operator_core_share": round(told["cpu_s"] / lasted, 3),
    }


def run() -> None:
    """Run the campaign, or one of its parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--serve", type=Path)
    parser.add_argument("--ask", type=Path)
    options = parser.parse_args()
    if options.serve is not None:
        trio.run(answer_for_nodes, options.serve, options.hosts, options.nodes)
    elif options.ask is not None:
        print(json.dumps(refresh(options.ask, options.seconds)))
    else:
        print(json.dumps(campaign(options.hosts, options.nodes, options.seconds)))


if __name__ == "__main__":
    run()
