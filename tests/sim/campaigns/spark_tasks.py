"""Tasks of a campaign on Spark: two waves of tasks run at a time, and the results of each come back when it ends.

The driver holds two waves only. The executors need Python with the packages of the extra `test`; the code of this
working tree is sent to them.
"""

from __future__ import annotations

import itertools
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from pgm.spark.session import start, told_plainly
from tests.sim.campaigns.campaign import Task, TaskResult, run_task

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("pgm", "aggregator", "repairer", "deploy", "tests")
_WAVES = 2  # so that no executor waits for the slowest task of a wave
_TASKS_A_SLOT = 2  # of a wave
# The work is done in Python. The JVMs only carry tasks and results.
_SETTINGS = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.task.maxFailures": "4"}


def run_on_spark(tasks: Iterable[Task], master: str) -> Iterator[TaskResult]:
    """Run tasks on a Spark master; yield their results by wave. Raises `UsageError` or `ProcessError` of Spark."""
    session = start("pgm-campaign", master=master, settings=_SETTINGS, quick=True)
    context = session.sparkContext
    try:
        with tempfile.TemporaryDirectory(prefix="pgm-campaign-") as folder, ThreadPoolExecutor(_WAVES) as pool:
            if not str(context.master).startswith("local"):
                context.addPyFile(str(packed(Path(folder) / "pgm-campaign.zip")))
            rest, most = iter(tasks), _TASKS_A_SLOT * max(1, context.defaultParallelism)
            waves = iter(lambda: tuple(itertools.islice(rest, most)), ())

            def run_wave(wave: tuple[Task, ...]) -> list[TaskResult]:
                return list(context.parallelize(wave, len(wave)).map(run_task).collect())

            running: set[Future[list[TaskResult]]] = set()
            try:
                for wave in waves:
                    running.add(pool.submit(run_wave, wave))
                    if len(running) == _WAVES:
                        yield from _ended(running)
                while running:
                    yield from _ended(running)
            finally:
                context.cancelAllJobs()
    finally:
        session.stop()


def _ended(running: set[Future[list[TaskResult]]]) -> list[TaskResult]:
    """Wait for a wave, remove all ended waves, and return their results."""
    ended, _ = wait(running, return_when=FIRST_COMPLETED)
    running -= ended
    with told_plainly():
        return [result for one in ended for result in one.result()]


def packed(file: Path) -> Path:
    """Write the packages of the working tree as a zip that Python imports from."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _PACKAGES:
            for path in sorted((_ROOT / name).rglob("*.py")):
                archive.write(path, str(path.relative_to(_ROOT)))
    return file
