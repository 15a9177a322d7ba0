"""The limit: what the kernel carries when nobody looks at it."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job


class RawGso:
    """A plain UDP socket, a train a call out (`UDP_SEGMENT`) and in (`UDP_GRO`)."""

    name = "raw-gso"
    title = "raw socket, GSO and GRO (the limit)"
    benchmarks = frozenset({"throughput", "repair"})
    is_ours = False
    spins = False
    gso = True

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return ""

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.raw", end, job.as_json(gso=self.gso, spins=False)]
