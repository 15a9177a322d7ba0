"""The process that writes an archive, as the node sees it: started, listened to, woken, and found dead."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from pgm.archive.errors import ArchiveError
from pgm.archive.recording.shared_ring import SharedRing
from pgm.archive.recording.writer_main import WriterOrder
from pgm.parameters import Parameters

Heard = Callable[[dict[str, Any]], None]

_READ_OCTETS = 65536


class WriterProcess:
    """One process at a time. `wake` may be called by any thread, the rest belongs to one."""

    def __init__(self, directory: Path, parameters: Parameters, ring: SharedRing) -> None:
        self._directory = directory
        plain = attrs.asdict(Parameters())
        self._parameters = {key: value for key, value in attrs.asdict(parameters).items() if value != plain[key]}
        self._ring = ring
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._rest = b""
        self._error: ArchiveError | None = None
        self._began_ns = 0
        self.lived_ns = 0

    @property
    def pid(self) -> int:
        """Its number, or that of the last one."""
        return self._process.pid if self._process is not None else 0

    def start(self, heard: Heard) -> None:
        """Start it and wait until it has the archive. Raises `ArchiveError` with what it says."""
        ours, its = socket.socketpair()
        order = WriterOrder(self._ring.fd, its.fileno(), str(self._directory), self._parameters)
        self._error, self._rest, self._began_ns = None, b"", time.monotonic_ns()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgm.archive.recording.writer_main", order.to_text()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._ring.fd, its.fileno()),
            )
        except OSError as error:
            ours.close()
            self._error = ArchiveError(f"the process that writes {self._directory} cannot be started: {error.strerror}")
            raise self._error from None
        finally:
            its.close()
        self._line = ours
        for told in self._listen():
            if "ready" in told:
                return
            heard(told)
        self._reap()
        raise self._error or ArchiveError(self.why_it_ended, remedy="look at what it said on standard error")

    def serve(self, heard: Heard) -> bool:
        """Hand on what it says until it ends; whether it ended as it should."""
        for told in self._listen():
            heard(told)
        return self._reap() == 0

    def _listen(self) -> Iterator[dict[str, Any]]:
        """What it says, up to its end; why it gives up is kept."""
        assert self._line is not None
        while True:
            while b"\n" in self._rest:
                text, _, self._rest = self._rest.partition(b"\n")
                told = json.loads(text)
                if "error" in told:
                    message, remedy = told["error"]
                    self._error = ArchiveError(message, remedy=remedy)
                else:
                    yield told
            try:
                octets = self._line.recv(_READ_OCTETS)
            except OSError:
                return
            if not octets:
                return
            self._rest += octets

    def _reap(self) -> int:
        assert self._process is not None
        assert self._line is not None
        code = self._process.wait()
        line, self._line = self._line, None
        line.close()
        self.lived_ns = time.monotonic_ns() - self._began_ns
        return code

    @property
    def why_it_ended(self) -> str:
        """In words."""
        if self._error is not None:
            return f"the process that writes {self._directory} ended: {self._error.message}"
        code = self._process.returncode if self._process is not None else None
        how = f"with code {code}" if code is None or code >= 0 else f"by {signal.Signals(-code).name}"
        return f"the process that writes {self._directory} ended {how}"

    def wake(self) -> None:
        """Wake it, if it sleeps. Where it is gone, whoever serves it sees to that."""
        line = self._line
        if line is not None:
            with contextlib.suppress(OSError):
                line.send(b"!", socket.MSG_DONTWAIT)
