"""Output of `pgm send` and `pgm record` on a terminal: a moving progress line, and other lines apart from it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path

from tests.cli.command import PATIENCE_S, command, environment
from tests.net.support.places import Place, one_segment


class Terminal:
    """Command whose standard error is a terminal; `text` is the whole output there."""

    def __init__(self, *arguments: str | Path) -> None:
        self.text = ""
        self._ready = threading.Event()
        self._master, slave = os.openpty()
        self.process = subprocess.Popen(
            command(*arguments), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=slave, env=environment()
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while octets := os.read(self._master, 4096):
                self.text += octets.decode()
                if "ready:" in self.text:
                    self._ready.set()
        except OSError:  # all processes have closed the other end
            pass

    def wait_ready(self) -> None:
        assert self._ready.wait(PATIENCE_S), self.text

    def end(self) -> list[str]:
        """Return the final lines, without overwritten text."""
        try:
            assert self.process.wait(PATIENCE_S) == 0, self.text
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE_S)
            os.close(self._master)
            if self.process.stdin is not None:
                self.process.stdin.close()
        return [line.rpartition("\r")[2] for line in self.text.replace("\r\n", "\n").split("\n")]


def test_terminal_no_text_follows_the_progress_line(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new()))
    desk = Terminal("record", file, "--node", "desk-1", "--dir", tmp_path / "archive", "--until-closed")
    try:
        desk.wait_ready()
        source = Terminal("send", file, "--node", "source")
        source.process.communicate(b"some octets", PATIENCE_S)
        said, recorded = source.end(), desk.end()
    finally:
        desk.process.kill()
    assert any(line.startswith("sent ") for line in said), said
    assert any(
        line.endswith("serving: all messages are sent; serving repairs until no more NAKs come") for line in said
    )
    assert any(re.fullmatch(r"recorded .* MB queued +", line) for line in recorded), recorded
    for beginning in ("opened: ", "closed-fin: ", "account: "):
        assert any(beginning in line for line in recorded), recorded
