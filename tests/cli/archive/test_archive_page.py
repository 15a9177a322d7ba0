"""Examples of docs/guide/archive.md: each does as the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from pgm.archive.store.schema import COLUMNS
from pgm.topology.load import loads
from tests.cli.command import environment, invoked, pgm
from tests.net.support.pages import blocks, page
from tests.net.support.places import Place
from tests.net.support.processes import Process

PAGE = page("guide/archive.md")


def test_archive_page_explains_every_column() -> None:
    for column in COLUMNS:
        assert f"| `{column.name}` | {column.type} | {column.doc} |\n" in PAGE


def test_archive_page_topology_is_read() -> None:
    place = Place.new()
    text = (
        f'version = 1\nname = "page"\n[streams.s]\ndata_port = 7500\n{place.segment("lan")}\n{blocks(PAGE, "toml")[0]}'
    )
    node = loads(text).nodes["floor-2-repairer"]
    assert node.record is not None
    assert node.record.directory == "/var/lib/pgm/floor-2"


def test_archive_page_commands_and_program_run(tmp_path: Path) -> None:
    demo, ls, verify, cat, serve = (shlex.split(line)[1:] for line in blocks(PAGE, "sh")[0].splitlines())
    done = pgm(*[str(tmp_path / word) if word == "archives" else word for word in demo], "--json")
    assert done.code == 0, done
    for words in (ls, verify):
        assert invoked(*[tmp_path / word if word == "archives" else word for word in words]).code == 0
    at = cat.index(">")
    shown = pgm(*[str(tmp_path / word) if word == "archives" else word for word in cat[:at]], "--json")
    assert len(shown.out.splitlines()) == 10
    words = [str(tmp_path / word) if word == "archives" else word for word in serve]
    words[words.index("127.0.0.1:3057")] = "127.0.0.1:0"
    service = Process("serve", words)
    try:
        service.line_with("ready:")
        (port,) = re.findall(r"ready: .*:(\d+)$", service.log)
        program = blocks(PAGE, "python")[0].replace("3057", port)
        told = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=False
        )
        assert told.stdout.splitlines() == ["subnet-1 2000 2000", "subnet-2 2000 2000"], told
        assert service.stop() == 0
    finally:
        service.close()
