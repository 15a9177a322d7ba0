"""Files of an older version, from the history of this checkout."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.net.support.lab import ROOT

# The last commit with version 0.1.0 in pyproject.toml. The next release names the last commit of 0.2.0 here.
BEFORE = "253188552d29ae13dd1de66b6ddc68add92d9eaa"
_PACKAGES = ("pgm", "aggregator", "repairer", "deploy")


def why_not(commit: str = BEFORE) -> str:
    """Return why the files of a commit are not available here; empty if they are."""
    try:
        done = subprocess.run(
            ["git", "cat-file", "-e", f"{commit}^{{tree}}"], cwd=ROOT, capture_output=True, check=False
        )
    except OSError as error:
        return f"needs git: {error}"
    return "" if done.returncode == 0 else f"this checkout has no commit {commit}: git fetch --unshallow"


def unpack(commit: str, folder: Path) -> Path:
    """Write the packages of a commit into a folder. Return the folder."""
    packed = subprocess.run(["git", "archive", commit, *_PACKAGES], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder
