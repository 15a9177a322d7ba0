"""Examples of a page of the docs, unchanged but for a test's own addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.net.support.lab import ROOT
from tests.net.support.places import Place

PATIENCE_S = 60


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def placed(text: str, place: Place, net: str, group: str, port: int) -> str:
    """Return a topology file of a page with a test's own addresses."""
    moved = text.replace(f"{net}.", f"{place.net}.").replace(group, place.group())
    return moved.replace(f"{port}", f"{place.port}")


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process that has nothing but this project."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
