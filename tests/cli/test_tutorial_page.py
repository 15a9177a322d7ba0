"""The commands and the program of docs/start/tutorial.md do what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command import invoked
from tests.net.support.pages import blocks, page
from tests.net.support.places import Place

PAGE = page("start/tutorial.md")
COMMANDS = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("pgm ")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The tree of the page, with addresses of this test's own."""
    core, floor = Place.new(), Place.new()
    [text] = blocks(PAGE, "toml")
    for net, group, place in (("127.0.81", "239.192.81.1", core), ("127.0.82", "239.192.82.1", floor)):
        text = text.replace(f"{net}.", f"{place.net}.").replace(group, place.group())
    (tmp_path / "tree.toml").write_text(text.replace("3081", f"{core.port}"))
    return tmp_path / "tree.toml"


@pytest.mark.parametrize("command", ["check", "plan", "sim"])
def test_tutorial_commands_without_packets_succeed(command: str, tree: Path) -> None:
    [line] = [line for line in COMMANDS if line.startswith(f"pgm {command} ")]
    done = invoked(*[tree if word == "tree.toml" else word for word in shlex.split(line, comments=True)[1:]])
    assert done.code == 0, done
    if command == "sim":
        last = done.out.rstrip().splitlines()[-1]
        assert f"`{last}`" in PAGE
        source = re.search(r"^exchange +[\d,]+ +(\d+) +(\d+) +(\d+) +(\d+)", done.out, re.MULTILINE)
        assert source is not None
        assert set(source.groups()) == {"0"}
