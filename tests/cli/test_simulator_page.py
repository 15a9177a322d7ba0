"""The commands of the pages on simulation and prediction run as printed, on the tree that the pages make."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.command import invoked
from tests.net.support.pages import blocks, page

ROOT = Path(__file__).resolve().parents[2]
_NEEDS = (
    "--spark",
    "--telemetry",
    "machine",
    "subnets.toml",
)  # Spark, a run of the demo, a measurement, a million nodes


def _commands(path: str, *beginning: str) -> list[list[str]]:
    lines = [shlex.split(line) for block in blocks(page(path), "sh") for line in block.splitlines()]
    return [
        words for words in lines if (*words[:2],) == beginning and not any(one in " ".join(words) for one in _NEEDS)
    ]


def test_page_commands_run_on_the_tree_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, predicted = _commands("guide/simulator.md", "pgm", "sim"), _commands("guide/predict.md", "pgm", "plan")
    assert (len(simulated), len(predicted)) == (5, 3)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    assert invoked("demo", "--write", "tree.toml").code == 0
    for words in simulated:
        few = ("--count", "desk-*=20") if "desk-*=1000" in words else ()
        done = invoked(*words[1:], "--messages", "20", *few)
        assert done.code == 0, (words, done)
    for words in predicted:
        done = invoked(*words[1:])
        assert done.code == 0, (words, done)
