"""Local supervisor that runs the nodes of a topology as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.terminal.log import JSON, Row, plain_row, text_of
from pgm.errors import ProcessError
from pgm.net.control.signals import exit_at
from pgm.net.driver.nurseries import open_plain_nursery

LIFE = "PGM_SUPERVISOR_LIFE"  # environment variable with the descriptor that reaches its end when the supervisor ends
_TAIL_LINES = 40  # of a child's log, for the message if the child fails
_START_S = 60.0  # twenty interpreters that start at once on a small machine are slow
_STOP_S = 15.0  # a source serves repairs for a while before it leaves


@attrs.define(eq=False)
class ChildProcess:
    """Process of one node, with its log tail and its result."""

    node: str
    process: trio.Process
    ready: trio.Event = attrs.field(factory=trio.Event)
    done: trio.Event = attrs.field(factory=trio.Event)
    tail: deque[str] = attrs.field(factory=lambda: deque(maxlen=_TAIL_LINES))
    result: dict[str, Any] | None = None  # JSON object that the process printed at its end
    error: dict[str, Any] | None = None
    was_gone: bool = False  # the process had ended before `stop`

    @property
    def has_failed(self) -> bool:
        """Return whether the process ended with a code that is neither success nor a requested end."""
        return self.process.returncode not in (None, 0, -signal.SIGTERM, -signal.SIGINT)

    def failure(self) -> ProcessError:
        """Return the error of the process, with its own message or the tail of its log."""
        if self.error is not None:
            return ProcessError(f"node {self.node}: {self.error['message']}", remedy=self.error["remedy"])
        log_tail = "\n  ".join(self.tail) or "the log is empty"
        return ProcessError(f"node {self.node} ended with code {self.process.returncode}:\n  {log_tail}")


class Supervisor:
    """Supervisor that starts, watches and stops nodes. `on_log` gets every row of the nodes' logs."""

    def __init__(
        self, file: Path, nursery: trio.Nursery, runtime_dir: Path | None, on_log: Callable[[Row], None]
    ) -> None:
        self._file = file
        self._nursery = nursery
        self._environment = dict(os.environ)
        if runtime_dir is not None:
            self._environment["PGM_RUNTIME_DIR"] = str(runtime_dir)
        self._on_log = on_log
        # The pipe carries no data. The read end sees the end of the pipe when this process ends for any reason; the
        # nodes then stop.
        self._life, self._own_life = os.pipe()
        self._environment[LIFE] = str(self._life)
        self.children: dict[str, ChildProcess] = {}

    async def start(
        self, node: str, options: Sequence[str] = (), *, has_stdin: bool = False, verb: str = "run"
    ) -> ChildProcess:
        """Start a node by `pgm run` or the command `verb`, and wait until the node runs.

        Raises `ProcessError` with the node's message if the node fails or does not start in time.
        """
        command = [
            sys.executable,
            "-m",
            "deploy",
            verb,
            str(self._file),
            "--node",
            node,
            "--json",
            "--log-format",
            JSON,
        ]
        process = await trio.lowlevel.open_process(
            [*command, *options],
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            pass_fds=(self._life,),
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which stops the children in order
        )
        child = self.children[node] = ChildProcess(node, process)
        self._nursery.start_soon(self._watch, child)
        with trio.move_on_after(_START_S):
            await child.ready.wait()
        if child.process.returncode is not None:
            await child.done.wait()
            if child.has_failed or not child.result:
                raise child.failure()
        if not child.ready.is_set():
            raise ProcessError(f"node {node} did not start within {_START_S:.0f} s")
        return child

    async def start_all(self, nodes: Sequence[str], options: Sequence[str] = (), *, verb: str = "run") -> None:
        """Start several nodes at once. Raises `ProcessError`."""
        async with open_plain_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(partial(self.start, node, options, verb=verb))

    async def _watch(self, child: ChildProcess) -> None:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._read_log, child)
            nursery.start_soon(self._read_result, child)
        code = await child.process.wait()
        if child.has_failed and child.ready.is_set():  # before `ready`, `start` raises the failure
            self._on_log(plain_row(child.node, "node-ended", f"the process ended with code {code}", "error"))
        child.done.set()
        child.ready.set()  # `start` must not wait for a node that has ended

    async def _read_log(self, child: ChildProcess) -> None:
        assert child.process.stderr is not None
        async for line in lines_of(child.process.stderr):
            row = _row_of(child.node, line)
            child.tail.append(text_of(row))
            self._on_log(row)
            if row["code"] == "ready":
                child.ready.set()

    async def _read_result(self, child: ChildProcess) -> None:
        assert child.process.stdout is not None
        async for line in lines_of(child.process.stdout):
            value = object_in(line)
            if value is None:
                self._on_log(_row_of(child.node, line))
            elif "error" in value:
                child.error = value["error"]
            else:
                child.result = value

    async def stop(self, child: ChildProcess) -> None:
        """Stop a node by SIGTERM, and by SIGKILL if the node does not end in time."""
        if child.process.returncode is None:
            child.process.send_signal(signal.SIGTERM)
        else:
            child.was_gone = True
        with trio.move_on_after(_STOP_S):
            await child.done.wait()
            return
        child.process.kill()
        await child.done.wait()

    async def stop_all(self, nodes: Sequence[str] | None = None) -> None:
        """Stop several nodes at once; all nodes by default."""
        async with open_plain_nursery() as nursery:
            for node in nodes if nodes is not None else list(self.children):
                nursery.start_soon(self.stop, self.children[node])

    def reload_all(self) -> None:
        """Let all nodes read their topology file again, by SIGHUP."""
        for child in self.children.values():
            if child.process.returncode is None:
                child.process.send_signal(signal.SIGHUP)

    def kill_all(self) -> None:
        """Kill all processes that still run, and close the life pipe. Call this at the end of every run."""
        for child in self.children.values():
            if child.process.returncode is None:
                child.process.kill()
        os.close(self._life)
        os.close(self._own_life)


def _row_of(node: str, line: str) -> Row:
    """Return the row in a line of a node's log. Other lines, as those of a traceback, become rows of the code `output`."""
    row = object_in(line)
    return row if row is not None and "code" in row else plain_row(node, "output", line)


def end_with_supervisor() -> None:
    """Stop this node, as on SIGTERM, when its supervisor ends without stopping the node."""
    life = os.environ.pop(LIFE, None)  # the descriptor number means nothing in child processes
    if life is not None:
        threading.Thread(target=_await_end, args=(int(life),), daemon=True).start()


def _await_end(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def while_running(is_running: trio.Event, stop: trio.Event, act: Callable[[], object]) -> Callable[[int], None]:
    """Return what a signal does: `act` between `is_running` and `stop`, and the end of this process before and after.

    The end leaves no process running, because a supervisor kills its children on the way out.
    """

    def on_signal(number: int) -> None:
        if stop.is_set() or not is_running.is_set():
            exit_at(number)
        act()

    return on_signal


def object_in(line: str) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if the line is not JSON or is another JSON value."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncIterator[str]:
    """Yield the lines of a stream without newlines. Invalid UTF-8 is replaced."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
