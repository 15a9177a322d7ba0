"""Plain UDP sockets: the upper limit, the naive bound, and three ways to wait."""

from __future__ import annotations

from deploy.bench.contender import Contender, Job, python_peer


def _why_not_round_trip(job: Job) -> str:
    return "" if job.size <= job.max_datagram else "a message must fit a datagram"


# A call of a program with `gso` sends a train (`UDP_SEGMENT`) or receives a train (`UDP_GRO`).
_GSO, _SINGLE = python_peer("raw", gso=True), python_peer("raw", gso=False)
_TRIO, _LATENCY = python_peer("raw_trio"), ("latency",)

RAW = (
    Contender("raw-gso", "raw socket, GSO and GRO (the limit)", ("throughput", "repair"), _GSO),
    Contender("raw-single", "raw socket, one datagram a call", ("throughput",), _SINGLE),
    Contender("raw-busy-poll", "raw socket, busy-poll", _LATENCY, _SINGLE, _why_not_round_trip, is_busy_poll=True),
    Contender("raw-blocking", "raw socket, blocking", _LATENCY, _SINGLE, _why_not_round_trip),
    Contender("raw-trio", "raw socket, trio", _LATENCY, _TRIO, _why_not_round_trip),
)
RAW_GSO = RAW[0]
