"""Control protocol between a contender's process and the benchmark.

The benchmark writes one word a line to standard input. The process writes one JSON object a line to standard output.

A receiver says "ready", and "hears" after the first probe. A sender says "ready" and sends probes until the word "go".
The sender then sends messages, and says "sent" with their number. The word "expect N" tells the receiver this number.
The receiver says "result" when all messages are complete, or after `quiet_s` of silence.

A "ping" process sends requests to a "pong" process. "ping" starts at the word "go" and says "result" as well. Processes
of pgm also answer "lose N" with "loses", and "report" with "repairs". Every process ends when its standard input
closes.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

STDIN = 0
PROBE_IVL_S = 0.02  # between two probes
QUIET_S = 1.0  # between two checks while a process only waits for its end


class Control:
    """Connection to the process that started this one."""

    def __init__(self) -> None:
        os.set_blocking(STDIN, False)
        self._poll = select.poll()
        self._poll.register(STDIN, select.POLLIN)
        self._rest = b""
        self._words: list[str] = []
        self.is_over = False

    @staticmethod
    def job() -> dict[str, Any]:
        """Return the job, which is the last argument."""
        job: dict[str, Any] = json.loads(sys.argv[-1])
        return job

    def say(self, event: str, **values: object) -> None:
        """Write an event with its values."""
        print(json.dumps({"event": event, **values}), flush=True)

    def word(self, wait_s: float = 0.0) -> str:
        """Return the next word, or "" if none arrives within `wait_s`. The end of the input sets `is_over`."""
        if not self._words and self._poll.poll(wait_s * 1000):
            octets = os.read(STDIN, 4096)
            self.is_over = self.is_over or not octets
            *lines, self._rest = (self._rest + octets).split(b"\n")
            self._words += [line.decode() for line in lines]
        return self._words.pop(0) if self._words else ""

    def wait_until_over(self) -> None:
        """Wait for the end of standard input."""
        while not self.is_over:
            self.word(QUIET_S)


def run_end(ends: Mapping[str, Callable[[Control, dict[str, Any]], Any]]) -> None:
    """Run the end that the first argument names; a coroutine runs in the event loop that the job names, or else trio."""
    end = ends[sys.argv[1]]
    if inspect.iscoroutinefunction(end):
        job = Control.job()
        _run_in(job.get("loop", "trio"), partial(end, Control(), job))
    else:
        end(Control(), Control.job())


def _run_in(loop: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    if loop == "trio":
        import trio

        trio.run(main)
    else:
        import asyncio

        asyncio.run(main())
