"""Writer process of an archive, as the node starts, wakes and reads it, and notices its death."""

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
from pgm.archive.session import ReachedSession
from pgm.parameters import Parameters

OnReport = Callable[[dict[str, Any]], None]

_READ_OCTETS = 65536


class WriterProcess:
    """Handle of the writer process. Any thread may call `wake`. All other methods belong to one thread."""

    def __init__(
        self, directory: Path, parameters: Parameters, ring: SharedRing, archives: tuple[str, ...] = ()
    ) -> None:
        self._directory = directory
        defaults = attrs.asdict(Parameters())
        self._parameters = {key: value for key, value in attrs.asdict(parameters).items() if value != defaults[key]}
        self._ring = ring
        self._archives = archives
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._unread = b""
        self._error: ArchiveError | None = None
        self._began_ns = 0
        self.reached: tuple[ReachedSession, ...] = ()  # sessions of the archive, as the process found it
        self.lived_ns = 0

    @property
    def pid(self) -> int:
        """Process id of the present process, or of the last one."""
        return self._process.pid if self._process is not None else 0

    def start(self, on_report: OnReport) -> None:
        """Start the process and wait until the archive is open. Raises the `ArchiveError` of the process."""
        ours, theirs = socket.socketpair()
        order = WriterOrder(self._ring.fd, theirs.fileno(), str(self._directory), self._parameters, self._archives)
        self._error, self._unread, self._began_ns = None, b"", time.monotonic_ns()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pgm.archive.recording.writer_main", order.to_text()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._ring.fd, theirs.fileno()),
            )
        except OSError as error:
            ours.close()
            self._error = ArchiveError(f"the process that writes {self._directory} cannot be started: {error.strerror}")
            raise self._error from None
        finally:
            theirs.close()
        self._line = ours
        for report in self._reports():
            if "ready" in report:
                self.reached = tuple(ReachedSession(*fields) for fields in report["ready"])
                return
            on_report(report)
        self._reap()
        raise self._error or ArchiveError(self.end_reason, remedy="see its standard error")

    def serve(self, on_report: OnReport) -> bool:
        """Pass on reports until the process ends; return whether it ended normally."""
        for report in self._reports():
            on_report(report)
        return self._reap() == 0

    def _reports(self) -> Iterator[dict[str, Any]]:
        """Yield the reports up to the end of the process; keep an error it reports."""
        assert self._line is not None
        while True:
            while b"\n" in self._unread:
                text, _, self._unread = self._unread.partition(b"\n")
                report = json.loads(text)
                if "error" in report:
                    message, remedy = report["error"]
                    self._error = ArchiveError(message, remedy=remedy)
                else:
                    yield report
            try:
                octets = self._line.recv(_READ_OCTETS)
            except OSError:
                return
            if not octets:
                return
            self._unread += octets

    def _reap(self) -> int:
        assert self._process is not None
        assert self._line is not None
        code = self._process.wait()
        line, self._line = self._line, None
        line.close()
        self.lived_ns = time.monotonic_ns() - self._began_ns
        return code

    @property
    def end_reason(self) -> str:
        """Reason for the end, as a sentence."""
        if self._error is not None:
            return f"the process that writes {self._directory} ended: {self._error.message}"
        code = self._process.returncode if self._process is not None else None
        how = f"with code {code}" if code is None or code >= 0 else f"by {signal.Signals(-code).name}"
        return f"the process that writes {self._directory} ended {how}"

    def wake(self) -> None:
        """Wake the process if it sleeps. If the process is gone, the thread in `serve` handles that."""
        line = self._line
        if line is not None:
            with contextlib.suppress(OSError):
                line.send(b"!", socket.MSG_DONTWAIT)
