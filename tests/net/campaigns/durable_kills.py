"""SIGKILL of durable receivers, repairers, relays and recorders while messages go into SQLite: every row once.

    python -m tests.net.campaigns.durable_kills --kills 200 --messages 1000000

    source ── core ── relay ── floor ── desk-1, desk-2 (durable), repairer (records), recorder

All nodes of the floor lose packets. The repairer keeps 20 s of the stream, also across its restarts, and what a receiver missed for longer
comes from the archives. One node at a time is killed at a random time, and starts again at once.
"""

from __future__ import annotations

import argparse
import math
import random
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

import pgm.blocking
from tests.net.support.places import Place, below_a_relay
from tests.net.support.processes import Process, Processes, processes

DESKS = {"desk-1": "positions", "desk-2": "file"}
_ELEMENTS = ("relay", "repairer")
RECORDER = "recorder"
VICTIMS = (*DESKS, *_ELEMENTS, RECORDER)
_PATIENCE_S = 300.0
_SIZE = 100
_AT_ONCE = 25
_PORT = 3057  # of the range services, at addresses of the campaign's own
_LOOK_S = 0.002
_TIMERS = {
    "ihb_min": "20ms", "open_hold_ivl": "200ms", "spmr_bo_ivl": "50ms", "join_ivl": "0ns",
    "durable_archive_ivl": "60s", "record_batch_ivl": "20ms", "record_sync_ivl": "50ms",
}  # fmt: skip


def tree(place: Place, folder: Path) -> str:
    """Return the topology file."""
    timers = ", ".join(f'{name} = "{value}"' for name, value in _TIMERS.items())
    loss = '{ loss = "1%" }'
    text = below_a_relay(place, parameters=timers, quiet="3s", rate="40Mbit/s", loss=loss, has_repairer=True)
    text = text.replace("count = 1", "count = 2").replace('["relay", "repairer"]', '["repairer", "relay"]')
    text = text.replace('rate = "40Mbit/s"', 'rate = "40Mbit/s"\nwindow = "60s"').replace("'", '"')
    return f"""{text}
loss = {loss}
cache = {{ seconds = 20, directory = "{folder}/cache" }}
record = {{ directory = "{folder}/repairer", serve = "{place.address(4)}:{_PORT}" }}
[nodes.{RECORDER}]
role = "receiver"
segment = "floor"
address = "{place.address(5)}"
parents = ["repairer", "relay"]
loss = {loss}
record = {{ directory = "{folder}/recorder", serve = "{place.address(5)}:{_PORT}" }}
"""


@attrs.define
class Result:
    """Result of a campaign."""

    sent: int = 0
    kills: Counter[str] = attrs.field(factory=Counter)
    rows: dict[str, int] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)
    is_over: bool = False  # the time of the campaign is over


@attrs.define(eq=False)
class Campaign:
    """Running processes, and what became of them."""

    nodes: Processes
    result: Result = attrs.field(factory=Result)
    desks: dict[str, Process] = attrs.field(factory=dict)

    def start(self, node: str) -> None:
        """Start a node, and wait until it is ready."""
        folder = self.nodes.folder
        if node in DESKS:
            module = "tests.net.campaigns.durable_desk"
            command = [str(self.nodes.file), node, str(folder / f"{node}.db"), DESKS[node]]
            process = Process(node, command, module=module)
            self.nodes.all.append(process)
            self.desks[node] = process
        elif node == RECORDER:
            process = self.nodes.start(node, verb="record")
        else:
            process = self.nodes.start(node)
        process.line_with("ready:", patience_s=_PATIENCE_S)

    def kill(self, node: str) -> None:
        """Kill a node, and start it again. A receiver that has taken everything stays."""
        process = self.desks[node] if node in DESKS else self.nodes.running[node]
        process.close()
        self.nodes.all.remove(process)
        self.result.kills[node] += 1
        self.start(node)

    def finish(self) -> None:
        """Wait for the receivers, and compare their rows with what was sent."""
        for node, process in self.desks.items():
            code = process.wait(_PATIENCE_S)
            if code:
                self.result.problems.append(f"{node} ended with {code}: {process.log}")
            self._check(node)

    def _check(self, node: str) -> None:
        database = sqlite3.connect(self.nodes.folder / f"{node}.db")
        table = "rows" if DESKS[node] == "positions" else "once"
        query = f"select count(*), count(distinct number), min(number), max(number) from {table}"
        count, distinct, least, most = database.execute(query).fetchone()
        lost = database.execute("select first, count, cause from lost").fetchall()
        numbers = {number for (number,) in database.execute(f"select number from {table}")}
        database.close()
        reported = {
            sqn for first, count, _ in lost for sqn in range(first, first + count)
        }  # a message is a packet here
        silent = set(range(self.result.sent)) - numbers - reported
        if silent:
            self.result.problems.append(
                f"{node}: {len(silent)} messages are neither rows nor reported, from {min(silent)} on"
            )
        self.result.rows[node] = distinct
        if (count, distinct, least, most) != (self.result.sent, self.result.sent, 0, self.result.sent - 1):
            found = f"{count} rows, {distinct} different, {least} to {most}, of {self.result.sent}"
            self.result.problems.append(f"{node}: {found}; {len(reported)} reported as lost, first {lost[:5]}")


def send(source: pgm.blocking.Source, messages: int, kills: int, progress: Result, rate: int) -> None:
    """Send all messages, at most `rate` in a second, but not far ahead of the kills."""
    at_s = time.monotonic()
    for first in range(0, messages, _AT_ONCE):
        at_s = max(at_s + _AT_ONCE / rate, time.monotonic() - _AT_ONCE / rate)
        time.sleep(max(0.0, at_s - time.monotonic()))
        while not progress.is_over and first > (progress.kills.total() + 2) * messages / (kills + 1):
            time.sleep(_LOOK_S)
        if progress.is_over:
            return
        numbers = range(first, min(first + _AT_ONCE, messages))
        source.send_batch([b"%012d" % number + bytes(_SIZE - 12) for number in numbers])
        progress.sent = numbers[-1] + 1


def kill_nodes(
    kills: int,
    messages: int,
    seed: int,
    rate: int = 1000,
    *,
    victims: Sequence[str] = VICTIMS,
    seconds: float = math.inf,
    say: Callable[[str], None] = lambda _: None,
) -> Result:
    """Kill nodes at random times while messages flow. Return what was found."""
    rng, place = random.Random(seed), Place.new()
    with ExitStack() as stack:
        nodes = stack.enter_context(processes("", f"t{place.number}"))
        nodes.file.write_text(tree(place, nodes.folder))
        campaign = Campaign(nodes)
        source = pgm.blocking.open_source(nodes.file, node="source", txw_unsent_bytes="64KiB")
        with source as opened:
            for node in (*_ELEMENTS, RECORDER, *DESKS):
                campaign.start(node)
            for node in (*_ELEMENTS, RECORDER):
                nodes.until(node, lambda snapshot: snapshot["sessions"])
            for desk in campaign.desks.values():
                desk.line_with("opened", patience_s=_PATIENCE_S)
            sender = threading.Thread(target=send, args=(opened, messages, kills, campaign.result, rate), daemon=True)
            sender.start()
            end_s = time.monotonic() + seconds
            step = messages / (kills + 1)  # the kills spread over the whole run
            for number in range(kills):
                until = step * (number + rng.random())
                while campaign.result.sent < until and time.monotonic() < end_s:
                    time.sleep(_LOOK_S)
                if time.monotonic() >= end_s:
                    campaign.result.is_over = True
                    break
                campaign.kill(rng.choice(victims))
                if number % 10 == 9:
                    say(f"{number + 1} of {kills} kills, {campaign.result.sent:,} messages")
            sender.join()
            say("everything is sent")
        campaign.finish()
    return campaign.result


def main() -> int:
    """Run a campaign by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of kills")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of 100 octets")
    parser.add_argument("--rate", type=int, default=4000, help="messages in a second")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end after this time, with fewer kills")
    parser.add_argument("--seed", type=int, default=1, help="seed of times and nodes")
    given = parser.parse_args()
    began_s = time.monotonic()
    result = kill_nodes(
        given.kills,
        given.messages,
        given.seed,
        given.rate,
        seconds=given.minutes * 60,
        say=lambda text: print(text, flush=True),
    )
    for problem in result.problems:
        print(f"FAILED: {problem}")
    kills = ", ".join(f"{node} {count}" for node, count in sorted(result.kills.items()))
    print(f"{result.sent:,} messages, {result.kills.total()} kills ({kills}) in {time.monotonic() - began_s:.0f} s")
    print(", ".join(f"{node}: {rows:,} rows" for node, rows in result.rows.items()))
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
