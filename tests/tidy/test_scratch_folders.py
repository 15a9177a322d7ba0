"""Folders and addresses of the tests themselves.

No folder stays behind, however a run ends, and no address is used twice at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import short_folder, sweep
from tests.net.support.lab import ROOT
from tests.net.support.places import Place
from tests.net.support.processes import processes

_MAKES_ONE = """
from tests.folders import short_folder
with short_folder() as folder:
    print(folder, flush=True)
    input()
"""


def test_scratch_folders_of_killed_runs_are_swept() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MAKES_ONE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        assert folder.is_dir()
        assert folder not in sweep(0)
        run.kill()
    assert folder.is_dir()
    assert folder not in sweep(3600)
    assert folder in sweep(0)
    assert not folder.exists()


def test_scratch_folder_is_removed_after_a_failure() -> None:
    with pytest.raises(KeyError), short_folder() as folder:
        raise KeyError
    assert not folder.exists()

    class UnclosableProcess:
        def close(self) -> None:
            raise TimeoutError

    with pytest.raises(TimeoutError), processes("", "none") as made:
        made.all += [UnclosableProcess(), UnclosableProcess()]  # type: ignore[list-item]
    assert not made.folder.exists()


_TAKES_PLACES = """
from tests.net.support.places import Place, _Next
_Next.number = {number} + 24_000  # another number, but the same port
print([Place.new().port for _ in range(3)], flush=True)
input()
"""


def test_places_of_two_processes_have_distinct_addresses() -> None:
    mine = [Place.new() for _ in range(2)]
    with subprocess.Popen(
        [sys.executable, "-c", _TAKES_PLACES.format(number=mine[0].number)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        theirs = json.loads(other.stdout.readline())
        next_ones = [Place.new() for _ in range(3)]
        assert len({*theirs, *(one.port for one in mine + next_ones)}) == 8
        other.communicate("\n")
