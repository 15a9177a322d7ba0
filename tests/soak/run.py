"""One soak: starts the parts, restarts one of them each minute, takes samples, and ends everything in order."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import attrs

from pgm.errors import ProcessError
from pgm.net.control.status_socket import ask_status
from tests.net.support.lab import ROOT
from tests.net.support.places import Place
from tests.soak.memory import MB, Series, resident
from tests.soak.tree import ELEMENTS, RECORDERS, RESTARTED_NODES, SIZE, STEADY_RECEIVERS, soak_topology
from tests.spark.support.cluster import free_port

PATIENCE_S = 120.0  # until a part is ready, or has ended
_DOWN_S = 2.0  # as under systemd
_TICK_S = 0.5
_MOST_LOG = 1 << 20  # octets of one part's log
_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
SERVICES = ("serve-1", "serve-2")
RESTARTED = (*RESTARTED_NODES, "serve-2")  # an odd number: each is killed and terminated by turns


@attrs.frozen
class Plan:
    """Length and load of a soak."""

    seconds: float
    rate: float = 200.0  # messages a second
    loss: str = "1%"
    restart_s: float = 60.0
    has_query: bool = True
    sample_s: float = 10.0

    @property
    def rest_s(self) -> float:
        """Return the time before the end without restarts: a late joiner needs a session to join."""
        return min(30.0, self.restart_s)


@attrs.define(eq=False)
class Part:
    """Process of the soak, its restarts, its accounts and its bounded log."""

    name: str
    words: Sequence[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    is_ready: bool = False
    runs: int = 0
    accounts: list[dict[str, Any]] = attrs.field(factory=list)  # of runs that ended by themselves or by SIGTERM
    slowest_s: float = 0.0  # from a start until ready
    _log_from: int = 0

    @property
    def log(self) -> Path:
        """Return the file of standard error."""
        return self.folder / f"{self.name}.log"

    @property
    def output(self) -> Path:
        """Return the file of standard output of the latest run."""
        return self.folder / f"{self.name}.out"

    def start(self) -> None:
        """Start a run."""
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PGM_RUNTIME_DIR": str(self.folder)}
        with self.log.open("ab") as log, self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.words], cwd=ROOT, env=environment, start_new_session=True,
                stdin=subprocess.PIPE, stdout=output, stderr=log,
            )  # fmt: skip
        self.started_s, self.is_ready = time.monotonic(), False
        self.runs += 1

    @property
    def stdin(self) -> IO[bytes]:
        """Return the input of the running process."""
        assert self.process is not None
        assert self.process.stdin is not None
        return self.process.stdin

    def look(self) -> None:
        """Notice that the part is ready, and cut its log."""
        if not self.is_ready:
            with self.log.open("rb") as log:
                log.seek(self._log_from)
                text = log.read()
            self.is_ready = b"ready:" in text or b"ready\n" in self.output.read_bytes()
            if self.is_ready:
                self.slowest_s = max(self.slowest_s, time.monotonic() - self.started_s)
        elif self.log.stat().st_size > _MOST_LOG:
            rest = self.log.read_bytes()[-_MOST_LOG // 2 :]
            self.log.write_bytes(rest)  # the process appends

    def end(self, how: signal.Signals | None) -> int:
        """Send a signal, if any, and wait for the end. Keep the account. Return the exit code."""
        assert self.process is not None
        if how is not None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        self.stdin.close()
        lines = [line for line in self.output.read_text().splitlines() if line.startswith("{")]
        if lines and how is not signal.SIGKILL:
            account = json.loads(lines[-1])
            account.pop("events", None)
            self.accounts.append(account)
            del self.accounts[1:-2]  # the first, and the last two
        return code

    def close(self) -> None:
        """Kill the part with all its descendants, in any case."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.stdin.close()


@attrs.define
class Result:
    """Account of a soak, before it is judged."""

    plan: Plan
    sent: int = 0
    source: dict[str, Any] = attrs.field(factory=dict)
    accounts: dict[str, list[dict[str, Any]]] = attrs.field(factory=dict)
    query: dict[str, Any] | None = None
    steady: dict[str, Series] = attrs.field(factory=dict)  # resident octets by age, of parts that never restarted
    peaks: dict[str, Series] = attrs.field(factory=dict)  # most resident octets of each run, by the time of its end
    restarts: dict[str, int] = attrs.field(factory=dict)
    slowest_s: dict[str, float] = attrs.field(factory=dict)
    faults: list[str] = attrs.field(factory=list)  # ends and exit codes that nobody asked for
    log_octets: int = 0


@attrs.define(eq=False)
class Soak:
    """Running soak."""

    plan: Plan
    folder: Path
    say: Callable[[str], None]
    stop: threading.Event
    result: Result = attrs.field(init=False)
    parts: dict[str, Part] = attrs.field(factory=dict)
    _place: Place = attrs.field(factory=Place.new)
    _peak: dict[str, float] = attrs.field(factory=dict)
    _victims: Iterator[tuple[str, signal.Signals]] = attrs.field(init=False)
    _revival: tuple[float, Part] | None = None
    _began_s: float = attrs.field(factory=time.monotonic)

    def __attrs_post_init__(self) -> None:
        self.result = Result(self.plan)
        self._victims = zip(itertools.cycle(RESTARTED), itertools.cycle(_SIGNALS), strict=False)

    @property
    def file(self) -> Path:
        """Return the topology file."""
        return self.folder / "tree.toml"

    def _add(self, name: str, *words: str) -> None:
        self.parts[name] = Part(name, words, self.folder)

    def _make_parts(self) -> None:
        self.file.write_text(soak_topology(self._place, self.folder, self.plan.loss, self.plan.rate))
        file, archives = str(self.file), self.folder / "archives"
        archives.mkdir()
        self._add("source", "tests.soak.parts", "source", file, str(SIZE), str(self.plan.rate))
        for name in ELEMENTS:
            self._add(name, "deploy", "run", file, "--node", name, "--json")
        for name in (*STEADY_RECEIVERS, "wild-1"):
            self._add(
                name,
                "deploy",
                "run",
                file,
                "--node",
                name,
                "--json",
                "--generate",
                "1",
                "--size",
                str(SIZE),
                "--until-closed",
            )
        for name in RECORDERS:
            self._add(name, "deploy", "record", file, "--node", name, "--json", "--until-closed")
        ports = [free_port() for _ in SERVICES]
        for name, port in zip(SERVICES, ports, strict=True):
            self._add(name, "deploy", "serve", str(archives), "--listen", f"127.0.0.1:{port}", "--json")
        if self.plan.has_query:
            (self.folder / "query").mkdir()
            at = "|".join(f"grpc://127.0.0.1:{port}" for port in reversed(ports))  # the restarted service comes first
            self._add("query", "tests.soak.parts", "query", at, str(self.folder / "query"))

    def run(self) -> Result:
        """Run the soak to its end. Return its account."""
        self._make_parts()
        try:
            for part in self.parts.values():
                part.start()
            self._until_ready()
            self.say(f"{len(self.parts)} parts run; the logs are in {self.folder}")
            self.parts["source"].stdin.write(b"go\n")
            self.parts["source"].stdin.flush()
            self._began_s = time.monotonic()
            self._soak()
            self._finish()
        finally:
            for part in self.parts.values():
                part.close()
        return self.result

    def _until_ready(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not all(part.is_ready for part in self.parts.values()):
            for part in self.parts.values():
                part.look()
                assert part.process is not None
                assert part.process.poll() is None, f"{part.name} has ended; see {part.log}"
            late = [part.name for part in self.parts.values() if not part.is_ready]
            assert not late or time.monotonic() < until, f"{late} did not start; see {self.folder}"
            time.sleep(_TICK_S / 5)

    def _soak(self) -> None:
        now = began = self._began_s
        next_sample, next_restart, next_line = began, began + self.plan.restart_s, began + 60
        while now < began + self.plan.seconds and not self.stop.is_set():
            self._watch(now)
            if now >= next_sample:
                self._sample(now)
                next_sample += self.plan.sample_s
            if now >= next_restart and self._revival is None and now + self.plan.rest_s < began + self.plan.seconds:
                self._take_down(now)
                next_restart += self.plan.restart_s
            if now >= next_line:
                self.say(self._line())
                next_line += 60
            self.stop.wait(_TICK_S)
            now = time.monotonic()

    def _watch(self, now: float) -> None:
        """Notice ended parts, and start those whose time has come."""
        if self._revival is not None and now >= self._revival[0]:
            self._revival[1].start()
            self._revival = None
        down = self._revival[1] if self._revival is not None else None
        for part in self.parts.values():
            if part is down:
                continue
            assert part.process is not None
            code = part.process.poll()
            if code is not None:
                self._fault(f"{part.name} ended with {code} after {now - part.started_s:.0f} s")
                part.end(None)
                part.start()
            part.look()
            if not part.is_ready and now - part.started_s > PATIENCE_S:
                self._fault(f"{part.name} was not ready after {PATIENCE_S:.0f} s")
                part.is_ready = True

    def _fault(self, text: str) -> None:
        self.say(f"FAULT: {text}")
        if len(self.result.faults) < 100:
            self.result.faults.append(text)

    def _take_down(self, now: float) -> None:
        name, how = next(self._victims)
        part = self.parts[name]
        code = part.end(how)
        if how is signal.SIGTERM and code not in ({0, 1} if name in RECORDERS else {0}):
            self._fault(f"{name} ended with {code} on SIGTERM")
        self.result.restarts[name] = self.result.restarts.get(name, 0) + 1
        for label in [label for label in self._peak if label.split(" ")[0] == name]:
            self.result.peaks.setdefault(label, Series()).add(now - self._began_s, self._peak.pop(label))
        self._revival = now + _DOWN_S, part

    def _sample(self, now: float) -> None:
        running = {
            name: part.process.pid for name, part in self.parts.items() if part.process and part.process.poll() is None
        }
        for label, octets in resident(running):
            name = label.split(" ")[0]
            if name in RESTARTED:
                self._peak[label] = max(self._peak.get(label, 0.0), octets)
            else:
                self.result.steady.setdefault(label, Series()).add(now - self.parts[name].started_s, octets)

    def _line(self) -> str:
        said = []
        for name in ("calm-1", "wild-2"):
            try:
                counters = ask_status(self.folder / f"soak-{self._place.number}" / f"{name}.sock")["counters"]
                said.append(f"{name} {counters.get('delivered_packets', 0):,} ({counters.get('lost_sqns', 0):,} lost)")
            except ProcessError as error:
                said.append(f"{name}: {error}")
        octets = {label: series.values[-1] / MB for label, series in self.result.steady.items() if series.values}
        shown = ", ".join(
            f"{label} {octets.get(label, 0):.1f}"
            for label in ("source", "aggregator-1", "repairer-1", "calm-1", "query")
        )
        return f"delivered {', '.join(said)}; {sum(self.result.restarts.values())} restarts; MB: {shown}"

    def _finish(self) -> None:
        """End the stream, then everything that reads it, then the elements, the query and the services."""
        if self._revival is not None:
            self._revival[1].start()
        self._until_ready()
        self.parts["source"].stdin.close()
        self._end("source", None)
        for name in (*STEADY_RECEIVERS, "wild-1", *RECORDERS):
            self._end(name, None)
        for name in ELEMENTS:
            self._end(name, signal.SIGTERM)
        if self.plan.has_query:
            self.parts["query"].stdin.close()
            self._end("query", None)
        for name in SERVICES:
            self._end(name, signal.SIGTERM)
        result = self.result
        result.accounts = {name: part.accounts for name, part in self.parts.items()}
        result.slowest_s = {name: round(part.slowest_s, 1) for name, part in self.parts.items()}
        result.source = (self.parts["source"].accounts or [{}])[-1]
        result.sent = result.source.get("sent", 0)
        if self.plan.has_query:
            result.query = (self.parts["query"].accounts or [{}])[-1]
        result.log_octets = sum(part.log.stat().st_size for part in self.parts.values())

    def _end(self, name: str, how: signal.Signals | None) -> None:
        code = self.parts[name].end(how)
        # A recorder says with 1 that rows of the time when it was down are missing.
        if code not in ({0, 1} if name in RECORDERS and name in self.result.restarts else {0}):
            self._fault(f"{name} ended with {code} at the end of the soak")
