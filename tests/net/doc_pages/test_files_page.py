"""The examples of docs/guide/files.md, unchanged but for this test's own addresses."""

from __future__ import annotations

from pathlib import Path

from tests.net.support.pages import PATIENCE_S, blocks, page, placed, started
from tests.net.support.places import Place

PAGE = page("guide/files.md")


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    [tree] = blocks(PAGE, "toml")
    tree = placed(tree, place, "127.0.78", "239.192.78.1", 3078)
    (tmp_path / "tree.toml").write_text(tree)
    (tmp_path / "photos" / "2026").mkdir(parents=True)
    (tmp_path / "photos" / "2026" / "cat.jpg").write_bytes(b"a cat")
    (tmp_path / "big.iso").write_bytes(bytes(range(256)) * 10_000)
    receive, send = [line.split()[1:] for text in blocks(PAGE, "sh") for line in text.splitlines()]
    receiver, sender = blocks(PAGE, "python")

    running = [started(tmp_path, "-c", receiver)]
    try:
        assert running[0].stdout is not None
        assert running[0].stdout.readline() == "listening\n"
        running.append(started(tmp_path, "-m", "deploy", *receive))
        running.append(started(tmp_path, "-m", "deploy", *send, "--receivers", "2"))
        said = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
        assert said[0] == "True 2\n"
        assert [one.returncode for one in running] == [0, 0, 0]
        for folder in ("downloads", "elsewhere"):
            assert (tmp_path / folder / "photos" / "2026" / "cat.jpg").read_bytes() == b"a cat"
            assert (tmp_path / folder / "big.iso").read_bytes() == (tmp_path / "big.iso").read_bytes()
        again = started(tmp_path, "-c", receiver.replace('"elsewhere"', '"third"'))
        running.append(again)
        assert again.stdout is not None
        assert again.stdout.readline() == "listening\n"
        running.append(started(tmp_path, "-c", sender))
        assert running[-1].communicate(timeout=PATIENCE_S)[0] == "1 1\n"
        assert again.communicate(timeout=PATIENCE_S)[0] == "True 2\n"
    finally:
        for one in running:
            one.kill()
            one.wait()
