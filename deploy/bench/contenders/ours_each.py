"""pgm on the trio driver, every message an object of its own."""

from __future__ import annotations

from deploy.bench.contender import Job
from deploy.bench.contenders.ours_trio import OursTrio

_LARGEST = 1472  # octets; of larger messages there are too few a second for the loop to matter


class OursEach(OursTrio):
    """As on the trio driver, but taken one by one: `async for message in receiver`."""

    name = "ours-each"
    title = "pgm, trio, async for"
    benchmarks = frozenset({"throughput"})
    takes_each = True

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return "" if job.size <= _LARGEST else "differs from batches only for small messages"
