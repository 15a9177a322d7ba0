"""Requests for changes of the topology file: the files that a node reads, and a node that keeps a tape."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from pgm.core.effects import Effect, Effects, Notice
from pgm.core.source.source import SourceCore
from pgm.errors import UsageError
from pgm.net.control.reload import MOST_FILE_OCTETS, RunningPlan
from pgm.net.control.status_socket import snapshot_of
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.node_links import NodeLinks
from pgm.net.plan_digest import plan_digest
from pgm.topology.load import load
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_node
from tests.net.support.places import Place, one_segment
from tests.reference import DATA_PORT
from tests.unit.core.source.sources import source


class _Notices:
    """Application that keeps notices."""

    def __init__(self) -> None:
        self.kept: list[Notice] = []

    def take(self, effect: Effect) -> None:
        assert isinstance(effect, Notice)
        self.kept.append(effect)

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


def test_node_that_keeps_a_tape_has_its_old_file_after_a_hangup(tmp_path: Path) -> None:
    """The core takes nothing, so no status may report the digest of the new file."""
    running, file = running_plan(tmp_path, tape="tapes", notices=(notices := _Notices()))
    before = running.plan
    file.write_text(file.read_text().replace('window = "10s"', 'window = "20s"'))
    running.reload()
    assert running.plan is before
    told = {notice.code: notice.text for notice in notices.kept}
    assert "txw_secs" in told["reload-restart"]


def test_status_has_the_part_of_the_file_that_was_taken_in_place(tmp_path: Path) -> None:
    start, driver = running_source(tmp_path)
    running, file = RunningPlan(start, driver), tmp_path / "tree.toml"
    file.write_text(file.read_text().replace('window = "10s"', 'window = "20s"'))
    running.reload()
    told = snapshot_of(start, driver, 0)
    assert running.plan.digest != start.digest
    assert (told["file"], told["file_part"]) == (running.plan.digest, plan_digest(running.plan))


def running_source(folder: Path, *, tape: str = "", notices: _Notices | None = None) -> tuple[NodePlan, TrioDriver]:
    """Return the plan of a source at its start, and its driver."""
    file = folder / "tree.toml"
    file.write_text(one_segment(Place(1), rate="200Mbit/s").replace("7500", str(DATA_PORT)))
    plan = attrs.evolve(plan_node(load(file), "source"), tape=tape)
    core: SourceCore = source()  # type: ignore[no-untyped-call]
    return plan, TrioDriver(core, TrioReads(NodeLinks(())), notices or _Notices())


def running_plan(folder: Path, *, tape: str = "", notices: _Notices | None = None) -> tuple[RunningPlan, Path]:
    """Return the plan of a source that runs, and its file."""
    plan, driver = running_source(folder, tape=tape, notices=notices)
    return RunningPlan(plan, driver), folder / "tree.toml"
