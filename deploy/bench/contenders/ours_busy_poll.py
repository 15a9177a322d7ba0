"""pgm on the busy-poll driver."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job


class OursBusyPoll:
    """`pgm.blocking` with `busy_poll=True`: everything in one spinning thread a process."""

    name = "ours-busy-poll"
    title = "pgm, busy-poll"
    benchmarks = frozenset({"throughput", "latency", "repair", "pacing"})
    is_ours = True
    spins = True

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return ""

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.ours.busy_poll", end, job.as_json()]
