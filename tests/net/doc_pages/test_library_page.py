"""The examples of docs/guide/library.md, unchanged but for this test's own addresses."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

import pgm
from tests.net.support.pages import PATIENCE_S, blocks, page, placed, started
from tests.net.support.places import Place

PAGE = page("guide/library.md")


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    [tree] = blocks(PAGE, "toml")
    tree = placed(tree, place, "127.0.80", "239.192.80.1", 3080)
    (tmp_path / "tree.toml").write_text(tree)
    *receivers, source, many = blocks(PAGE, "python")

    running = [started(tmp_path, "-c", code) for code in receivers]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"
        running.append(started(tmp_path, "-c", source))
        trio, threads, busy, sent = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
        running.append(started(tmp_path, "-c", many))
        assert running[-1].communicate(timeout=PATIENCE_S)[0] == "[b'from another', b'from one source']\n"
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
