"""Example topologies of the project, and the page about their format."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgm.topology import reference
from pgm.topology.check import check_file, load_checked
from pgm.topology.describe import topology_json, topology_lines
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all

FOLDER = Path(__file__).parents[3] / "deploy" / "topologies"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_passes_check_and_can_be_planned(path: Path):
    report = check_file(path)
    assert not report.errors
    assert not report.warnings
    topology = load_checked(path)
    assert topology.name == path.stem
    assert plan_all(topology)
    assert topology_lines(topology)
    assert topology_json(topology)["topology"] == path.stem


def test_campus_has_a_thousand_receivers_with_addresses_of_their_own():
    plans = plan_all(load_checked(FOLDER / "campus-1000.toml"))
    receivers = [plan for plan in plans.values() if plan.role is Role.RECEIVER]
    assert len(receivers) == 1000
    assert len({plan.segments[0].address for plan in receivers}) == 1000
    assert len({plan.segments[0].name for plan in receivers}) == 20


def test_trading_floor_is_what_the_design_says():
    plans = plan_all(load_checked(FOLDER / "trading-floor.toml"))
    assert plans["floor-2-aggregator"].parents == ("10.0.0.11", "10.0.0.10")
    assert plans["floor-2-aggregator"].repairers == (("10.0.2.2",),)
    assert plans["desk-4"].local_repairers == {"10.0.2.2"}


def test_page_about_the_format_is_fresh():
    """If this fails: `python -m pgm.topology.reference --write`."""
    assert reference.PAGE.read_text("utf-8") == reference.render()


def test_page_is_printed_or_written(capsys, monkeypatch, tmp_path):
    assert reference.main([]) == 0
    assert capsys.readouterr().out == reference.render()
    monkeypatch.setattr(reference, "PAGE", tmp_path / "page.md")
    assert reference.main(["--write"]) == 0
    assert (tmp_path / "page.md").read_text("utf-8") == reference.render()
    assert reference.main(["--nonsense"]) == 2
