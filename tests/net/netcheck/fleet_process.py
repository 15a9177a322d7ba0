"""Agents and commands on the hosts of a lab, as forks of one process that has the modules loaded.

    python -m tests.net.netcheck.fleet_process

The process reads a line of JSON for each command: the namespace's process id, the words, the folder of its output and of
its sockets, and whether to wait. It prints the exit code, or the process id of a command that it does not wait for.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from deploy.cli import main
from deploy.monitor import agent, agent_service  # loaded before the forks
from deploy.netcheck import command, conductor
from tests.net.support.child import Child
from tests.net.support.lab import ROOT, Host, enter_namespaces

LOADED = (agent, agent_service, command, conductor)
TOKEN = "a-token-of-many-characters"
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: nothing outlives the test


@attrs.frozen
class Outcome:
    """End of a command: its exit code, and what it has printed."""

    code: int
    out: str
    err: str

    @property
    def checks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the findings of `pgm netcheck --json` that are not ok, by check."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(self.out)["checks"]:
            if row["level"] != "ok":
                found.setdefault(row["check"], []).append(row)
        return found


@attrs.define
class FleetProcess:
    """The process of all agents of a test, and the folder of the topology file."""

    folder: Path
    _process: subprocess.Popen[str]
    agents: list[int] = attrs.field(factory=list)

    def _tell(self, host: Host, words: Sequence[str], *, waits: bool) -> int:
        folder = self.folder / host.name  # runtime folder of the host, as each host has one
        folder.mkdir(exist_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = {"host": host.holder.pid, "words": list(words), "folder": str(folder), "waits": waits}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def run(self, host: Host, *words: str) -> Outcome:
        """Run a command on a host until its end."""
        code = self._tell(host, words, waits=True)
        out, err = (self.folder / host.name / f"{words[0]}.{end}" for end in ("out", "err"))
        return Outcome(code, out.read_text(), err.read_text())

    def start(self, host: Host, *words: str) -> int:
        """Start a command on a host. Return its process id."""
        return self._tell(host, words, waits=False)

    def netcheck(self, host: Host, *words: str) -> Outcome:
        """Run `pgm netcheck` on a host."""
        token = ("--token-file", str(self.folder / "token"))
        return self.run(host, "netcheck", str(self.folder / "tree.toml"), *token, *words)

    def start_agent(self, host: Host) -> None:
        """Start the agent of a host."""
        words = ("agent", str(self.folder / "tree.toml"), "--bind", "::", "--json")
        self.agents.append(self.start(host, *words, "--token-file", str(self.folder / "token")))

    def until_agents_answer(self, hosts: Sequence[Host]) -> None:
        """Wait until the agents of some hosts have printed their addresses."""
        for host in hosts:
            host.until((self.folder / host.name / "agent.out").read_text, Child.PATIENCE_S)


@contextmanager
def fleet(folder: Path, text: str, hosts: Sequence[Host]) -> Iterator[FleetProcess]:
    """Run the agents of all hosts for the length of a block."""
    (folder / "tree.toml").write_text(text)
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    words = [sys.executable, "-m", __name__]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            made = FleetProcess(folder, process)
            for host in hosts:
                made.start_agent(host)
            made.until_agents_answer(hosts)
            yield made
        finally:
            process.kill()


def _child(pid: int, words: Sequence[str], folder: Path) -> None:
    """Run a command in the namespaces of a process. Never returns."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        enter_namespaces(pid, "user", "net")
        for number, end in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{words[0]}.{end}", os.O_WRONLY), number)
        os.environ["PGM_RUNTIME_DIR"] = str(folder)
        main(list(words), standalone_mode=False)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(code)


def run() -> None:
    """Serve commands until standard input ends."""
    for line in sys.stdin:
        told = json.loads(line)
        folder = Path(told["folder"])
        for end in ("out", "err"):
            (folder / f"{told['words'][0]}.{end}").write_text("")
        pid = os.fork()
        if not pid:
            _child(told["host"], told["words"], folder)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if told["waits"] else pid, flush=True)


if __name__ == "__main__":
    run()
