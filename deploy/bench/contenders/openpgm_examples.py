"""OpenPGM with the timers of its own examples."""

from __future__ import annotations

from deploy.bench.contenders.openpgm import OpenPgm


class OpenPgmExamples(OpenPgm):
    """As OpenPGM, with the timers that its examples set: back-off 50 ms, repeats after 2 s."""

    name = "openpgm-examples"
    title = "OpenPGM (C), timers of its examples"
    benchmarks = frozenset({"repair"})
    timers = (50, 2000)
