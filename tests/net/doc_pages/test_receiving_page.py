"""The examples of docs/guide/receiving.md, run unchanged but for these tests' own addresses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.net.support.places import Place

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "receiving.md"
SECONDS = 60


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def output_of(example: str, folder: Path, place: Place) -> list[str]:
    assert "239.192.79.1:3079" in example
    (folder / "example.py").write_text(example.replace("239.192.79.1:3079", f"{place.group()}:{place.port}"))
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_events(tmp_path: Path, place: Place) -> None:
    lines = output_of(examples()[2], tmp_path, place)
    assert lines[0].startswith("opened - ")
    assert lines[-1].startswith("closed-fin - ")


def test_a_snapshot(tmp_path: Path, place: Place) -> None:
    lines = output_of(examples()[1], tmp_path, place)
    assert lines == ["begins with ['ibm', 'sap']", "ends with {'ibm': 100, 'sap': 250}"]


def test_a_slow_application(tmp_path: Path, place: Place) -> None:
    lines = output_of(examples()[0], tmp_path, place)
    assert lines[0].startswith("too slow: overrun Take messages faster")
    assert lines[-1] == "the last ones, up to 999: True"
