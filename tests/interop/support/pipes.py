"""Processes, ours and OpenPGM's, that read or write messages as lines on standard input and output."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO

from tests.net.support.child import Child
from tests.net.support.lab import ROOT, Host

PATIENCE_S = 30.0  # timeout of a test for each awaited event


class Pipe(Child):
    """Running process, its standard output, and its standard error."""

    PATIENCE_S = PATIENCE_S

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
        """Wait until a condition on the output holds."""
        with self._news:
            self._news.wait_for(lambda: holds() or not self._open_streams, patience_s)
            assert holds(), (
                f"{self.name}: {what} did not come; {len(self.messages)} messages, {self.messages[-1:]}\n" + self.log
            )

    def until_said(self, text: str) -> None:
        """Wait for a line on standard error that contains `text`."""
        self.until(lambda: any(text in line for line in self.said), repr(text))

    def until_messages(self, count: int) -> None:
        """Wait until this many messages have come out."""
        self.until(lambda: len(self.messages) >= count, f"message {count}")

    @property
    def log(self) -> str:
        """Return the text of standard error."""
        return "\n".join(self.said)

    def put(self, messages: Sequence[bytes]) -> None:
        """Write messages to the process; blocks while its pipe is full."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(message + b"\n" for message in messages))
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Close standard input, which ends the messages."""
        assert self.process.stdin is not None
        self.process.stdin.close()
