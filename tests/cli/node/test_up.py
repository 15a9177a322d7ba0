"""`pgm up`: its report about the nodes at the end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import PATIENCE_S, command, environment, marked
from tests.net.support.places import Place, one_segment


def end(pid: int) -> None:
    """End a process by SIGTERM and wait until its parent can see the end."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        assert select.select([process], [], [], PATIENCE_S)[0], "the process does not end"
    finally:
        os.close(process)


@pytest.mark.parametrize("ended", ["desk-1", "source", ""])
def test_up_names_nodes_that_ended_early(tmp_path: Path, ended: str) -> None:
    """The node is named although it ended without an error."""
    (tmp_path / "tree.toml").write_text(one_segment(Place.new()))
    with marked() as mark:
        line = command("up", tmp_path / "tree.toml")
        up = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment(**mark.env))
        assert up.stderr is not None
        while "nodes run" not in up.stderr.readline():
            assert up.poll() is None
        if ended:
            [pid] = [one for one in mark.running() if f"--node\0{ended}\0" in Path(f"/proc/{one}/cmdline").read_text()]
            end(pid)
        up.send_signal(signal.SIGINT)
        _, said = up.communicate(timeout=PATIENCE_S)
        mark.until_nothing_runs()
    assert up.returncode == (1 if ended else 0), said
    assert ("ended by themselves" in said) == bool(ended)
    assert f"ended by themselves: {ended}\n" in said or not ended
