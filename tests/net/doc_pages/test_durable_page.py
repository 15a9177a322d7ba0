"""The example of docs/guide/durable.md with SQLite, run unchanged but for this test's own address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.net.support.places import Place

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "durable.md"
SECONDS = 60


def test_stored_positions_give_every_row_once(tmp_path: Path, place: Place) -> None:
    [_, example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "239.192.79.1:3079" in example
    (tmp_path / "example.py").write_text(example.replace("239.192.79.1:3079", f"{place.group()}:{place.port}"))
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["(1000, 1000)"]
