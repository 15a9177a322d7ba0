"""How a contender's process and the benchmark talk: a word a line on standard input, a JSON object a line on standard output.

A receiver says "ready", then "hears" when the first probe has come. A sender says "ready", sends probes until it is told
"go", and says "sent" with how many messages it sent. The receiver is told "expect N" and says "result" when it has them, or nothing
has come for `quiet_s`. Whoever asks ("ping", answered by "pong") is told "go" and says "result" likewise. Our own also
understand "lose N", answered by "loses", and "report", answered by "repairs". Every process ends when standard input does.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

STDIN = 0
PROBE_IVL_S = 0.02  # between two probes
QUIET_S = 1.0  # between two looks of whoever has nothing to do but wait for the end


class Control:
    """The line to whoever started this process."""

    def __init__(self) -> None:
        os.set_blocking(STDIN, False)
        self._poll = select.poll()
        self._poll.register(STDIN, select.POLLIN)
        self._rest = b""
        self._words: list[str] = []
        self.is_over = False

    @staticmethod
    def job() -> dict[str, Any]:
        """What is to be done: the last argument."""
        found: dict[str, Any] = json.loads(sys.argv[-1])
        return found

    def say(self, event: str, **values: object) -> None:
        """Tell something."""
        print(json.dumps({"event": event, **values}), flush=True)

    def word(self, wait_s: float = 0.0) -> str:
        """The next word, empty if none has come within `wait_s`. When nobody can say any more `is_over` becomes true."""
        if not self._words and self._poll.poll(wait_s * 1000):
            octets = os.read(STDIN, 4096)
            self.is_over = self.is_over or not octets
            *lines, self._rest = (self._rest + octets).split(b"\n")
            self._words += [line.decode() for line in lines]
        return self._words.pop(0) if self._words else ""
