"""Nodes of a topology as real processes, watched through their logs, status sockets and exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pgm.blocking
from deploy.node.sample_messages import digest, generate
from pgm.errors import ProcessError
from pgm.net.control.status_socket import ask_status
from tests.folders import short_folder
from tests.net.support.child import Child
from tests.net.support.lab import ROOT, Host

PATIENCE_S = Child.PATIENCE_S
_POLL_S = 0.02  # between two questions to another process's status socket


class Process(Child):
    """A pgm command, or another `module`, with its output, and its log: lines of standard error with their times."""

    def __init__(self, name: str, arguments: Sequence[str], host: Host | None = None, **options: Any) -> None:
        self.name = name
        command = [sys.executable, "-m", options.pop("module", "deploy"), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
        settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "cwd": ROOT, **options}
        self.process = subprocess.Popen(
            command if host is None else host.wrap(command),
            stderr=subprocess.PIPE,
            env=environment,
            **settings,
        )
        self.lines: list[tuple[float, str]] = []
        self.printed: list[str] = []
        self._news = threading.Condition()
        self._is_drained = False
        assert self.process.stderr is not None
        self._readers = [threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True)]
        if self.process.stdout is not None:
            self._readers.append(threading.Thread(target=self._read_output, args=(self.process.stdout,), daemon=True))
        for reader in self._readers:
            reader.start()

    def _read_log(self, stream: IO[bytes]) -> None:
        for line in stream:
            with self._news:
                self.lines.append((time.monotonic(), line.decode(errors="replace").rstrip()))
                self._news.notify_all()
        with self._news:
            self._is_drained = True
            self._news.notify_all()

    def _read_output(self, stream: IO[bytes]) -> None:
        for line in stream:
            with self._news:
                self.printed.append(line.decode(errors="replace").rstrip())
                self._news.notify_all()

    @property
    def log(self) -> str:
        """Return the log so far."""
        return "\n".join(line for _, line in self.lines)

    def line_with(self, text: str, after: float = 0.0, patience_s: float = PATIENCE_S) -> float:
        """Wait for a log line with `text` after a time. Return its time."""

        def came() -> float | None:
            return next((at for at, line in self.lines if text in line and at > after), None)

        with self._news:
            self._news.wait_for(lambda: came() is not None or self._is_drained, patience_s)
            at = came()
        assert at is not None, f"{self.name} never said {text!r}:\n{self.log}\n{self.printed}"
        return at

    def first_printed(self) -> dict[str, Any]:
        """Wait for the first line of the output, which is JSON and comes by another pipe than the log."""
        with self._news:
            assert self._news.wait_for(lambda: self.printed, PATIENCE_S), self.log
        found: dict[str, Any] = json.loads(self.printed[0])
        return found

    def until_printed(self, lines: int) -> None:
        """Wait until the output has that many lines."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.printed) >= lines, PATIENCE_S), self.log

    def account(self) -> dict[str, Any]:
        """Wait for the end. Return the last output as JSON."""
        code = self.wait()
        assert code == 0, f"{self.name} ended with {code}:\n{self.log}"
        found: dict[str, Any] = json.loads(self.printed[-1])
        return found


class Processes:
    """Nodes of one topology file. `name` is the tree's name in the file."""

    def __init__(self, folder: Path, text: str, name: str) -> None:
        self.file = folder / "tree.toml"
        self.file.write_text(text)
        self.folder = folder
        self.name = name
        self.running: dict[str, Process] = {}
        self.all: list[Process] = []

    def start(self, node: str, *options: str, host: Host | None = None, verb: str = "run", **settings: Any) -> Process:
        """Start a node, by `pgm run` or another command, without waiting for it."""
        arguments = [verb, str(self.file), "--node", node, "--json", *options]
        environment = {"PGM_RUNTIME_DIR": str(self.folder)}
        process = Process(node, arguments, host, env=environment | settings.pop("env", {}), **settings)
        self.running[node] = process
        self.all.append(process)
        return process

    def start_all(self, nodes: Sequence[str], *options: str) -> list[Process]:
        """Start nodes at once and wait until all are ready."""
        started = [self.start(node, *options) for node in nodes]
        for process in started:
            process.line_with("ready:")
        return started

    def status(self, node: str) -> dict[str, Any]:
        """Return a node's snapshot."""
        return ask_status(self.folder / self.name / f"{node}.sock")

    def until(
        self, node: str, holds: Callable[[dict[str, Any]], object], patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Ask a node until its snapshot satisfies a condition. Return that snapshot."""
        deadline = time.monotonic() + patience_s
        snapshot: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                snapshot = self.status(node)
            except ProcessError:
                assert self.running[node].process.poll() is None, f"{node} has ended:\n{self._logs()}"
            else:
                if holds(snapshot):
                    return snapshot
            time.sleep(_POLL_S)
        raise AssertionError(f"{node} never got there; its last snapshot: {snapshot}\n{self._logs()}")

    def _logs(self) -> str:
        """Return the logs of all nodes: a failing test often names a node that is not at fault."""
        return "\n".join(f"{process.name}:\n{process.log}" for process in self.all)

    def close(self) -> None:
        """End every process, even one that does not end normally."""
        with ExitStack() as stack:
            for process in self.all:
                stack.callback(process.close)


@contextmanager
def processes(text: str, name: str) -> Iterator[Processes]:
    """Run a topology's processes for the length of a block. Their sockets need a short path."""
    with short_folder() as folder:
        made = Processes(folder, text, name)
        try:
            yield made
        finally:
            made.close()


def count(snapshot: dict[str, Any], counter: str) -> int:
    """Return one counter of a snapshot."""
    return int(snapshot["counters"].get(counter, 0))


class Stream:
    """Test messages from a source in this process to receiver processes, for as long as the test needs."""

    def __init__(self, tree: Processes, source: str = "source", size: int = 1400) -> None:
        self.tree = tree
        self.size = size
        self.messages = 0  # sent so far
        self.receivers: list[Process] = []
        self.source: pgm.blocking.Source | None = None  # once it is open
        self._node = source
        self._is_held, self._is_ending = threading.Event(), threading.Event()
        self._feeder = threading.Thread(target=self._feed)
        self._error: BaseException | None = None

    def start(self, receivers: Sequence[str], elements: Sequence[str]) -> None:
        """Start everything and wait until each receiver has heard of the source; nothing is sent yet."""
        work = ("--generate", "1", "--size", str(self.size), "--until-closed")
        started = [self.tree.start(node) for node in elements]
        self.receivers = [self.tree.start(node, *work) for node in receivers]
        for process in (*started, *self.receivers):
            process.line_with("ready:")
        self._feeder.start()
        for node in receivers:
            self.tree.until(node, lambda snapshot: snapshot["sessions"])

    def _feed(self) -> None:
        try:
            with pgm.blocking.open_source(self.tree.file, node=self._node, txw_unsent_bytes="64KiB") as source:
                self.source = source
                self._is_held.wait()
                for rows in generate(1 << 40, self.size, 1, most=16):
                    if self._is_ending.is_set():
                        break
                    source.send_batch(rows)
                    self.messages += len(rows)
        except BaseException as error:
            self._error = error

    def go(self) -> None:
        """Begin to send, as fast as the stream's rate allows."""
        self._is_held.set()

    def until_delivered(self, more: int) -> None:
        """Wait until the first receiver has `messages` more."""
        name = self.receivers[0].name
        wanted = more + count(self.tree.status(name), "delivered_packets")
        self.tree.until(name, lambda snapshot: count(snapshot, "delivered_packets") >= wanted)

    def end(self) -> list[dict[str, Any]]:
        """End the stream. Return the accounts of all receivers at their end."""
        self.stop()
        assert self._error is None, repr(self._error)
        return [receiver.account() for receiver in self.receivers]

    def stop(self) -> None:
        """Send no more and wait until the source has left."""
        self._is_ending.set()
        self._is_held.set()
        if self._feeder.ident is not None:
            self._feeder.join()

    def end_whole(self) -> list[dict[str, Any]]:
        """End the stream: every receiver ends with everything, once and in order."""
        rows = self.end()
        expected = digest(self.messages, self.size, 1)
        for row in rows:
            found = {key: row[key] for key in ("delivered", "lost", "duplicates", "out_of_order", "damaged")}
            whole = {"delivered": self.messages, "lost": 0, "duplicates": 0, "out_of_order": 0, "damaged": 0}
            assert found == whole, row
            assert row["sha256"] == expected
        return rows


@contextmanager
def streaming(text: str, name: str, receivers: Sequence[str], elements: Sequence[str]) -> Iterator[Stream]:
    """Run a tree with a stream that has begun."""
    with processes(text, name) as tree:
        stream = Stream(tree)
        try:
            stream.start(receivers, elements)
            stream.go()
            yield stream
        finally:
            stream.stop()
