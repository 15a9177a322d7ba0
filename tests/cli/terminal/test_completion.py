"""Completion in shells, and man pages: both follow the commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from deploy.cli import main
from tests.cli.command import invoked
from tests.net.support.lab import ROOT

DEMO = ROOT / "deploy/topologies/loopback-demo.toml"


def completed(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """Return what a shell offers for the last of some words."""
    monkeypatch.setenv("COMP_WORDS", " ".join(["pgm", *words]))
    shell = BashComplete(main, {}, "pgm", "_PGM_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_shells_complete_commands_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(completed(monkeypatch, "re")) == {"recv", "record", "replay", "report", "render"}
    assert "--telemetry" in completed(monkeypatch, "run", "--te")


@pytest.mark.parametrize("command", ["run", "status", "ctl", "plan", "doctor", "render", "record"])
def test_shells_complete_names_of_nodes(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    assert completed(monkeypatch, command, str(DEMO), "--node", "east-r") == ["east-repairer"]
    assert completed(monkeypatch, command, "--node", "east-r") == []
    assert completed(monkeypatch, command, "/dev/null", "--node", "east-r") == []


@pytest.mark.filterwarnings("ignore:'click.utils.make_default_short_help':DeprecationWarning")  # used by click-man
def test_each_command_has_a_man_page(tmp_path: Path) -> None:
    done = invoked("manual", "--out", tmp_path, "--json")
    assert done.code == 0, done
    names = {"pgm", *(f"pgm-{name}" for name in main.list_commands(None))}
    assert {file.stem for file in tmp_path.iterdir()} == names
    text = (tmp_path / "pgm-up.1").read_text()
    assert ".nf\npgm demo --write tree.toml && pgm up tree.toml --generate 10000\n" in text
    assert "\x08" not in text
    if shutil.which("groff"):
        judged = ["groff", "-man", "-ww", "-Tutf8", str(tmp_path / "pgm-up.1")]
        done = subprocess.run(judged, capture_output=True, text=True, check=True)
        assert done.stderr == ""
