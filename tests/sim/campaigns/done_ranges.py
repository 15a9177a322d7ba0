"""File of done ranges of seeds, from which a campaign resumes. A line is a JSON object for one task."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from pgm.errors import UsageError
from tests.sim.campaigns.campaign import TaskResult


class DoneRanges:
    """Seeds that have passed, by kind. Failed seeds run again, so a mend is tested by the same command."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._done: dict[str, set[int]] = defaultdict(set)
        for line in file.read_text().splitlines() if file is not None and file.exists() else ():
            try:
                row = json.loads(line)
                self._add(row["kind"], range(row["first"], row["first"] + row["count"]), row["failed"])
            except (ValueError, KeyError, TypeError) as error:
                # The last line of a campaign that was killed may be cut off; any other line is not ours.
                if line.startswith("{"):
                    continue
                raise UsageError(
                    f"{file} is no file of done seeds: {line[:40]!r}", remedy="name another file"
                ) from error

    def _add(self, kind: str, seeds: range, failed: list[int]) -> None:
        self._done[kind].update(seeds)
        self._done[kind].difference_update(failed)

    def left(self, kind: str, seeds: range) -> list[int]:
        """Return the seeds that have not passed, in order."""
        done = self._done[kind]
        return [seed for seed in seeds if seed not in done]

    def add(self, result: TaskResult) -> None:
        """Note a task, in the file too."""
        task, failed = result.task, [one.seed for one in result.failed]
        self._add(task.kind, task.seeds, failed)
        if self._file is not None:
            row = {"kind": task.kind, "first": task.first, "count": task.count, "failed": failed}
            with self._file.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
