"""A round trip of plain sockets under trio."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job
from deploy.bench.contenders.raw_busy_poll import RawBusyPoll


class RawTrio(RawBusyPoll):
    """A plain UDP socket, awaited in a trio task."""

    name = "raw-trio"
    title = "raw socket, trio"
    spins = False

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.raw_trio", end, job.as_json()]
