"""Process of a contender, controlled by words on its standard input, and ended by its end."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.node.supervisor import lines_of, object_in
from pgm.errors import ProcessError
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.units import KIB

_TAIL_LINES = 20  # lines of standard error kept for a failure message
# CPUCLOCK_SCHED of the kernel. Combined with the complement of a process id, CPUCLOCK_SCHED names the clock of that
# process's CPU time, in ns.
_SCHEDULED = 2
_END_S = 5.0  # until a process that was told to end is killed


@attrs.frozen
class ProcessUsage:
    """CPU time and peak memory that a process has used so far."""

    cpu_s: float
    peak_octets: int

    @classmethod
    def of(cls, pid: int) -> ProcessUsage:
        """Measure a running process with all its threads, ended ones included. Raises `OSError` if it has ended."""
        cpu_ns = time.clock_gettime_ns(~pid << 3 | _SCHEDULED)
        status = Path(f"/proc/{pid}/status").read_text()
        peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
        return cls(cpu_ns / 1e9, int(peak) * KIB)


class Peer:
    """Running process of a contender."""

    def __init__(self, name: str, process: trio.Process) -> None:
        self.name = name
        self.process = process
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._send_event, self._events = trio.open_memory_channel[dict[str, Any]](64)

    @property
    def usage(self) -> ProcessUsage:
        """Return the resources used so far. Raises `ProcessError` if the process ended before its work was done."""
        if self.process.returncode is not None:
            raise self._failure(f"ended with code {self.process.returncode}")
        return ProcessUsage.of(self.process.pid)

    async def tell(self, word: str) -> None:
        """Write a word to the process. Raises `ProcessError` if the process has ended."""
        assert self.process.stdin is not None
        try:
            await self.process.stdin.send_all(f"{word}\n".encode())
        except trio.BrokenResourceError:
            await self.process.wait()
            raise self._failure(f"ended with code {self.process.returncode}") from None

    async def until(self, event: str, patience_s: float) -> dict[str, Any]:
        """Wait for an event of the process and return it. Raises `ProcessError` at its end, or after `patience_s`."""
        with trio.move_on_after(patience_s):
            async for message in self._events:
                if message["event"] == event:
                    return message
            await self.process.wait()
            raise self._failure(f"ended with code {self.process.returncode}")
        raise self._failure(f"did not say {event!r} within {patience_s:.0f} s")

    def _failure(self, event: str) -> ProcessError:
        output = "".join(f"\n  {line}" for line in self._tail)
        return ProcessError(f"{self.name} {event}{output}")

    async def watch(self) -> None:
        """Read the events and error lines of the process until it ends."""
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._read_errors)
            async with self._send_event:
                assert self.process.stdout is not None
                async for line in lines_of(self.process.stdout):
                    message = object_in(line)
                    if message is None or "event" not in message:
                        self._tail.append(line)
                        continue
                    try:
                        self._send_event.send_nowait(message)
                    except trio.WouldBlock:
                        self._tail.append(line)

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        async for line in lines_of(self.process.stderr):
            self._tail.append(line)

    async def end(self) -> None:
        """Close standard input and wait for the end of the process, which is killed after `_END_S` seconds."""
        assert self.process.stdin is not None
        with trio.CancelScope(shield=True):
            await self.process.stdin.aclose()
            with trio.move_on_after(_END_S):
                await self.process.wait()
                return
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def running(name: str, command: Sequence[str], environment: dict[str, str]) -> AsyncIterator[Peer]:
    """Run a process for the length of a block."""
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the benchmark alone, which ends its processes in order
    )
    peer = Peer(name, process)
    async with open_plain_nursery() as nursery:
        nursery.start_soon(peer.watch)
        try:
            yield peer
        finally:
            await peer.end()
