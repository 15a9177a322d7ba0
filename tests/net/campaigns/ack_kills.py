"""SIGKILL of members of an acknowledged stream: no message that `stable()` covered was unprocessed.

python -m tests.net.campaigns.ack_kills --kills 100

Three members write down each message that they have processed. One of them is killed at a random time. The source still counts
it then, so each message that is stable is one that the killed member must have written down.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

import pgm.blocking
from pgm.errors import PgmError
from tests.net.campaigns.member import WAYS, recorded
from tests.net.support.lab import ROOT
from tests.net.support.places import Place, one_segment

NODES = ("desk-1", "desk-2", "desk-3")
# A killed member counts until its successor at the same address has joined: no time limit ends that before.
SETTINGS = 'ack_window = 256, ack_ivl = "5ms", ack_expiry = "120s", ack_stall_ivl = "120s", ambient_spm_ivl = "20ms"'
_PATIENCE_S = 60.0
_LIFE_S = 0.3  # most time of a member between its first message and its end
_LOOK_S = 0.002
_AT_ONCE = 16


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition without an event."""
    end_s = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "it never came to that"
        time.sleep(_LOOK_S)


@attrs.define
class Count:
    """Result of a campaign, in messages of the killed members."""

    kills: int = 0
    stable: int = 0
    waiting: int = 0  # sent and not processed
    unprocessed: list[str] = attrs.field(factory=list)  # failures: messages that were stable


@attrs.define
class Member:
    """One running member."""

    node: str
    way: str
    record: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, file: Path, node: str, way: str, number: int) -> Member:
        """Start a member with a new record."""
        record = file.parent / f"{node}-{number}"
        command = [sys.executable, "-m", "tests.net.campaigns.member", str(file), node, str(record), way]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return cls(node, way, record, subprocess.Popen(command, cwd=ROOT, env=environment))

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait()

    def has_processed(self, count: int) -> bool:
        """Return whether the member has processed that many messages."""
        assert self.process.poll() is None, f"{self.node} has ended by itself"
        return len(recorded(self.record)) > count


def send_on(source: pgm.blocking.Source, stop: threading.Event) -> None:
    """Send until the end."""
    try:
        while not stop.is_set():
            source.send_batch([bytes(100)] * _AT_ONCE)
    except PgmError:
        assert stop.is_set()


def check(source: pgm.blocking.Source, member: Member, count: Count) -> None:
    """Compare what is stable with the record of a killed member."""
    acks = source.counters.ack_packets_in
    until(lambda: source.counters.ack_packets_in >= acks + 2)  # its last ack has arrived
    [session] = source.sessions
    assert session.acked is not None
    stable = session.acked.stable
    first, *processed = recorded(member.record)
    missing = set(range(first, stable + 1)).difference(processed)
    count.kills += 1
    count.stable += max(0, stable + 1 - first)
    count.waiting += session.lead - max(processed, default=first - 1)
    if missing:
        count.unprocessed.append(f"{member.node} by {member.way}: {len(missing)} messages from sqn {min(missing)} on")


def kill_members(
    kills: int, seed: int, nodes: Sequence[str] = NODES, say: Callable[[str], None] = lambda _: None
) -> Count:
    """Kill members at random times, and start successors. Return what was found."""
    rng, numbers, ways, count = random.Random(seed), itertools.count(), itertools.cycle(WAYS), Count()
    place = Place.new()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "tree.toml"
        text = one_segment(place, parameters=SETTINGS).replace("[streams.s]\n", '[streams.s]\nflow = "acked"\n')
        file.write_text(text)
        members: dict[str, Member] = {}
        stack.callback(lambda: [member.kill() for member in members.values()])
        source = stack.enter_context(pgm.blocking.open_source(file, node="source", txw_unsent_bytes="64KiB"))
        for node in nodes:
            members[node] = Member.start(file, node, next(ways), next(numbers))
        source.joined(len(nodes))
        stop = threading.Event()
        sender = threading.Thread(target=send_on, args=(source, stop), daemon=True)
        sender.start()
        stack.callback(stop.set)
        while count.kills < kills:
            until(lambda: all(member.has_processed(1) for member in members.values()))
            time.sleep(rng.random() * _LIFE_S)
            node = rng.choice(nodes)
            members[node].kill()
            check(source, members[node], count)
            if count.kills % 10 == 0:
                say(f"{count.kills} of {kills}: {count.stable:,} stable messages, {len(count.unprocessed)} failures")
            members[node] = Member.start(file, node, next(ways), next(numbers))
        stop.set()
        sender.join(_PATIENCE_S)
    return count


def main() -> int:
    """Run a campaign by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="number of members to kill")
    parser.add_argument("--seed", type=int, default=1, help="seed of times and members")
    given = parser.parse_args()
    count = kill_members(given.kills, given.seed, say=lambda text: print(text, flush=True))
    for failure in count.unprocessed:
        print(f"FAILED: {failure}")
    print(
        f"{count.kills} kills: {count.stable:,} stable messages of killed members, {len(count.unprocessed)} failures; "
        f"{count.waiting:,} later messages were sent and not processed"
    )
    return 1 if count.unprocessed else 0


if __name__ == "__main__":
    sys.exit(main())
