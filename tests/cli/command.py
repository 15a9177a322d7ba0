"""The real `pgm` process, started and judged as a user sees it: output, exit code and leftovers."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli import main
from tests.net.support.lab import ROOT, Host
from tests.net.support.places import Place

PATIENCE_S = 60.0
_MARK = "PGM_TEST_MARK"  # in the environment of every process that a test starts, and of its children


@attrs.frozen
class CommandResult:
    """Result of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the one line of JSON on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, self
        return json.loads(lines[0])

    def complains(self, code: int, *says: str) -> None:
        """Assert that the command ended with one message and its remedy, and printed nothing else."""
        assert self.code == code, self
        assert "Traceback" not in self.out + self.err, self.err
        lines = [line for line in self.err.splitlines() if " rcvbuf: " not in line]
        assert lines, self
        *messages, last = lines
        # A remedy has a line of its own, or follows in brackets after each problem of the file.
        if last.startswith("  remedy: "):
            assert last != "  remedy: ", self
            assert len(messages) == 1, self
        else:
            messages.append(last)
            assert all(one.endswith(")") for one in messages), self
        assert all(one.startswith("pgm: ") for one in messages), self
        for text in says:
            assert text in self.err, self


def command(*arguments: str | Path) -> list[str]:
    """Return the command line."""
    return [sys.executable, "-m", "deploy", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: the width without a terminal, and the code of this tree."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    packages = str(Path(np.__file__).parents[1])  # for another interpreter of the same version
    return {**kept, "PYTHONPATH": f"{ROOT}:{packages}", **more}


def pgm(
    *arguments: str | Path, host: Host | None = None, env: Mapping[str, str] | None = None, **options: Any
) -> CommandResult:
    """Run a command to its end."""
    line = command(*arguments)
    if "input" not in options:
        options = {"stdin": subprocess.DEVNULL, **options}
    done = subprocess.run(
        line if host is None else host.wrap(line),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(**(env or {})),
        timeout=PATIENCE_S,
        check=False,
        **options,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def invoked(*arguments: str | Path) -> CommandResult:
    """Run a command in this process, which saves half a second of start-up."""
    done = CliRunner().invoke(main, [str(one) for one in arguments], prog_name="pgm")
    return CommandResult(done.exit_code, done.stdout, done.stderr)


def until_listening(group: str, port: int, process: int | str = "self") -> None:
    """Wait until a process has bound a socket to the group.

    A receiver misses nothing from then on.
    """
    octets = bytes(map(int, group.split(".")))
    wanted = f" {octets[::-1].hex().upper()}:{port:04X} "
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in Path(f"/proc/{process}/net/udp").read_text():
        assert time.monotonic() < deadline, f"no process has joined {group}"
        time.sleep(0.02)


@attrs.frozen
class StreamResult:
    """Results of the two ends of a stream."""

    out: bytes  # standard output of the receiver
    said: str  # standard error of the receiver
    code: int  # exit code of the receiver
    sent: subprocess.CompletedProcess[bytes]

    @property
    def account(self) -> Any:
        """Return the account of the receiver under `--json`."""
        return json.loads(self.said.splitlines()[-1])


def carried(
    file: Path, place: Place, octets: bytes, *, recv: Sequence[str] = (), send: Sequence[str] = ()
) -> StreamResult:
    """Return the results of a stream whose receiver's output is read only after the source has ended."""
    line = command("recv", file, "--node", "desk-1", "--json", *recv)
    receiver = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    try:
        until_listening(place.group(), place.port)
        sent = subprocess.run(
            command("send", file, "--node", "source", "--json", *send),
            input=octets,
            capture_output=True,
            env=environment(),
            timeout=PATIENCE_S,
            check=False,
        )
        out, said = receiver.communicate(timeout=PATIENCE_S)
    finally:
        receiver.kill()
        receiver.wait()
    return StreamResult(out, said.decode(), receiver.returncode, sent)


@attrs.frozen
class ProcessMark:
    """Environment that marks a process and all its children, so that a test can find them."""

    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    @property
    def env(self) -> dict[str, str]:
        """Return the variables to add to the environment of a process."""
        return {_MARK: self.mark}

    def running(self) -> list[int]:
        """Return the ids of the processes that carry the mark and have not ended."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                environ, state = (folder / "environ").read_bytes(), (folder / "stat").read_text()
            except OSError:  # ended, or of another user
                continue
            if wanted in environ.split(b"\0") and state.rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(folder.name))
        return found

    def until_nothing_runs(self, patience_s: float = 10.0) -> None:
        """Wait until all marked processes have ended, which must be soon."""
        deadline = time.monotonic() + patience_s
        while self.running():
            assert time.monotonic() < deadline, f"still running: {self.running()}"
            time.sleep(0.02)


@contextmanager
def marked() -> Iterator[ProcessMark]:
    """Yield a mark, and end all processes that carry it at the end of the block.

    A failing test therefore leaves no process.
    """
    mark = ProcessMark()
    try:
        yield mark
    finally:
        for pid in mark.running():
            os.kill(pid, 9)


@functools.cache
def _unprivileged() -> list[str]:
    if os.geteuid():
        return [sys.executable]
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"]
    # The user "nobody" may lack access to this interpreter. Then use the interpreter of the system, or this one as root
    # without capabilities.
    powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs"]
    lines = ([*nobody, sys.executable], [*nobody, "/usr/bin/python3"], [*powerless, sys.executable])
    for line in lines if shutil.which("setpriv") else ():
        # The interpreter must be able to start itself, because a command starts others.
        code = "import subprocess, sys, deploy, numpy, trio; subprocess.run([sys.executable, '-V'], check=True)"
        probe = [*line, "-c", code]
        if subprocess.run(probe, cwd=ROOT, env=environment(), capture_output=True, check=False).returncode == 0:
            return line
    return []


def unprivileged(*arguments: str | Path) -> list[str]:
    """Return the line of a command that runs without privileges.

    Skips the test where that is impossible.
    """
    line = _unprivileged()
    if not line:
        pytest.skip("needs setpriv to be another user: apt-get install util-linux")
    return [*line, "-m", "deploy", *map(str, arguments)]
