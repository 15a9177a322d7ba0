"""pgm on the trio driver with an acknowledged stream: the source waits for its receiver."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job
from deploy.bench.contenders.ours_trio import OursTrio


class OursAcked(OursTrio):
    """As `OursTrio`, with `flow = "acked"`."""

    name = "ours-acked"
    title = "pgm, acked"
    benchmarks = frozenset({"throughput"})

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        flow = job.as_json(each=self.takes_each, flow="acked")
        return [sys.executable, "-m", "deploy.bench.peers.ours.trio_driver", end, flow]
