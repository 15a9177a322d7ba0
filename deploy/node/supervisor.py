"""The local supervisor: the nodes of a topology as processes of this machine."""

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

from deploy.terminal.exit_codes import SIGNALLED
from pgm.errors import ProcessError
from pgm.net.driver.nurseries import open_plain_nursery

LIFE = "PGM_SUPERVISOR_LIFE"  # the descriptor that ends with the supervisor
_TAIL_LINES = 40  # of a child's log, kept for when it fails
_START_S = 60.0  # twenty interpreters starting at once on a small machine need their time
_STOP_S = 15.0  # a source serves repairs for a while before it leaves


@attrs.define(eq=False)
class ChildProcess:
    """One node's process."""

    node: str
    process: trio.Process
    ready: trio.Event = attrs.field(factory=trio.Event)
    done: trio.Event = attrs.field(factory=trio.Event)
    tail: deque[str] = attrs.field(factory=lambda: deque(maxlen=_TAIL_LINES))
    result: dict[str, Any] | None = None  # what it printed as JSON at its end
    error: dict[str, Any] | None = None
    was_gone: bool = False  # before it was asked to end

    @property
    def has_failed(self) -> bool:
        """Whether it ended otherwise than by request or with success."""
        return self.process.returncode not in (None, 0, -signal.SIGTERM, -signal.SIGINT)

    def failure(self) -> ProcessError:
        """Why it ended, in its own words."""
        if self.error is not None:
            return ProcessError(f"node {self.node}: {self.error['message']}", remedy=self.error["remedy"])
        said = "\n  ".join(self.tail) or "it said nothing"
        return ProcessError(f"node {self.node} ended with code {self.process.returncode}:\n  {said}")


class Supervisor:
    """Starts, watches and stops nodes. `on_log(node, line)` gets every line of their logs."""

    def __init__(
        self, file: Path, nursery: trio.Nursery, runtime_dir: Path | None, on_log: Callable[[str, str], None]
    ) -> None:
        self._file = file
        self._nursery = nursery
        self._environment = dict(os.environ)
        if runtime_dir is not None:
            self._environment["PGM_RUNTIME_DIR"] = str(runtime_dir)
        self._on_log = on_log
        # Nobody writes here: it ends when this process does, in whatever way, and the nodes with it.
        self._life, self._own_life = os.pipe()
        self._environment[LIFE] = str(self._life)
        self.children: dict[str, ChildProcess] = {}

    async def start(
        self, node: str, options: Sequence[str] = (), *, has_stdin: bool = False, verb: str = "run"
    ) -> ChildProcess:
        """Start a node, by `pgm run` or another command, and wait until it runs. Raises `ProcessError` with what it said if it does not."""
        command = [sys.executable, "-m", "deploy", verb, str(self._file), "--node", node, "--json", *options]
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            pass_fds=(self._life,),
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops its children in order
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
        """Start several nodes at once."""
        async with open_plain_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(partial(self.start, node, options, verb=verb))

    async def _watch(self, child: ChildProcess) -> None:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._read_log, child)
            nursery.start_soon(self._read_result, child)
        code = await child.process.wait()
        if child.has_failed and child.ready.is_set():  # who waits for it is told otherwise
            self._on_log(child.node, f"ended with code {code}")
        child.done.set()
        child.ready.set()  # nobody waits for a node that has ended

    async def _read_log(self, child: ChildProcess) -> None:
        assert child.process.stderr is not None
        async for line in lines_of(child.process.stderr):
            child.tail.append(line)
            self._on_log(child.node, line)
            if line.startswith("ready:"):
                child.ready.set()

    async def _read_result(self, child: ChildProcess) -> None:
        assert child.process.stdout is not None
        async for line in lines_of(child.process.stdout):
            value = object_in(line)
            if value is None:
                self._on_log(child.node, line)
            elif "error" in value:
                child.error = value["error"]
            else:
                child.result = value

    async def stop(self, child: ChildProcess) -> None:
        """Ask a node to end, wait, and insist."""
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
        """Stop several nodes at once, all by default."""
        async with open_plain_nursery() as nursery:
            for node in nodes if nodes is not None else list(self.children):
                nursery.start_soon(self.stop, self.children[node])

    def kill_all(self) -> None:
        """Leave nothing running, whatever happened."""
        for child in self.children.values():
            if child.process.returncode is None:
                child.process.kill()
        os.close(self._life)
        os.close(self._own_life)


def end_with_supervisor() -> None:
    """In a node: stop, as on SIGTERM, when the supervisor that started it is gone without having stopped it."""
    life = os.environ.pop(LIFE, None)  # it is a number of this process and means nothing to what it starts
    if life is not None:
        threading.Thread(target=_await_end, args=(int(life),), daemon=True).start()


def _await_end(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)


async def heed_signals(
    is_running: trio.Event, stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set `stop` at the first signal while the tree runs; raise `SystemExit` at any other, so that no process is left behind.

    SIGHUP stays ignored where it is, as under nohup. SIGINT does not: shells have it ignored in what they start with &.
    """
    wanted = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.add(signal.SIGHUP)
    with trio.open_signal_receiver(*wanted) as signals:
        task_status.started()
        async for number in signals:
            if stop.is_set() or not is_running.is_set():
                raise SystemExit(SIGNALLED + number)
            stop.set()


def object_in(line: str) -> dict[str, Any] | None:
    """The JSON object that a line is; None for any other line, one of other JSON included."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncIterator[str]:
    """The lines of a stream, without their ends."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
