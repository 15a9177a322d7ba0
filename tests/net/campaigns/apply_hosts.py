"""A change of the topology file on three hosts: one that all take, and one that fails in the middle on one host.

python -m tests.net.campaigns.apply_hosts

Each host is a namespace with a file, a runtime folder, a `pgm up --here` and a `pgm agent --apply` of its own. A stream
flows all the time, with losses. The receivers that were there from the beginning lose nothing.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs

from deploy.node.run import FAULTS
from pgm.net.control.status_socket import ask_status
from pgm.topology.load import loads
from tests.net.netcheck.switch import add_bridge, plug
from tests.net.support.lab import Host, lab
from tests.net.support.processes import Process, count

_FILE = """\
version = 1
name = "three"
repair_budget = "20s"
parameters = { fin_quiet_ivl = "1s" }

[streams.s]
data_port = 7500
rate = "8Mbit/s"
window = "10s"

[segments.lan]
group = "239.192.9.1"
interface = "10.3.0.0/24"
loss = { loss = "1%" }

[nodes.source]
role = "source"
segment = "lan"
address = "10.3.0.1"
streams = ["s"]

[nodes.first]
role = "repairer"
segment = "lan"
address = "10.3.0.2"
parents = ["source"]
cache = { bytes = "256MiB", seconds = 20 }

[nodes.desk-1]
role = "receiver"
segment = "lan"
address = "10.3.0.3"
parents = ["first", "source"]
"""
_SECOND = """
[nodes.second]
role = "repairer"
segment = "lan"
address = "10.3.0.13"
parents = ["source"]
cache = { bytes = "256MiB", seconds = 20 }
"""
_LATE = """
[nodes.desk-9]
role = "receiver"
segment = "lan"
address = "10.3.0.12"
parents = ["second", "source"]
"""
_HOSTS = {"one": ["10.3.0.1"], "two": ["10.3.0.2", "10.3.0.12"], "three": ["10.3.0.3", "10.3.0.13"]}
_TOKEN = "a-token-of-many-characters"


@attrs.define
class PlaceOfHost:
    """One host: its namespace, its folder, and its `pgm up`."""

    host: Host
    folder: Path
    up: Process

    @property
    def file(self) -> Path:
        """The file that its nodes run."""
        return self.folder / "tree.toml"

    def nodes(self) -> dict[str, str]:
        """Return the nodes that answer, with the digests of their files."""
        return {path.stem: ask_status(path)["file"] for path in sorted((self.folder / "three").glob("*.sock"))}


def started(host: Host, folder: Path, name: str, *words: str) -> Process:
    """Start a command on a host, with a runtime folder of the host's own."""
    return Process(name, list(words), host, env={"PGM_RUNTIME_DIR": str(folder)})


@contextmanager
def running() -> Iterator[dict[str, PlaceOfHost]]:
    """Run the tree on three hosts, each with an agent."""
    with ExitStack() as stack:
        made = stack.enter_context(lab())
        switch = made.host("switch")
        add_bridge(switch, "lan")
        found: dict[str, PlaceOfHost] = {}
        for name, addresses in _HOSTS.items():
            host = made.host(name)
            plug(switch, "lan", host, "eth0", f"{addresses[0]}/24")
            for address in addresses[1:]:
                host.add_address("eth0", f"{address}/24")
            host.run("ip", "route", "add", "224.0.0.0/4", "dev", "eth0")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgm")))
            (folder / "tree.toml").write_text(_FILE)
            (folder / "token").write_text(_TOKEN)
            (folder / "token").chmod(0o600)
            file = str(folder / "tree.toml")
            options = ("--bind", "0.0.0.0", "--token-file", str(folder / "token"), "--apply")
            agent = started(host, folder, f"agent of {name}", "agent", file, *options)
            stack.callback(agent.close)
            up = started(host, folder, f"up of {name}", "up", file, "--here", "--generate", str(1 << 40), "--json")
            stack.callback(up.close)
            found[name] = PlaceOfHost(host, folder, up)
            agent.line_with("ready: ")
        for place in found.values():
            place.up.line_with("Ctrl-C stops all")
        yield found


def apply(places: dict[str, PlaceOfHost], text: str) -> Process:
    """Apply a file from the first host, and wait for the end."""
    place = places["one"]
    (place.folder / "new.toml").write_text(text)
    words = ("--from", str(place.file), "--fleet", "--token-file", str(place.folder / "token"))
    process = started(place.host, place.folder, "apply", "apply", str(place.folder / "new.toml"), *words)
    process.wait()
    return process


def state(places: dict[str, PlaceOfHost]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the text of each host's file, and its nodes with the digests of their files."""
    return {name: (place.file.read_text(), place.nodes()) for name, place in places.items()}


def delivered(places: dict[str, PlaceOfHost], least: int) -> None:
    """Wait until the receiver has delivered more."""
    path = places["three"].folder / "three" / "desk-1.sock"
    before = count(ask_status(path), "delivered_packets")
    places["three"].host.until(lambda: count(ask_status(path), "delivered_packets") >= before + least)


def main() -> int:
    """Run the campaign, and return 0 if all is as it must be."""
    found: dict[str, Any] = {}
    good = _FILE.replace("8Mbit/s", "12Mbit/s") + _SECOND
    good = good.replace('parents = ["first", "source"]', 'parents = ["second", "first", "source"]')
    with running() as places:
        delivered(places, 500)
        before = state(places)
        blocked = places["two"].folder / "three" / "desk-9.sock"
        with socket.socket(socket.AF_UNIX) as taken:
            taken.bind(str(blocked))
            taken.listen()
            failed = apply(places, good + _LATE)
        blocked.unlink()
        found["failed"] = [line for line in failed.log.splitlines() if line.startswith(("pgm: ", "  remedy: "))]
        found["as_before"] = state(places) == before
        delivered(places, 500)
        done = apply(places, good)
        found["applied"] = done.process.returncode == 0 or done.log
        digests = {digest for _, nodes in state(places).values() for digest in nodes.values()}
        found["all_new"] = digests == {loads(good).digest}
        found["nodes"] = {name: sorted(place.nodes()) for name, place in places.items()}
        delivered(places, 500)
        for name in ("one", "three", "two"):
            places[name].up.process.send_signal(signal.SIGTERM)
            rows = places[name].up.account()["nodes"]
            found |= {row["node"]: row for row in rows if row["role"] == "receiver"}
    found["desk-1"] = {key: found["desk-1"][key] for key in ("delivered", *FAULTS, "repaired")}
    print(json.dumps(found, indent=1))
    is_good = found["as_before"] and found["applied"] is True and found["all_new"]
    return 0 if is_good and not any(found["desk-1"][key] for key in FAULTS) else 1


if __name__ == "__main__":
    sys.exit(main())
