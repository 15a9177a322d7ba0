"""Limits of the input that a process accepts: endless lines, and folders of other users."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import IO

import pytest

from pgm.errors import ProcessError
from pgm.net.control.status_socket import serve_status
from tests.cli.command import pgm
from tests.net.support.places import Place, one_segment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
async def test_status_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with pytest.raises(ProcessError, match="belongs to another user") as caught:
        await serve_status(folder / "desk-1.sock", dict)
    assert "PGM_RUNTIME_DIR" in caught.value.remedy


def test_send_endless_line_is_refused_at_the_size_limit(tmp_path: Path) -> None:
    """The command ends before the rest of the input arrives."""
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place.new(), parameters='max_apdu = "64KiB"'))
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as feed:
        filler = threading.Thread(target=_fill, args=(feed,))
        filler.start()
        ended = pgm("run", file, "--node", "source", stdin=source)
        source.close()
        filler.join()
    assert ended.code == 2, ended
    assert "octets or more does not fit: the limit is 65536" in ended.err
    assert "raise max_apdu" in ended.err
    assert "Traceback" not in ended.err


def _fill(feed: IO[bytes]) -> None:
    """Write without a newline until the reader has closed the pipe."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            feed.write(bytes(65_000))
