"""Process that a test has started, and all the ways in which it ends."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from typing import ClassVar


class Child:
    """Running process with threads that read its output."""

    PATIENCE_S: ClassVar[float] = (
        60.0  # until a test gives up on it; twenty interpreters may start at once on a small machine
    )

    name: str
    process: subprocess.Popen[bytes]
    _readers: list[threading.Thread]

    @property
    def log(self) -> str:
        """Return the output so far."""
        raise NotImplementedError

    def wait(self, patience_s: float | None = None) -> int:
        """Wait for the end. Return the exit code."""
        try:
            code = self.process.wait(patience_s or self.PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.log}") from None
        self._join_readers()
        return code

    def stop(self) -> int:
        """Send SIGTERM, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> float:
        """Send SIGKILL, and wait. Return when the signal was sent."""
        at = time.monotonic()
        self.process.kill()
        self.wait()
        return at

    def close(self) -> None:
        """Remove everything, in any case."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._join_readers()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                continue  # what was still in the buffer of a process that is gone

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join(self.PATIENCE_S)
