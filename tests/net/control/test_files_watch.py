"""Topology files that differ between hosts: the SPMs of a source tell its file, and a receiver names both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import pgm
from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.status import SessionStatus
from pgm.net.control.files_watch import FilesWatch
from pgm.net.plan_digest import plan_digest
from pgm.topology.load import load
from pgm.topology.plan import plan_node
from pgm.units import SECOND
from tests.folders import short_folder
from tests.net.support.places import Place, one_segment

OWN, OTHER = "a" * 16, "b" * 16


def row(file: str) -> SessionStatus:
    return SessionStatus(
        tsi="1.2.3.4.5.6.7", source="exchange", data_port=7500, state="open", trail=0, lead=9, file=file
    )


def test_another_file_is_told_once_with_both_sides() -> None:
    watch = FilesWatch("desk", OWN, 10 * SECOND, 0)
    assert list(watch.check([row(f"{OWN} {OTHER}"), row("")], Counters(), 0)) == []
    (notice,) = watch.check([row(f"{OTHER} {OWN}")], Counters(), 5 * SECOND)
    assert notice.code == "files-differ"
    assert notice.text.endswith(f"exchange runs file {OTHER} (own part {OWN}), desk file {OWN}")
    assert list(watch.check([row(f"{OTHER} {OWN}")], Counters(), 10 * SECOND)) == []


def test_nothing_heard_for_peer_expiry_is_told_once() -> None:
    watch, counters = FilesWatch("desk", OWN, 10 * SECOND, 0), Counters()
    counters.foreign_packets = 1234
    assert list(watch.check([], counters, 9 * SECOND)) == []
    (notice,) = watch.check([], counters, 10 * SECOND)
    assert (notice.code, notice.text) == (
        "unheard",
        "desk has heard no source for 10 s; 1,234 packets of other streams came",
    )
    assert list(watch.check([], counters, 15 * SECOND)) == []


def test_digest_of_a_plan_does_not_depend_on_the_place_of_the_file(tmp_path: Path) -> None:
    text = one_segment(Place.new())
    plans = []
    for name, more in (("a", ""), ("b", "# a comment"), ("c", "")):
        (tmp_path / name).write_text(text + more)
        plans.append(plan_node(load(tmp_path / name), "source"))
    assert len({plan_digest(plan) for plan in plans}) == 1
    assert plans[0].digest == plans[2].digest != plans[1].digest


async def test_profile_that_differs_is_told_by_the_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = one_segment(Place.new())
    (ours := tmp_path / "ours.toml").write_text(text)
    (theirs := tmp_path / "theirs.toml").write_text('profile = "wan"\n' + text)
    notices: list[Notice] = []
    monkeypatch.setattr("pgm.net.control.files_watch._CHECK_IVL", SECOND // 10)
    with short_folder() as folder:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        async with (
            pgm.open_receiver(ours, node="desk-1", answer="yes", on_notice=notices.append) as receiver,
            pgm.open_source(theirs, node="source") as source,
        ):
            await source.send(b"x")
            with trio.fail_after(20):
                while not any(one.code == "files-differ" for one in notices):
                    await receiver.next_batch(0.1)
    (told,) = [one.text for one in notices if one.code == "files-differ"]
    assert all(load(file).digest in told for file in (ours, theirs))
