"""pgm with messages that share packets, ten subjects, and a receiver that subscribes them by a wildcard."""

from __future__ import annotations

import sys

from deploy.bench.contender import Job


class OursMessages:
    """`send_batch` with subjects on one side, `batches()` on the other."""

    name = "ours-messages"
    title = "pgm, batches()"
    benchmarks = frozenset({"messages"})
    is_ours = True
    spins = False
    takes_each = False  # whether messages are taken one by one

    def why_not(self, job: Job) -> str:
        """Why it cannot do this job here, or empty."""
        return ""

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.ours.messages", end, job.as_json(each=self.takes_each)]


class OursMessagesEach(OursMessages):
    """The same, taken one by one."""

    name = "ours-messages-each"
    title = "pgm, async for"
    takes_each = True


class OursMessagesBusyPoll(OursMessages):
    """The same on the busy-poll driver."""

    name = "ours-messages-busy-poll"
    title = "pgm, batches(), busy-poll"
    spins = True

    def command(self, end: str, job: Job) -> list[str]:
        """The program of one end."""
        return [sys.executable, "-m", "deploy.bench.peers.ours.messages_busy_poll", end, job.as_json()]
