"""Tests of the campaigns' machinery: tasks, limits, file of done ranges, progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgm.errors import UsageError
from tests.sim.campaigns.campaign import Attempt, Progress, Task, TaskResult, attempt, tasks_of
from tests.sim.campaigns.done_ranges import DoneRanges
from tests.sim.campaigns.kinds import KINDS
from tests.sim.campaigns.run_seeds import main, options, seeds_of


def result(kind: str, first: int, count: int, *failed: int) -> TaskResult:
    attempts = tuple(Attempt(seed, 0.1, "", "broke" * (seed in failed)) for seed in range(first, first + count))
    return TaskResult(Task(kind, first, count), attempts)


def test_tasks_cover_seeds_with_holes():
    seeds = [*range(5), *range(9, 20)]
    tasks = list(tasks_of("plain", seeds, 4))
    assert [seed for task in tasks for seed in task.seeds] == seeds
    assert [task.count for task in tasks] == [4, 1, 4, 4, 3]
    assert list(tasks_of("plain", [])) == []


def test_done_ranges_resume_with_failed_seeds(tmp_path: Path):
    """Also after a campaign that was killed while it wrote a line."""
    file = tmp_path / "done.jsonl"
    done = DoneRanges(file)
    done.add(result("plain", 0, 10, 3))
    done.add(result("plain", 20, 5))
    with file.open("a") as lines:
        lines.write('{"kind": "plain", "fir')
    again = DoneRanges(file)
    assert again.left("plain", range(24)) == [3, *range(10, 20)]
    assert again.left("parity", range(3)) == [0, 1, 2]
    again.add(result("plain", 3, 1))
    assert again.left("plain", range(10)) == []


def test_done_ranges_refuse_other_files(tmp_path: Path):
    file = tmp_path / "notes.txt"
    file.write_text("buy milk\n")
    with pytest.raises(UsageError, match="no file of done seeds"):
        DoneRanges(file)


@pytest.mark.parametrize("kind", list(KINDS))
def test_failures_are_told_with_the_command_that_repeats_them(kind):
    told: list[str] = []
    progress = Progress(4, told.append)
    progress.add(result(kind, 6, 4, 7))
    assert told[0].startswith(f"FAILED {kind} ")
    words = told[0].split("run_seeds ")[1].split()
    given = options().parse_args(words)
    assert (given.kind, list(seeds_of(kind, given)), given.verbose) == (kind, [7], True)
    assert progress.verdict().endswith(f"failed: {kind} 7")


def test_exceptions_count_as_failures():
    def run(seed: int) -> str:
        raise ValueError(f"no {seed}")

    assert "ValueError: no 5" in attempt(run, 5).broke


def test_packets_decide_the_seeds_of_fuzzing_kinds_alone():
    given = options().parse_args(["--kind", "all", "--seeds", "7", "--packets", "10001"])
    assert {kind: len(seeds_of(kind, given)) for kind in ("plain", "fuzz", "fuzz-cores")} == {
        "plain": 7,
        "fuzz": 6,
        "fuzz-cores": 6,
    }


def test_a_campaign_resumes_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    words = ["run_seeds", "--kind", "fuzz-cores", "--done", str(tmp_path / "done.jsonl"), "--first", "5", "--seeds"]
    monkeypatch.setattr("sys.argv", [*words, "1"])
    assert main() == 0
    monkeypatch.setattr("sys.argv", [*words, "2"])
    assert main() == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(", ")[0] for line in lines if ":" in line and " of " in line] == ["fuzz-cores: 1 of 1 seeds"] * 2
