"""The examples of docs/guide/flow-control.md, run unchanged but for this test's own addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.net.support.pages import blocks, page
from tests.net.support.places import Place

PAGE = page("guide/flow-control.md")
SECONDS = 60


def block(language: str) -> str:
    """Return the page's only example in a language."""
    [found] = blocks(PAGE, language)
    return found


def test_the_example_of_an_acknowledged_stream(tmp_path: Path, place: Place) -> None:
    tree = block("toml").replace("127.0.77.", f"{place.net}.")
    assert tree.count(f"{place.net}.") == 5
    here = tree.replace('"239.192.77.1"', f'"{place.group()}"\nport = {place.port}')
    assert here != tree
    (tmp_path / "tree.toml").write_text(here)
    (tmp_path / "example.py").write_text(block("python"))
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "every member has them"
    assert sorted(done.stdout.splitlines()[1:]) == ["desk-1 got 10001 messages", "desk-2 got 10001 messages"]


def test_the_tree_of_the_page_passes_a_strict_check(tmp_path: Path) -> None:
    (tmp_path / "tree.toml").write_text(block("toml"))
    done = subprocess.run(
        [sys.executable, "-m", "deploy", "check", "tree.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
