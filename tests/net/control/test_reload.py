"""Requests for changes of the topology file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgm.core.effects import Effect, Effects
from pgm.errors import UsageError
from pgm.net.control.reload import MOST_FILE_OCTETS, RunningPlan
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.node_links import NodeLinks
from pgm.topology.load import load
from pgm.topology.plan import plan_node
from tests.net.support.places import Place, one_segment
from tests.unit.core.source.sources import source


class _Nothing:
    """Application that takes nothing."""

    def take(self, effect: Effect) -> None:
        raise AssertionError(effect)

    def after(self) -> Effects:
        return ()


def test_request_reads_bounded_regular_files_of_the_folder_alone(tmp_path: Path) -> None:
    """A FIFO or a device would block the node, and other texts of errors would tell which paths exist."""
    folder = tmp_path / "tree"
    folder.mkdir()
    running, file = running_plan(folder)
    (tmp_path / "other.toml").write_text(file.read_text())
    (folder / "link.toml").symlink_to(tmp_path / "other.toml")
    (folder / "loop.toml").symlink_to("loop.toml")
    os.mkfifo(folder / "fifo.toml")
    with (folder / "large.toml").open("wb") as large:
        large.truncate(MOST_FILE_OCTETS + 1)
    beside = [folder / f"{name}.toml" for name in ("link", "loop", "fifo", "large", "absent")]
    for path in (*beside, tmp_path / "other.toml", tmp_path / "absent.toml", "/dev/zero", folder, "x\0"):
        for request in ({"old": str(path)}, {"old": str(file), "new": str(path)}):
            with pytest.raises(UsageError, match=r"is no file of at most 4 MiB beside tree\.toml"):
                running.answer({"do": "check", **request}, "somebody")
    (folder / "new.toml").write_text(file.read_text().replace('interval = "1s"', 'interval = "2s"'))
    row = running.answer({"do": "check", "old": str(file), "new": str(folder / "new.toml")}, "somebody")
    assert not row["restart"]


def running_plan(folder: Path) -> tuple[RunningPlan, Path]:
    """Return the plan of a source that runs, and its file."""
    file = folder / "tree.toml"
    file.write_text(one_segment(Place(1)))
    plan = plan_node(load(file), "source")
    driver = TrioDriver(source(), TrioReads(NodeLinks(())), _Nothing())
    return RunningPlan(plan, driver), file
