"""Kills at random points, without a lost or repeated message.

python -m tests.spark.support.kills --kills 20 [--seed 1] [--local]

The victims are the driver with its JVM, an executor, the recorder and the range service. Each victim is restarted.
A recorder writes two sessions with several messages a packet. Three queries copy them: into Parquet files, to a range
service that publishes, and by foreachBatch into a folder for each batch id. In the end each copy must have every
message of both sessions once, as after a run without kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import pyarrow as pa

from pgm.archive.service.publications import PublicationTarget
from tests.net.support.lab import ROOT
from tests.spark.support.archives import at, served
from tests.spark.support.cluster import Cluster, cluster, free_port, is_below, processes
from tests.spark.support.kill_parts import EACH, TSIS, value_of

_PATIENCE_S = 1500.0
_POLL_S = 0.1
_PAUSE_S = 12.0  # between two kills, at most
_MOST_STARTS = 20  # besides those after a kill: a query ends if its recorder is away for too long


@attrs.define(eq=False)
class Child:
    """Process that is restarted when it is dead.

    The process leads a process group, so its JVM dies with it.
    """

    words: list[str]
    log: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.words], env=self.env, cwd=ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.starts += 1

    def kill(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@attrs.define(eq=False)
class Campaign:
    """State of one run."""

    folder: Path
    messages: int
    rng: random.Random
    group: Cluster | None
    parts: dict[str, Child] = attrs.field(factory=dict)
    sent: list[bytes] = attrs.field(factory=list)
    killed: Counter[str] = attrs.field(factory=Counter)

    @property
    def packets(self) -> int:
        """Packets of each session."""
        return self.messages // EACH

    @property
    def permit(self) -> Path:
        """File with the sqn up to which the recorder may write.

        The limit keeps the recorder from its end before the last kill.
        """
        return self.folder / "permit"

    def allow(self, share: float) -> None:
        new = self.folder / "permit.new"
        new.write_text(str(int(self.packets * share)))
        new.replace(self.permit)

    def begin(self, sink: str) -> None:
        port = free_port()
        archive = self.folder / "archive"
        archive.mkdir()
        self.allow(0)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        if self.group is not None:
            env["PYSPARK_PYTHON"] = str(self.group.python)
        master = self.group.master if self.group is not None else "local[2,4]"
        words = {
            "recorder": ["tests.spark.support.kill_parts", "recorder", str(archive), str(self.permit), str(self.packets)],
            "service": ["deploy", "serve", str(archive), "--listen", f"127.0.0.1:{port}"],
            "driver": [
                "tests.spark.support.kill_parts", "driver", f"grpc://127.0.0.1:{port}", sink, master, str(self.folder),
                str(self.packets),
            ],
        }  # fmt: skip
        for name, command in words.items():
            self.parts[name] = Child(command, self.folder / f"{name}.log", env)
            self.parts[name].start()

    def kill(self, victim: str) -> bool:
        """Kill one victim; return whether it was running."""
        if victim == "executor":
            found = self._executors()
            if not found:
                return False
            os.kill(self.rng.choice(found), signal.SIGKILL)
        else:
            child = self.parts[victim]
            if child.process is None or child.process.poll() is not None:
                return False
            child.kill()
        self.killed[victim] += 1
        return True

    def _executors(self) -> list[int]:
        """Return the executors: JVMs on a cluster, Python daemons in one process."""
        if self.group is not None:
            return self.group.executors()
        driver = self.parts["driver"].process
        found = {pid: parent for pid, parent, _ in processes()}
        return [
            pid
            for pid, _, command in processes()
            if driver and "pyspark.daemon" in command and is_below(pid, driver.pid, found)
        ]

    def revive(self) -> bool:
        """Restart dead, unfinished parts; return whether the driver is finished."""
        for name, child in self.parts.items():
            code = child.process.poll() if child.process is not None else None
            if code is None:
                continue
            if code == 0 and name == "driver":
                return True
            if code != 0:
                assert child.starts <= _MOST_STARTS + self.killed.total(), f"{name}:\n{child.text()[-3000:]}"
                child.start()
        return False

    def is_running(self) -> bool:
        """Return whether the queries of the latest driver have begun."""
        driver = self.parts["driver"]
        return driver.text().count("running\n") >= driver.starts

    def run(self, kills: int, victims: Sequence[str], pause_s: float, say: Callable[[str], None]) -> None:
        """Kill at random times until the driver is finished.

        With a short pause the kills wait for running queries, since most of the time none would run.
        """
        until = time.monotonic() + _PATIENCE_S
        due = time.monotonic() + self.rng.uniform(0, pause_s)
        order = [victims[number % len(victims)] for number in range(kills)]
        self.rng.shuffle(order)
        while not self.revive():
            self.allow(1 - len(order) / (kills + 1))
            assert time.monotonic() < until, self.parts["driver"].text()[-3000:]
            if order and time.monotonic() > due and (pause_s >= _PAUSE_S or self.is_running()):
                if self.kill(order[-1]):
                    say(f"killed the {order.pop()}")
                due = time.monotonic() + self.rng.uniform(0, pause_s)
            time.sleep(_POLL_S)
        assert not order, f"the run was over before {order} were killed"

    def check(self) -> None:
        """Check that every message is once in Parquet, batch folders and the sink."""
        lines = self.parts["driver"].text().splitlines()
        told = json.loads(next(line for line in reversed(lines) if line.startswith('{"')))
        each = [self.messages, self.messages, 0, self.messages - 1, self.messages]
        assert told == dict.fromkeys(("parquet", "keyed"), dict.fromkeys(TSIS, each)), told
        wanted = {value_of(number, at) for number in range(len(TSIS)) for at in range(self.messages)}
        twice = [value for value, count in Counter(self.sent).items() if count > 1]
        assert not twice, f"{len(twice)} were published twice"
        assert set(self.sent) == wanted, f"{len(wanted - set(self.sent))} were not published"


def campaign(
    folder: Path,
    kills: int,
    messages: int,
    seed: int,
    *,
    on_cluster: bool,
    victims: Sequence[str],
    say: Callable[[str], None],
    pause_s: float = _PAUSE_S,
) -> Counter[str]:
    """Run the campaign and check it; return the kills by victim."""
    with ExitStack() as stack:
        group = stack.enter_context(cluster(folder)) if on_cluster else None
        made = Campaign(folder, messages, random.Random(seed), group)
        (folder / "empty").mkdir()
        lock = threading.Lock()

        def publish(_: str, rows: pa.Table) -> None:
            with lock:
                made.sent.extend(rows["value"].to_pylist())

        service = stack.enter_context(
            served(folder / "empty", target=PublicationTarget(publish, folder / "published.json"))
        )
        made.begin(at(service))
        try:
            made.run(kills, victims, pause_s, say)
            made.check()
        finally:
            for child in made.parts.values():
                child.kill()
        return made.killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=24_000, help=f"messages of each session, a multiple of {EACH}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--local", action="store_true", help="use one process instead of a cluster of two workers")
    options = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="pgm-kills-") as folder:
        killed = campaign(
            Path(folder), options.kills, options.messages, options.seed, on_cluster=not options.local,
            victims=("driver", "executor", "recorder", "service"), say=say,
        )  # fmt: skip
    print(f"{sum(killed.values())} kills ({', '.join(f'{name} {count}' for name, count in sorted(killed.items()))}): "
          f"{2 * options.messages} messages, none lost, none twice, {time.monotonic() - began:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
