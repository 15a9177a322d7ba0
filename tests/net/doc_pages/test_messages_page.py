"""The examples of docs/guide/messages.md, unchanged but for this test's own addresses."""

from __future__ import annotations

from pathlib import Path

from tests.net.support.pages import PATIENCE_S, blocks, page, placed, started
from tests.net.support.places import Place

PAGE = page("guide/messages.md")


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    [tree] = blocks(PAGE, "toml")
    tree = placed(tree, place, "127.0.0", "239.192.77.1", 3077)
    (tmp_path / "tree.toml").write_text(tree)
    source, *receivers = blocks(PAGE, "python")
    # Two examples are the same node, whose address only one process can have.
    receivers[2] = receivers[2].replace('node="desk-1"', 'node="desk-3"')
    (tmp_path / "tree.toml").write_text(
        tree.replace(f"{place.net}.11", f"{place.net}.12").replace("count = 2", "count = 3")
    )

    running = [started(tmp_path, "-c", code) for code in receivers]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"
        sender = started(tmp_path, "-c", source)
        running.append(sender)
        each, many, values, sent = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()
    assert sent == ""
    assert each.splitlines()[:2] == ["/nasdaq/ibm b'101.25'", "/nasdaq/ibm b'halt'"]
    assert each.splitlines()[3:] == ["/lse/bp b'1'", "/lse/shel b'22'", "/nasdaq/ibm b'if there is room'"]
    assert many == "2000 prices, 999,000 in all\n"
    assert values == "101.5\n"
