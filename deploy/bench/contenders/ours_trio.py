"""pgm on the trio driver, messages in batches."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job


class OursTrio:
    """`pgm.open_source` and `pgm.open_receiver`, as an application uses them: `send_batch` and `batches()`."""

    name = "ours-trio"
    title = "pgm, trio"
    benchmarks = frozenset({"throughput", "latency", "repair", "relay", "pacing", "scale"})
    is_ours = True
    spins = False
    takes_each = False  # whether messages are taken one by one

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return ""

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.ours.trio_driver", end, job.as_json(each=self.takes_each)]
