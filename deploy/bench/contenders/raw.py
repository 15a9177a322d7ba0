"""Plain UDP sockets: the upper limit, the naive bound, and three ways to wait."""

from __future__ import annotations

from deploy.bench.contender import Contender, Job, python_peer


def _why_not_round_trip(job: Job) -> str:
    return "" if job.size <= job.max_datagram else "a message must fit a datagram"


RAW = (
    # A call sends a train (`UDP_SEGMENT`) or receives a train (`UDP_GRO`).
    Contender(
        "raw-gso",
        "raw socket, GSO and GRO (the limit)",
        ("throughput", "repair"),
        python_peer("raw", gso=True),
    ),
    Contender(
        "raw-single",
        "raw socket, one datagram a call",
        ("throughput",),
        python_peer("raw", gso=False),
    ),
    Contender(
        "raw-busy-poll",
        "raw socket, busy-poll",
        ("latency",),
        python_peer("raw", gso=False),
        _why_not_round_trip,
        is_busy_poll=True,
    ),
    Contender(
        "raw-blocking",
        "raw socket, blocking",
        ("latency",),
        python_peer("raw", gso=False),
        _why_not_round_trip,
    ),
    Contender(
        "raw-trio",
        "raw socket, trio",
        ("latency",),
        python_peer("raw_trio"),
        _why_not_round_trip,
    ),
)
RAW_GSO = RAW[0]
