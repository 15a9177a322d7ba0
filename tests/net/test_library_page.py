"""The examples of docs/library.md, as they stand there, but for addresses of this test's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs

import pgm
from tests.net.lab import ROOT
from tests.net.places import Place

PATIENCE_S = 60
PAGE = (ROOT / "docs" / "library.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    [tree] = blocks("toml")
    tree = (
        tree.replace("127.0.80.", f"{place.net}.")
        .replace("239.192.80.1", place.group())
        .replace("3080", f"{place.port}")
    )
    (tmp_path / "tree.toml").write_text(tree)
    *receivers, source = blocks("python")

    def start(code: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )

    running = [start(code) for code in receivers]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"
        running.append(start(source))
        trio, threads, busy, sent = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert trio.splitlines() == [
        f"a stream of {place.net}.1 begins",
        "the stream ended: fin",
        "5000 messages, 0 packets lost, repaired some: True",
    ]
    assert trio.splitlines()[-1] in PAGE
    assert threads.splitlines()[-1] == "5000 messages"
    assert busy == "5000 messages, 70000 octets\n"
    assert sent == ""


def test_the_table_of_items_has_all_their_fields() -> None:
    for kind in (pgm.Opened, pgm.Message, pgm.Lost, pgm.Closed, pgm.Batch):
        [row] = re.findall(rf"^\| `{kind.__name__}`.*?\| (.*?) \|", PAGE, re.MULTILINE)
        shown = {name.strip("`") for name in row.split(", ")}
        fields = {one.name for one in attrs.fields(kind)}
        assert shown == {name.lstrip("_") for name in fields}, kind
