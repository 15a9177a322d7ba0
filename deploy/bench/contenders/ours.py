"""pgm's own contenders: its drivers, flow controls and ways to take messages."""

from __future__ import annotations

from deploy.bench.contender import Contender, Job, python_peer

_LARGEST_EACH = 1472  # octets; for larger messages the loop over messages takes too small a share of the time


def _why_not_each(job: Job) -> str:
    return "" if job.size <= _LARGEST_EACH else "differs from batches only for small messages"


OURS = (
    Contender(
        "ours-trio",
        "pgm, trio",
        ("throughput", "latency", "repair", "relay", "pacing", "scale"),
        python_peer("ours.trio_driver", each=False),
        is_ours=True,
    ),
    Contender(
        "ours-acked",
        "pgm, acked",
        ("throughput",),
        python_peer("ours.trio_driver", each=False, flow="acked"),
        is_ours=True,
    ),
    Contender(
        "ours-each",
        "pgm, trio, async for",
        ("throughput",),
        python_peer("ours.trio_driver", each=True),
        _why_not_each,
        is_ours=True,
    ),
    Contender(
        "ours-busy-poll",
        "pgm, busy-poll",
        ("throughput", "latency", "repair", "pacing"),
        python_peer("ours.busy_poll"),
        is_ours=True,
        is_busy_poll=True,
    ),
    # Messages that share packets, with ten subjects, and a receiver with a wildcard subscription.
    Contender(
        "ours-messages",
        "pgm, batches()",
        ("messages",),
        python_peer("ours.messages", each=False),
        is_ours=True,
    ),
    Contender(
        "ours-messages-each",
        "pgm, async for",
        ("messages",),
        python_peer("ours.messages", each=True),
        is_ours=True,
    ),
    Contender(
        "ours-messages-busy-poll",
        "pgm, batches(), busy-poll",
        ("messages",),
        python_peer("ours.messages_busy_poll"),
        is_ours=True,
        is_busy_poll=True,
    ),
)
OURS_TRIO = OURS[0]
