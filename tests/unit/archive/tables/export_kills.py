"""Exports that are killed as real processes: the table then equals the archive.

`python -m tests.unit.archive.tables.export_kills --kills 40` kills at random moments, for both kinds of tables, while
the archive grows between the runs.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import tempfile
from pathlib import Path

from pgm.archive.tables.opening import KINDS
from tests.cli.command import command, environment
from tests.unit.archive.tables.tables import archive_of, archive_rows, exported, parts, table_rows

_EACH = 1000
_LEAST_S = 0.3  # the start of the interpreter


def run(kind: str, folder: Path, kills: int, *, after_lines: int | None = None, seed: int = 1) -> int:
    """Kill exports, after lines of progress or at random moments; return how many were killed. Check the table."""
    drawn = random.Random(seed)
    directory, root = folder / "archive", folder / "table"
    killed = 0
    for turn in range(kills):
        archive_of(directory, parts(_EACH * turn, _EACH))
        line = command("archive", "export", directory, "--to", kind, root, "--compact")
        line += ["--set", "table_commit_bytes=8KiB", "--set", "table_keep_ivl=0s"]
        process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment())
        assert process.stderr is not None
        try:
            if after_lines is None:
                process.stderr.readline()  # the first commit is there
                process.wait(drawn.uniform(0, _LEAST_S))
            else:
                for _ in range(after_lines):
                    process.stderr.readline()
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.stderr.close()
        killed += process.wait() == -signal.SIGKILL
    exported(kind, directory, root)
    assert table_rows(kind, root).equals(archive_rows(directory)), f"the table of {kind} differs from the archive"
    return killed


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40, help="for each kind")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            killed = run(kind, Path(folder), given.kills, seed=given.seed)
            print(
                f"{kind}: {killed} of {given.kills} exports killed, the table has every row of the archive once",
                flush=True,
            )


if __name__ == "__main__":
    main()
