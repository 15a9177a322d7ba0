"""The examples of docs/receiving.md, run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "receiving.md"
SECONDS = 60


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def output_of(example: str, folder: Path) -> list[str]:
    (folder / "example.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_events(tmp_path: Path) -> None:
    lines = output_of(examples()[0], tmp_path)
    assert lines[0].startswith("opened - ")
    assert lines[-1].startswith("closed-fin - ")


def test_a_slow_application(tmp_path: Path) -> None:
    lines = output_of(examples()[1], tmp_path)
    assert lines[0].startswith("too slow: overrun Take messages faster")
    assert lines[-1] == "the last ones, up to 999: True"
