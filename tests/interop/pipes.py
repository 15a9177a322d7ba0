"""Processes that take messages as lines on standard input or give them as lines on standard output: theirs and ours."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from tests.net.lab import ROOT, Host

PATIENCE_S = 30.0  # until a test gives up waiting for one thing


class Pipe:
    """A running process, what it has printed, and what it has said on standard error."""

    def __init__(self, name: str, host: Host, command: Sequence[str], **environment: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            host.wrap(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        self.messages: list[bytes] = []
        self.said: list[str] = []
        self._news = threading.Condition()
        self._open_streams = 2
        streams = ((self.process.stdout, self._take_message), (self.process.stderr, self._take_line))
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in streams]
        for reader in self._readers:
            reader.start()

    def _take_message(self, line: bytes) -> None:
        self.messages.append(line.removesuffix(b"\n"))

    def _take_line(self, line: bytes) -> None:
        self.said.append(line.decode(errors="replace").rstrip())

    def _read(self, stream: IO[bytes], take: Callable[[bytes], None]) -> None:
        for line in stream:
            with self._news:
                take(line)
                self._news.notify_all()
        with self._news:
            self._open_streams -= 1
            self._news.notify_all()

    def until(self, holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something holds of what it printed and said."""
        with self._news:
            self._news.wait_for(lambda: holds() or not self._open_streams, patience_s)
            assert holds(), (
                f"{self.name}: {what} did not come; {len(self.messages)} messages, {self.messages[-1:]}\n" + self.log
            )

    def until_said(self, text: str) -> None:
        """Wait for a line on standard error that has `text` in it."""
        self.until(lambda: any(text in line for line in self.said), repr(text))

    def until_messages(self, count: int) -> None:
        """Wait until so many messages have come out."""
        self.until(lambda: len(self.messages) >= count, f"message {count}")

    @property
    def log(self) -> str:
        """What it said."""
        return "\n".join(self.said)

    def put(self, messages: Sequence[bytes]) -> None:
        """Hand it messages; waits for as long as it takes none."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(message + b"\n" for message in messages))
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Tell it that no more messages come."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end\n{self.log}") from None
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> float:
        """SIGKILL, and wait; returns when that was."""
        at = time.monotonic()
        self.process.kill()
        self.wait()
        return at

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # what was still in the buffer of a process that is gone
