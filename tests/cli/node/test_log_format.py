"""`--log-format`: lines of the log as text, as JSON and for the journal."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import PATIENCE_S, command, environment, invoked, pgm
from tests.net.support.places import Place, one_segment

KEYS = ["time", "level", "code", "node", "stream", "tsi", "segment", "text", "remedy", "count"]


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


def test_run_log_as_text_has_time_and_level(tree: Path) -> None:
    lines = run_source(tree)
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    "
    assert any(re.fullmatch(stamp + "ready: source source runs", line) for line in lines), lines
    assert all(re.match(stamp, line) or " rcvbuf: " in line or "remedy" in line for line in lines), lines


def test_run_log_to_the_journal_has_priorities_without_time(tree: Path) -> None:
    """The journal takes a level from the beginning of a line, and has a time of its own."""
    read, write = os.pipe()
    try:
        status = os.fstat(write)
        journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        line = command("run", tree, "--node", "source", "--generate", "10")
        subprocess.run(line, stderr=write, env=environment(**journal), check=True, timeout=PATIENCE_S)
        said = os.read(read, 65536).decode().splitlines()
    finally:
        os.close(read)
        os.close(write)
    assert "<6>ready: source source runs" in said
    assert all(re.match("<[346]>", line) for line in said), said


@pytest.mark.parametrize("name", ["run", "up", "record", "serve", "monitor", "send", "recv"])
def test_log_format_is_an_option_of_all_long_commands(name: str) -> None:
    assert "--log-format" in invoked(name, "--help").out
