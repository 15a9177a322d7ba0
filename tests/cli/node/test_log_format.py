"""`pgm run --log-format`: lines of the log as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import pgm
from tests.net.support.places import Place, one_segment

KEYS = ["time", "level", "code", "node", "stream", "tsi", "segment", "text", "remedy"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new()))
    return file


def run_source(tree: Path, *options: str) -> list[str]:
    """Return the lines that a source with ten messages logs."""
    done = pgm("run", tree, "--node", "source", "--generate", "10", *options)
    assert done.code == 0
    return done.err.splitlines()


def test_run_log_as_json_has_documented_fields(tree: Path) -> None:
    rows = [json.loads(line) for line in run_source(tree, "--log-format", "json")]
    assert {"ready", "account"} <= {row["code"] for row in rows}
    for row in rows:
        assert list(row) == KEYS
        assert row["node"] == "source"
        assert row["level"] in ("info", "warning", "error")
        assert row["text"]
    [ready] = [row for row in rows if row["code"] == "ready"]
    assert (ready["level"], ready["text"]) == ("info", "source source runs")


def test_run_log_as_text_is_the_default(tree: Path) -> None:
    lines = run_source(tree)
    assert "ready: source source runs" in lines
    assert any(line.startswith("account: ") for line in lines)
