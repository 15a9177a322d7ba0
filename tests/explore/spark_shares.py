"""Shares of a search as tasks of Spark. The JVMs only carry shares and results."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pgm.spark.session import start, told_plainly
from tests.explore.search import Expansion, RunShares, Share, expand
from tests.sim.campaigns.spark_tasks import packed

_SETTINGS = {"spark.driver.memory": "1g", "spark.executor.memory": "512m", "spark.task.maxFailures": "4"}
_SHARES_A_SLOT = 4  # of one job


class SparkShares:
    """Spark session for the shares of a search."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: Any = None
        self._folder = tempfile.TemporaryDirectory(prefix="pgm-explore-")

    def __enter__(self) -> RunShares:
        self._session = start("pgm-explore", master=self._master, settings=_SETTINGS, quick=True)
        context = self._session.sparkContext
        if not str(context.master).startswith("local"):
            context.addPyFile(str(packed(Path(self._folder.name) / "pgm-explore.zip")))
        return SharesOf(context)

    def __exit__(self, *_error: object) -> None:
        self._session.stop()
        self._folder.cleanup()


class SharesOf:
    """Runner of shares in the jobs of a Spark context."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __call__(self, shares: Iterable[Share]) -> Iterator[Expansion]:
        """Yield the expansion of each share, in order."""
        context, waiting = self._context, iter(shares)
        most = _SHARES_A_SLOT * max(1, context.defaultParallelism)
        with told_plainly():
            while wave := list(itertools.islice(waiting, most)):
                yield from context.parallelize(wave, len(wave)).map(expand).collect()
