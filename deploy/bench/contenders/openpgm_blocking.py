"""OpenPGM's round trip when it waits in the kernel."""

from __future__ import annotations

from deploy.bench.contenders.openpgm import OpenPgm


class OpenPgmBlocking(OpenPgm):
    """OpenPGM, waiting by `poll`."""

    name = "openpgm-blocking"
    title = "OpenPGM (C), blocking"
    benchmarks = frozenset({"latency"})
