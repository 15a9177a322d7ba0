"""The examples of docs/files.md, as they stand there, but for addresses of this test's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.net.lab import ROOT
from tests.net.places import Place

PATIENCE_S = 60
PAGE = (ROOT / "docs" / "files.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_examples_do_what_the_page_says(place: Place, tmp_path: Path) -> None:
    [tree] = blocks("toml")
    tree = (
        tree.replace("127.0.78.", f"{place.net}.")
        .replace("239.192.78.1", place.group())
        .replace("3078", f"{place.port}")
    )
    (tmp_path / "tree.toml").write_text(tree)
    (tmp_path / "photos" / "2026").mkdir(parents=True)
    (tmp_path / "photos" / "2026" / "cat.jpg").write_bytes(b"a cat")
    (tmp_path / "big.iso").write_bytes(bytes(range(256)) * 10_000)
    receive, send = [line.split()[1:] for text in blocks("sh") for line in text.splitlines()]
    receiver, sender = blocks("python")

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        )

    running = [start("-c", receiver)]
    try:
        assert running[0].stdout is not None
        assert running[0].stdout.readline() == "listening\n"
        running.append(start("-m", "deploy", *receive))
        running.append(start("-m", "deploy", *send, "--receivers", "2"))
        said = [one.communicate(timeout=PATIENCE_S)[0] for one in running]
        assert said[0] == "True 2\n"
        assert [one.returncode for one in running] == [0, 0, 0]
        for folder in ("downloads", "elsewhere"):
            assert (tmp_path / folder / "photos" / "2026" / "cat.jpg").read_bytes() == b"a cat"
            assert (tmp_path / folder / "big.iso").read_bytes() == (tmp_path / "big.iso").read_bytes()
        again = start("-c", receiver.replace('"elsewhere"', '"third"'))
        running.append(again)
        assert again.stdout is not None
        assert again.stdout.readline() == "listening\n"
        running.append(start("-c", sender))
        assert running[-1].communicate(timeout=PATIENCE_S)[0] == "1 1\n"
        assert again.communicate(timeout=PATIENCE_S)[0] == "True 2\n"
    finally:
        for one in running:
            one.kill()
            one.wait()
