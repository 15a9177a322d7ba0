"""Goodput after the trigger of a storm, with real processes in a network namespace: a campaign of eight cells.

    python -m tests.net.campaigns.storms

A tree has one source, perhaps a relay, a repairer and three receivers, each a process of its own. All nodes lose 1 % of
what arrives. The source sends a share of the data that the tree bears: the rate without the share for repairs.

Goodput counts the packets that reach the receivers for the first time within two seconds. Goodput is back after the last
two seconds with less than 95 % of what the source sent in them, but for a tenth of a second between the readings. A
source on a busy machine sends unevenly, so that a mean before the trigger is no measure. Delivery in order is back when the receivers are on average at most half a second
behind the source, for good. Delivery waits for what the trigger destroyed: the share for repairs needs `least` for the
packets that one receiver lacks a second later.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from pgm.net.control.control_socket import ask_control
from tests.folders import short_folder
from tests.net.support.lab import Host, lab
from tests.net.support.places import Place
from tests.net.support.processes import Processes, count

ENOUGH = 0.95
PATIENCE_S = 2.0
RATE = 250_000  # octets/s
SHARE = 0.25
SIZE = 1000
DESKS = ("desk-1", "desk-2", "desk-3")
_PACKET = SIZE + 24
_BEFORE_S = 3.0
_STEP_S = 0.25
_STEPS = 8  # of two seconds
_MOST_BEHIND_S = 0.5
_SKEW_S = 0.1  # between the readings of two processes' counters, on a busy machine
_FLOOD_RATE = 160  # NAKs a second, of 63 sqns each: 90 times what the source sends
_LOSS = 'loss = { loss = "1%" }'
_FEED_S = 0.02


def text_of(place: Place, *, has_relay: bool) -> str:
    """Return the topology of a cell."""
    segments = f"{place.segment('core', 0)}\n{_LOSS}\n"
    relay = ""
    if has_relay:
        segments += f"{place.segment('floor', 1)}\n{_LOSS}\n"
        relay = f"""
[nodes.relay]
role = "aggregator"
upstream = {{ segment = "core", address = "{place.address(2)}" }}
downstream = [{{ segment = "floor", address = "{place.address(3)}" }}]
parents = ["source"]
repairers = ["repairer"]
"""
    above, segment = ("relay", "floor") if has_relay else ("source", "core")
    return f"""
version = 1
name = "t{place.number}"
parameters = {{ rdata_share = "{SHARE:.0%}", fin_quiet_ivl = "2s", so_rcvbuf = "256KiB" }}
[streams.s]
data_port = 7500
rate = "{RATE * 8}bit/s"
{segments}
[nodes.source]
role = "source"
segment = "core"
address = "{place.address(1)}"
streams = ["s"]
{relay}
[nodes.repairer]
role = "repairer"
segment = "{segment}"
address = "{place.address(4)}"
parents = ["{above}"]
[nodes."desk-*"]
role = "receiver"
segment = "{segment}"
count = {len(DESKS)}
addresses = "{place.address(100)}-{place.address(149)}"
parents = ["repairer", "{above}"]
"""


@attrs.frozen
class Counts:
    """Counters of the source, once for each receiver, and of all receivers at one time."""

    at_s: float
    sent: int
    received: int
    delivered: int


class Cell:
    """The processes of one cell, and what their receivers count."""

    def __init__(self, tree: Processes, place: Place, host: Host, load: float, *, has_relay: bool) -> None:
        self.tree = tree
        self.place = place
        self.host = host
        self.has_relay = has_relay
        self.elements = ("relay", "repairer") if has_relay else ("repairer",)
        self.packets_s = load * RATE * (1 - SHARE) / _PACKET
        self.counts: list[Counts] = []
        self.sent = 0  # messages given to the source
        self._sent = 0  # packets that it has sent
        self._last: dict[str, tuple[int, int]] = {}
        self._stopped: set[str] = set()
        self._is_ending = threading.Event()
        self._feeder = threading.Thread(target=self._feed)

    def start(self) -> None:
        """Start all processes, and the stream."""
        started = [self.tree.start(node, host=self.host) for node in self.elements]
        started += [self.tree.start(node, "--until-closed", host=self.host) for node in DESKS]
        for process in started:
            process.line_with("ready:")
        self.tree.start("source", host=self.host, stdin=subprocess.PIPE).line_with("ready:")
        for node in (*self.elements, *DESKS):
            self.tree.until(node, lambda snapshot: snapshot["sessions"])
        self._feeder.start()

    def _feed(self) -> None:
        pipe = self.tree.running["source"].process.stdin
        assert pipe is not None
        begun, line = time.monotonic(), b"x" * SIZE + b"\n"
        while not self._is_ending.is_set():
            due = int((time.monotonic() - begun) * self.packets_s) - self.sent
            if due:
                pipe.write(line * due)
                pipe.flush()
                self.sent += due
            time.sleep(_FEED_S)
        pipe.close()

    def watch(self, for_s: float) -> None:
        """Count for some time."""
        begun = time.monotonic()
        for step in range(1, 1 + round(for_s / _STEP_S)):
            time.sleep(max(0.0, begun + step * _STEP_S - time.monotonic()))
            if "source" not in self._stopped:
                self._sent = count(self.tree.status("source"), "odata_packets")
            for node in set(DESKS) - self._stopped:
                snapshot = self.tree.status(node)
                self._last[node] = count(snapshot, "received_packets"), count(snapshot, "delivered_packets")
            received, delivered = (sum(column) for column in zip(*self._last.values(), strict=True))
            self.counts.append(Counts(time.monotonic(), len(DESKS) * self._sent, received, delivered))

    def lacking(self) -> int:
        """Return how many packets the receiver lacks that lacks most."""
        return max(row["missing_sqns"] for node in DESKS for row in self.tree.status(node)["sessions"])

    def set_loss(self, loss: str, nodes: tuple[str, ...], segment: str | None = None) -> None:
        """Let nodes lose another share of what arrives."""
        for node in nodes:
            request: dict[str, object] = {"do": "set", "settings": {"loss": loss}}
            if segment is not None:
                request["segment"] = segment
            ask_control(self.tree.folder / self.tree.name / f"{node}.ctl", request)

    def signal(self, nodes: tuple[str, ...], number: signal.Signals) -> None:
        """Stop processes or let them go on."""
        for node in nodes:
            self.tree.running[node].process.send_signal(number)
        self._stopped = set(nodes) if number is signal.SIGSTOP else set()

    def flood(self, for_s: float) -> subprocess.Popen[bytes]:
        """Start the process that sends NAKs in the name of the first receiver."""
        [session] = self.tree.status(DESKS[0])["sessions"]
        place, segment = self.place, 1 if self.has_relay else 0
        above = place.address(3) if self.has_relay else place.address(1)
        options = {
            "address": place.address(100),
            "group": place.group(segment),
            "source": place.address(1),
            "tsi": session["tsi"],
            "port": place.port,
            "data-port": 7500,
            "lead": session["lead"],
            "span": min(session["lead"], 5 * RATE // _PACKET),
            "rate": _FLOOD_RATE,
            "seconds": for_s,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "tests.net.support.nak_flood", *words, "--parents", place.address(4), above]
        return self.host.start(*command)

    def end(self) -> None:
        """End the stream; check that every receiver delivers or reports every message."""
        self._is_ending.set()
        self._feeder.join()
        for node in DESKS:
            account = self.tree.running[node].account()
            assert account["delivered"] + account["lost"] == self.sent, (node, account, self.sent)

    def stop(self) -> None:
        """End the feeder in any case."""
        self._is_ending.set()
        if self._feeder.ident is not None:
            self._feeder.join()


# Triggers: each runs for a time, and the receivers are counted meanwhile.


def losses(cell: Cell, for_s: float) -> None:
    """Let all nodes lose 30 %."""
    nodes = ("source", *cell.elements, *DESKS)
    cell.set_loss("30%", nodes)
    cell.watch(for_s)
    cell.set_loss("1%", nodes)


def repairer_dead(cell: Cell, for_s: float) -> None:
    """Kill the repairer, and start it again."""
    cell.tree.running["repairer"].kill()
    cell.watch(for_s)
    cell.tree.start("repairer", host=cell.host).line_with("ready:")


def _stopped(cell: Cell, nodes: tuple[str, ...], for_s: float) -> None:
    cell.signal(nodes, signal.SIGSTOP)
    try:
        cell.watch(for_s)
    finally:
        cell.signal(nodes, signal.SIGCONT)


def receivers_stopped(cell: Cell, for_s: float) -> None:
    """Stop all receivers."""
    _stopped(cell, DESKS, for_s)


def element_stopped(cell: Cell, for_s: float) -> None:
    """Stop the relay, or the source."""
    _stopped(cell, ("relay" if cell.has_relay else "source",), for_s)


def nak_flood(cell: Cell, for_s: float) -> None:
    """Send NAKs in the name of a receiver."""
    process = cell.flood(for_s)
    cell.watch(for_s)
    process.wait()


def uplink_down(cell: Cell, for_s: float) -> None:
    """Lose everything between source and relay, or source and segment."""
    nodes = ("source", "relay") if cell.has_relay else ("source", *cell.elements, *DESKS)
    cell.set_loss("100%", nodes, "core")
    cell.watch(for_s)
    cell.set_loss("1%", nodes, "core")


@attrs.frozen
class Plan:
    """One cell: a trigger and its seconds, a load, and a tree of one tier or two."""

    name: str
    trigger: Callable[[Cell, float], None]
    for_s: float
    load: float
    has_relay: bool


PLANS = (
    Plan("30 % loss at all nodes", losses, 5, 0.6, False),
    Plan("repairer killed, started again", repairer_dead, 10, 0.9, False),
    Plan("all receivers stopped", receivers_stopped, 3, 0.9, False),
    Plan("flood of NAKs of one receiver", nak_flood, 5, 0.6, False),
    Plan("30 % loss at all nodes", losses, 5, 0.3, True),
    Plan("uplink down", uplink_down, 3, 0.6, True),
    Plan("relay stopped", element_stopped, 3, 0.9, True),
    Plan("flood of NAKs of one receiver", nak_flood, 5, 0.3, True),
)


@attrs.frozen
class Result:
    """Result of one cell. Times in seconds after the end of the trigger."""

    back_s: float
    in_order_s: float
    least_s: float  # that the share takes for the packets that lacked
    lost: int

    @property
    def holds(self) -> bool:
        """Whether goodput and delivery are back in time."""
        return self.back_s <= PATIENCE_S and self.in_order_s <= PATIENCE_S + self.least_s


def _back_s(counts: list[Counts], ended_s: float, packets_s: float) -> float:
    """Return when the last two seconds ended in which too little came; seconds count from the end of the trigger."""
    back, skew = 0.0, _SKEW_S * packets_s * len(DESKS)
    for former, later in zip(counts, counts[_STEPS:], strict=False):
        received, sent = later.received - former.received, later.sent - former.sent
        if former.at_s >= ended_s and received + skew < ENOUGH * sent:
            back = later.at_s - ended_s
    return back


def _in_order_s(counts: list[Counts], ended_s: float, packets_s: float) -> float:
    """Return when the receivers were last too far behind; seconds count from the end of the trigger."""
    most = _MOST_BEHIND_S * packets_s * len(DESKS)
    behind = [one.at_s for one in counts if one.sent - one.delivered > most]
    return max(0.0, behind[-1] - ended_s) if behind else 0.0


@contextmanager
def _cell(plan: Plan) -> Iterator[Cell]:
    place = Place.new()
    with short_folder() as folder, lab() as hosts:
        host = hosts.host("tree")
        host.run("ip", "route", "add", "224.0.0.0/4", "dev", "lo")
        host.run("ip", "link", "set", "lo", "multicast", "on")
        tree = Processes(folder, text_of(place, has_relay=plan.has_relay), f"t{place.number}")
        cell = Cell(tree, place, host, plan.load, has_relay=plan.has_relay)
        try:
            yield cell
        finally:
            cell.stop()
            tree.close()


def run(plan: Plan, *, after_s: float = 10.0) -> Result:
    """Run one cell."""
    with _cell(plan) as cell:
        cell.start()
        cell.watch(_BEFORE_S)
        plan.trigger(cell, plan.for_s)
        ended_s = time.monotonic()
        cell.watch(1.0)
        lacking = cell.lacking()
        cell.watch(after_s - 1.0)
        lost = sum(count(cell.tree.status(node), "lost_sqns") for node in DESKS)
        cell.end()
    return Result(
        back_s=_back_s(cell.counts, ended_s, cell.packets_s),
        in_order_s=_in_order_s(cell.counts, ended_s, cell.packets_s),
        least_s=lacking * _PACKET / (SHARE * RATE),
        lost=lost,
    )


def row(plan: Plan, one: Result) -> str:
    """Return a row of the table of docs/guide/flow-control.md."""
    tree = "two tiers" if plan.has_relay else "flat"
    times = f"{one.back_s:.1f} s | {one.in_order_s:.1f} s | {one.least_s:.1f} s | {one.lost}"
    return f"| {plan.name} for {plan.for_s:.0f} s | {tree} | {100 * plan.load:.0f} % | {times} |"


HEAD = "| trigger, real processes | tree | load | goodput back | in order back | least for repairs | lost |"


def main() -> int:
    """Run all cells, or those with numbers on the command line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=int, nargs="*", help="numbers of cells, from 1; by default all")
    given = parser.parse_args()
    print(f"{HEAD}\n|---|---|---|---|---|---|---|", flush=True)
    held = []
    for number, plan in enumerate(PLANS, 1):
        if not given.cells or number in given.cells:
            result = run(plan)
            held.append(result.holds)
            print(row(plan, result) + ("" if result.holds else " DOES NOT HOLD"), flush=True)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
