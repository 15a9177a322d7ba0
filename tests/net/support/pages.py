"""Examples of a page of the docs, as they stand there, but for addresses of a test's own."""

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
    """A topology file of a page at a test's own place."""
    moved = text.replace(f"{net}.", f"{place.net}.").replace(group, place.group())
    return moved.replace(f"{port}", f"{place.port}")


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A Python that has nothing but this project."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
