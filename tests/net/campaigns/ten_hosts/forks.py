"""Commands of pgm as forks of one process that has loaded all modules: dozens of starts on two cores take seconds.

    python -m tests.net.campaigns.ten_hosts.forks

reads a JSON object for each command from standard input, and prints the process id of its fork. A fork enters the
namespaces of its host, takes the host's name, and calls the command line of pgm, or the `main` of another module.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from pgm.fleet import watch
from pgm.fleet.agent_client import AgentClient
from tests.net.support.lab import ROOT, Host

_PATIENCE_S = 120.0  # many processes share this machine
_POLL_S = 0.02
_ANSWER_S = 10.0  # of an agent
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: no fork outlives the campaign
_CLONE_NEWUTS = 0x04000000
_LOADED = (
    "deploy.cli",
    "deploy.node.run",
    "deploy.monitor.monitor",
    "deploy.monitor.agent_service",
    "deploy.monitor.http_service",
    "deploy.monitor.top_screen",
    "deploy.status.explain",
    "hypercorn.trio",
    "aggregator.session",
    "repairer.session",
    "pgm.blocking",
    "pgm.fleet.watch",
)


@attrs.frozen
class Command:
    """Fork that runs, or ran, a command. Its output lies in files."""

    name: str
    pid: int
    files: Path  # without the endings .out, .err and .code

    @property
    def out(self) -> str:
        """Return the output so far."""
        return self.files.with_suffix(".out").read_text()

    @property
    def log(self) -> str:
        """Return the standard error so far."""
        return self.files.with_suffix(".err").read_text()

    @property
    def code(self) -> int | None:
        """Return the exit code; None while the command runs."""
        file = self.files.with_suffix(".code")
        return int(file.read_text()) if file.exists() else None

    def wait(self, patience_s: float = _PATIENCE_S) -> int:
        """Wait for the end. Return the exit code."""
        deadline = time.monotonic() + patience_s
        while (code := self.code) is None:
            assert time.monotonic() < deadline, f"{self.name} does not end:\n{self.log}"
            time.sleep(_POLL_S)
        return code

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds, while the command runs."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            assert self.code is None, f"{self.name} has ended:\n{self.log}"
            assert time.monotonic() < deadline, f"{self.name} never came to that:\n{self.log}"
            time.sleep(_POLL_S)

    def line_with(self, text: str) -> None:
        """Wait for a text in the log."""
        self.until(lambda: text in self.log)

    def signal(self, number: int) -> None:
        """Send a signal to a command that runs."""
        if self.code is None:
            os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the command, even one that is stopped, and wait."""
        self.signal(signal.SIGKILL)
        self.wait()


class Forks:
    """The process that forks, and all of its commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        words = [sys.executable, "-m", f"{__package__}.forks"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment, text=True
        )
        self._commands: list[Command] = []

    def start(self, host: Host, words: Sequence[str], environment: Mapping[str, str], module: str = "") -> Command:
        """Start a command of pgm on a host, or the `main` of another module, without waiting for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = self._folder / f"command-{len(self._commands)}"
        wanted = {
            "holder": host.holder.pid,
            "host": host.name,
            "words": list(words),
            "environment": dict(environment),
            "module": module,
            "files": str(files),
        }
        print(json.dumps(wanted), file=self._process.stdin, flush=True)
        command = Command(" ".join(words), int(self._process.stdout.readline()), files)
        self._commands.append(command)
        return command

    def close(self) -> None:
        """End all commands."""
        for command in self._commands:
            command.signal(signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _fork(wanted: Mapping[str, Any]) -> int:
    """Run a command in a fork. Return its process id."""
    files = Path(wanted["files"])
    for ending in (".out", ".err"):
        files.with_suffix(ending).touch()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _enter(wanted["holder"], wanted["host"])
        for descriptor, ending in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(files.with_suffix(ending), os.O_WRONLY | os.O_APPEND), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(wanted["environment"])
        if wanted["module"]:
            importlib.import_module(wanted["module"]).main(*wanted["words"])
        else:
            importlib.import_module("deploy.cli").main(wanted["words"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _enter(holder: int, name: str) -> None:
    """Enter the namespaces of a host, and take its name."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    for kind in ("user", "net"):
        space = os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY)
        assert libc.setns(space, 0) == 0, os.strerror(ctypes.get_errno())
    assert libc.unshare(_CLONE_NEWUTS) == 0, os.strerror(ctypes.get_errno())
    socket.sethostname(name)


def main() -> None:
    """Fork commands until the end of standard input."""
    for name in _LOADED:
        importlib.import_module(name)
    # many processes share two cores here, and eleven handshakes take seconds
    vars(watch)["AgentClient"] = partial(AgentClient, timeout_s=_ANSWER_S)
    reader, writer = socket.socketpair()
    for one in (reader, writer):
        one.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, Path] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is reader:
                    reader.recv(4096)
                    _reap(running)
                    continue
                line = sys.stdin.buffer.readline()  # one request at a time: each waits for its answer
                if not line:
                    return
                wanted = json.loads(line)
                pid = _fork(wanted)
                running[pid] = Path(wanted["files"])
                print(pid, flush=True)


def _reap(running: dict[int, Path]) -> None:
    """Write the exit codes of forks that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        part = running[pid].with_suffix(".part")
        part.write_text(str(os.waitstatus_to_exitcode(status)))
        part.rename(running.pop(pid).with_suffix(".code"))


if __name__ == "__main__":
    main()
