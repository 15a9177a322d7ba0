"""Many runs of one function as a Spark job: tasks outweigh their start, results are in order, with progress."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import attrs
from pyspark import SparkContext
from pyspark.sql import SparkSession

from pgm.core_usage import CoreUsage

Case = TypeVar("Case")
Result = TypeVar("Result")

_TASK_S = 0.6  # least work of a task, since starting a task takes time
_POLL_S = 0.5  # between two polls of a job's progress


@attrs.define
class Sweep:
    """Parallel runs of `function` over cases on `spark`.

    Function and cases must be picklable, and importable in Spark's workers. `seconds` is the expected time of a run,
    corrected by measured times. `progress` receives the number of finished runs and the total.
    """

    spark: SparkSession
    function: Callable[[Any], Any]
    seconds: float
    progress: Callable[[int, int], None] = lambda *_: None
    usage: CoreUsage = attrs.field(factory=CoreUsage)

    def run(self, cases: Sequence[Any]) -> list[Any]:
        """Return the results in order of the cases. An exception of a run ends the job."""
        if not cases:
            return []
        context = self.spark.sparkContext
        self.usage.cores = context.defaultParallelism
        slices = self._slices(len(cases))
        monitor = _ProgressMonitor(context, slices, len(cases), self.progress)
        function = self.function
        began = time.monotonic()
        with monitor:
            rows = context.parallelize(cases, slices).mapPartitions(lambda part: _timed(function, part)).collect()
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


class _ProgressMonitor:
    """Thread that asks Spark for the progress of a job."""

    def __init__(self, context: SparkContext, slices: int, cases: int, progress: Callable[[int, int], None]) -> None:
        self._context = context
        self._slices = slices
        self._cases = cases
        self._progress = progress
        self._done = threading.Event()
        self._group = f"sweep-{os.getpid()}-{time.monotonic_ns()}"
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> None:
        self._context.setJobGroup(self._group, "simulations")
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
        if exc[0] is None:
            self._progress(self._cases, self._cases)

    def _poll(self) -> None:
        tracker = self._context.statusTracker()
        while not self._done.wait(_POLL_S):
            tasks = 0
            for job in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    stage_info = tracker.getStageInfo(stage)
                    tasks += stage_info.numCompletedTasks if stage_info is not None else 0
            self._progress(self._cases * tasks // self._slices, self._cases)
