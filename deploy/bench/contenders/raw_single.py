"""The naive bound: a system call a datagram."""

from __future__ import annotations

from deploy.bench.contenders.raw_gso import RawGso


class RawSingle(RawGso):
    """A plain UDP socket, one datagram a call."""

    name = "raw-single"
    title = "raw socket, one datagram a call"
    benchmarks = frozenset({"throughput"})
    gso = False
