"""Losses at places that only the campaign knows: packets of links, stopped processes, kernels that refuse to send."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.net.campaigns.ten_hosts.network import FAR, Hosts, port_of
from tests.net.support.lab import Host

# Types of packets, and their places in a UDP datagram (RFC 8)
ODATA, RDATA, NAK, NCF = 0x04, 0x05, 0x08, 0x0A
_TYPE, _SQN = "@th,96,8", "@th,192,32"
_ONCE = "limit rate 1/day burst 1 packets"
_STOP_S = 20.0  # most time that a process stands still
_POLL_S = 0.02


@attrs.frozen
class Rule:
    """Packets that a link loses: `conditions` choose the link, and the numbers the packets."""

    where: str  # switch, leg, or the host whose kernel refuses to send
    conditions: str
    kind: int
    first: int
    count: int = 1
    is_once: bool = False

    @property
    def text(self) -> str:
        """Return the rule of nftables."""
        sqns = str(self.first) if self.count == 1 else f"{self.first}-{self.first + self.count - 1}"
        once = f"{_ONCE} " if self.is_once else ""
        return f"{self.conditions} udp dport > 0 {_TYPE} {self.kind} {_SQN} {sqns} {once}counter drop"


def out_of(host: str, lan: str) -> str:
    """Return the condition for packets that come from a host into a LAN."""
    return f'iifname "{port_of(host, lan)}"'


def into(host: str, lan: str) -> str:
    """Return the condition for packets that go from a LAN to a host."""
    return f'oifname "{port_of(host, lan)}"'


def between(one: str, other: str, lan: str) -> str:
    """Return the condition for packets from one host to another."""
    return f"{out_of(one, lan)} {into(other, lan)}"


INTO_FAR = f"ip daddr {FAR}"


class Planter:
    """Rules of all places. A place loses nothing but what its rules say."""

    def __init__(self, ten: Hosts) -> None:
        self._ten = ten
        self._known: set[str] = set()
        self._watched: dict[int, int] = {}

    def plant(self, rules: Sequence[Rule]) -> None:
        """Add rules at their places."""
        for where in dict.fromkeys(rule.where for rule in rules):
            family, hook = {"switch": ("bridge", "forward"), "leg": ("inet", "forward")}.get(where, ("inet", "output"))
            lines = [f"add table {family} losses"]
            lines.append(f"add chain {family} losses way {{ type filter hook {hook} priority 0; }}")
            lines += [f"add rule {family} losses way {rule.text}" for rule in rules if rule.where == where]
            command = self._host(where).wrap(["nft", "-f", "-"])
            subprocess.run(command, input="\n".join(lines), text=True, check=True)
            self._known.add(where)

    def watch(self, places: Sequence[tuple[int, str, str]]) -> None:
        """Count the NAKs and NCFs for sqns. Each has the condition for its NAKs, and that for its NCFs."""
        for number, (sqn, naks, ncfs) in enumerate(places):
            self._watched[sqn] = number
            for kind, way, name in ((NAK, naks, f"nak{number}"), (NCF, ncfs, f"ncf{number}")):
                told = f"{way} udp dport > 0 {_TYPE} {kind} {_SQN} {sqn} counter name {name}"
                self._ten.switch.run("nft", f"add counter bridge losses {name}; insert rule bridge losses way {told}")

    def unanswered(self) -> dict[int, int]:
        """Return how many more NAKs than NCFs have passed for each watched sqn."""
        told = json.loads(self._ten.switch.run("nft", "-j", "list", "counters"))["nftables"]
        counts = {row["counter"]["name"]: int(row["counter"]["packets"]) for row in told if "counter" in row}
        return {sqn: counts[f"nak{at}"] - counts[f"ncf{at}"] for sqn, at in self._watched.items()}

    def dropped(self) -> int:
        """Return how many packets the rules have dropped."""
        found = 0
        for where in self._known:
            told = json.loads(self._host(where).run("nft", "-j", "list", "ruleset"))["nftables"]
            parts = [part for row in told if "rule" in row for part in row["rule"]["expr"]]
            found += sum(part["counter"]["packets"] for part in parts if isinstance(part.get("counter"), dict))
        return found

    def clear(self) -> None:
        """Remove all rules."""
        for where in self._known:
            self._host(where).run("nft", "flush", "ruleset")
        self._known.clear()
        self._watched.clear()

    def _host(self, where: str) -> Host:
        if where == "switch":
            return self._ten.switch
        return self._ten.routers["router-2"] if where == "leg" else self._ten.hosts[where]


def socket_drops(host: Host) -> int:
    """Return the datagrams that the sockets of a host have dropped, as its kernel counts them."""
    rows = Path(f"/proc/{host.holder.pid}/net/udp").read_text().splitlines()[1:]
    return sum(int(row.split()[-1]) for row in rows)


@contextmanager
def stopped(ten: Hosts, node: str) -> Iterator[None]:
    """Stop a node's process for the length of a block."""
    ten.nodes[node].signal(signal.SIGSTOP)
    try:
        yield
    finally:
        ten.nodes[node].signal(signal.SIGCONT)


def overflow(ten: Hosts, node: str, packets: int) -> range:
    """Stop a node until its sockets have dropped so many packets. Return sqns that its kernel certainly dropped."""
    before, began = socket_drops(ten.hosts[node]), time.monotonic()
    with stopped(ten, node):
        while socket_drops(ten.hosts[node]) - before < packets:
            assert time.monotonic() - began < _STOP_S, f"the sockets of {node} do not overflow"
            time.sleep(_POLL_S)
        lead = ten.lead()
        dropped = socket_drops(ten.hosts[node]) - before
    # the newest packets were dropped, one after the other; some of the drops are SPMs, and some came after `lead`
    return range(lead - dropped * 3 // 4, lead - dropped // 4)


def until_all_had(ten: Hosts, sqn: int, patience_s: float = 60.0) -> None:
    """Wait until every node has a sqn, and waits for none."""
    deadline = time.monotonic() + patience_s
    while not all(
        any(row["lead"] >= sqn and not row["missing_sqns"] for row in ten.sessions(node)) for node in ten.nodes
    ):
        assert time.monotonic() < deadline, f"not all nodes got {sqn}"
        time.sleep(0.1)
