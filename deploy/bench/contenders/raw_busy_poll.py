"""A round trip of plain sockets that are never waited for."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job


class RawBusyPoll:
    """A plain UDP socket, read until something comes."""

    name = "raw-busy-poll"
    title = "raw socket, busy-poll"
    benchmarks = frozenset({"latency"})
    is_ours = False
    spins = True

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return "" if job.size <= job.max_datagram else "a message must fit a datagram"

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.raw", end, job.as_json(gso=False, spins=self.spins)]
