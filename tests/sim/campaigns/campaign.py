"""Campaigns by seed: many drawn scenarios, in processes of this machine or in tasks of Spark.

A task is a range of seeds of one kind. A seed is bounded in processor time, and a process in memory.
"""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator

import attrs

from pgm.sim.invariant_broken import InvariantBroken
from pgm.units import MIB
from tests.sim.campaigns.kinds import KINDS, Kind

SEED_S = 300.0  # processor time after which a seed counts as failed: the slowest take some 20 s
TASK_OCTETS = 1536 * MIB  # data segment of a process: the largest scenarios take some 200 MiB
TASK_SEEDS = 20


class SeedTimeoutError(Exception):
    """A seed has used more processor time than `SEED_S`."""


@attrs.frozen
class Task:
    """Seeds from `first` to `first + count - 1` of a kind."""

    kind: str
    first: int
    count: int

    @property
    def seeds(self) -> range:
        """The seeds."""
        return range(self.first, self.first + self.count)


@attrs.frozen
class Attempt:
    """Result of a seed: what came of it, and what broke, or an empty text."""

    seed: int
    seconds: float
    outcome: str
    broke: str


@attrs.frozen
class TaskResult:
    """Results of a task."""

    task: Task
    attempts: tuple[Attempt, ...]

    @property
    def failed(self) -> list[Attempt]:
        """The failed seeds."""
        return [one for one in self.attempts if one.broke]


def attempt(run: Callable[[int], object], seed: int) -> Attempt:
    """Run one seed. An exception in a core counts as a failure of the seed."""
    begun = time.perf_counter()
    outcome, broke = "", ""
    try:
        outcome = str(run(seed))
    except InvariantBroken as broken:
        broke = str(broken)
    except Exception:
        broke = f"seed {seed} raised\n{traceback.format_exc()}"
    return Attempt(seed, time.perf_counter() - begun, outcome, broke)


def run_task(task: Task) -> TaskResult:
    """Run the seeds of a task within the limits of time and memory, which then hold for this process."""
    resource.setrlimit(resource.RLIMIT_DATA, (TASK_OCTETS, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    signal.signal(signal.SIGPROF, _raise_timeout)
    attempts = []
    for seed in task.seeds:
        signal.setitimer(signal.ITIMER_PROF, SEED_S)
        try:
            attempts.append(attempt(KINDS[task.kind].run, seed))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return TaskResult(task, tuple(attempts))


def _raise_timeout(*_: object) -> None:
    raise SeedTimeoutError(f"the seed has used {SEED_S:.0f} s of processor time")


def tasks_of(kind: str, seeds: Iterable[int], most: int = TASK_SEEDS) -> Iterator[Task]:
    """Yield tasks of at most `most` seeds that cover ascending seeds."""
    first = count = 0
    for seed in seeds:
        if count and (seed != first + count or count == most):
            yield Task(kind, first, count)
            count = 0
        if not count:
            first = seed
        count += 1
    if count:
        yield Task(kind, first, count)


class Progress:
    """Count of the seeds that ran, and report of failures and progress by `say`."""

    def __init__(self, seeds: int, say: Callable[[str], None], *, verbose: bool = False) -> None:
        self.failed: list[tuple[str, int]] = []
        self._seeds = seeds
        self._say = say
        self._verbose = verbose
        self._done = self._packets = 0
        self._begun = time.perf_counter()

    def add(self, result: TaskResult) -> None:
        """Report the failures of a task, with the command that repeats each, and how far the campaign is."""
        kind = KINDS[result.task.kind]
        for one in result.attempts:
            if one.broke:
                self.failed.append((kind.name, one.seed))
                self._say(
                    f"FAILED {kind.name} after {one.seconds:.1f} s: {one.broke}\n  repeat: {kind.repeat(one.seed)}"
                )
            elif self._verbose:
                self._say(f"{kind.describe(one.seed)}\n  {one.seconds:.1f} s: {one.outcome}")
        self._done += result.task.count
        self._packets += result.task.count * kind.packets
        if not self._verbose:
            self._say(self._line(kind))

    def _line(self, kind: Kind) -> str:
        seconds = time.perf_counter() - self._begun
        left = (self._seeds - self._done) * seconds / max(1, self._done)
        packets = f", {self._packets:,} mutated packets" if self._packets else ""
        return (
            f"{kind.name}: {self._done:,} of {self._seeds:,} seeds{packets}, {len(self.failed)} failed, "
            f"{seconds:.0f} s, {left / 60:.0f} min left"
        )

    def verdict(self) -> str:
        """Return the last line."""
        failed = ", ".join(f"{kind} {seed}" for kind, seed in self.failed)
        return f"{self._done:,} seeds in {time.perf_counter() - self._begun:.0f} s: " + (
            f"failed: {failed}" if failed else "all good"
        )
