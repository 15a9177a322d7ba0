"""The commands of docs/guide/security.md print what the page shows, but for ids, days and folders."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from pgm.topology.load import loads
from pgm.trust.public_keys import KeyState
from tests.cli.command import invoked
from tests.net.support.lab import ROOT
from tests.net.support.pages import blocks, page

PAGE = page("guide/security.md")


def without_names(text: str) -> str:
    """Return a text with one word for each id of keys, each day and each folder of private files."""
    text = re.sub(r"\b[a-z2-7]{16}\b", "ID", text)
    return re.sub(r"\S+/pgm/keys/", "KEYS/", re.sub(r"\d{4}-\d\d-\d\d", "DAY", text))


def test_tutorial_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "deploy/topologies/trading-floor.toml", tmp_path / "tree.toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PGM_KEY_DIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tutorial = PAGE.partition("## Five commands")[2].partition("\n## ")[0]
    told = re.findall(r"^```(\w*)\n(.*?)^```$", tutorial, re.DOTALL | re.MULTILINE)
    shown = iter([text for language, text in told if not language])
    for commands in [text for language, text in told if language == "sh"]:
        done = [invoked(*shlex.split(line, comments=True)[1:]) for line in commands.splitlines()]
        assert without_names("".join(one.out for one in done)) == without_names(next(shown))
        assert [one.err for one in done] == [""] * len(done)
    refused = invoked("run", "tree.toml", "--node", "exchange", "--idle")
    assert without_names(refused.err) == without_names(next(shown))
    [entries] = [text for text in blocks(PAGE, "toml") if text.startswith("[keys]")]
    assert without_names((tmp_path / "tree.toml").read_text()).endswith('[revoked]\nID = "DAY exchange: disk sold"\n')
    read = loads((ROOT / "deploy/topologies/trading-floor.toml").read_text() + entries)
    [keys] = read.keys["exchange"]
    assert keys.state_on(keys.first_day, read.revoked) is KeyState.VALID
