"""OpenPGM's round trip when it spins."""

from __future__ import annotations

from deploy.bench.contenders.openpgm import OpenPgm


class OpenPgmBusyPoll(OpenPgm):
    """OpenPGM, never waiting in the kernel."""

    name = "openpgm-busy-poll"
    title = "OpenPGM (C), busy-poll"
    benchmarks = frozenset({"latency"})
    spins = True
