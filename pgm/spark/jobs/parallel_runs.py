"""Many runs of one function as a Spark job: tasks long enough to be worth it, results in order, progress and use of the cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import attrs
from pyspark import SparkContext
from pyspark.sql import SparkSession

Case = TypeVar("Case")
Result = TypeVar("Result")

_TASK_S = 0.6  # of work in a task at least: starting one costs 10 to 25 ms
_LOOK_S = 0.5  # between two looks at how far a job has come


@attrs.define
class CoreUsage:
    """What sweeps took, added up. `cpu_s` is what the runs themselves took of the processors."""

    runs: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    cores: int = 1

    @property
    def share(self) -> float:
        """Of the cores, how much the runs used."""
        return self.cpu_s / max(1e-9, self.wall_s * self.cores)


@attrs.define
class Sweep:
    """Runs `function` over cases on `spark`; both must be picklable, and importable where Spark's workers are.

    `seconds` is a guess at what a run takes, mended by what runs took. `progress` is told how many are done, and of how many.
    """

    spark: SparkSession
    function: Callable[[Any], Any]
    seconds: float
    progress: Callable[[int, int], None] = lambda *_: None
    usage: CoreUsage = attrs.field(factory=CoreUsage)

    def run(self, cases: Sequence[Any]) -> list[Any]:
        """The results, in order of the cases. What a run raises ends the sweep."""
        if not cases:
            return []
        context = self.spark.sparkContext
        self.usage.cores = context.defaultParallelism
        slices = self._slices(len(cases))
        watcher = _Watcher(context, slices, len(cases), self.progress)
        function = self.function
        began = time.monotonic()
        with watcher:
            rows = context.parallelize(cases, slices).mapPartitions(lambda some: _timed(function, some)).collect()
        self.usage.wall_s += time.monotonic() - began
        cpu_s = sum(seconds for _, seconds in rows)
        self.usage.cpu_s += cpu_s
        self.usage.runs += len(rows)
        self.seconds = max(1e-4, cpu_s / len(rows))
        return [result for result, _ in rows]

    def _slices(self, cases: int) -> int:
        by_work = int(cases * self.seconds / _TASK_S)
        cores = self.spark.sparkContext.defaultParallelism
        return max(1, min(cases, max(by_work, min(cores, cases))))


def _timed(function: Callable[[Any], Any], cases: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    for case in cases:
        began = time.process_time()
        result = function(case)
        yield result, time.process_time() - began


class _Watcher:
    """Tells how far a job has come, by a thread that asks Spark."""

    def __init__(self, context: SparkContext, slices: int, cases: int, progress: Callable[[int, int], None]) -> None:
        self._context = context
        self._slices = slices
        self._cases = cases
        self._progress = progress
        self._done = threading.Event()
        self._group = f"sweep-{os.getpid()}-{time.monotonic_ns()}"
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._context.setJobGroup(self._group, "simulations")
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
        if exc[0] is None:
            self._progress(self._cases, self._cases)

    def _work(self) -> None:
        tracker = self._context.statusTracker()
        while not self._done.wait(_LOOK_S):
            tasks = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    found = tracker.getStageInfo(stage)
                    tasks += found.numCompletedTasks if found is not None else 0
            self._progress(self._cases * tasks // self._slices, self._cases)
