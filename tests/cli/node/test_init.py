"""`pgm init`, and the first page that a newcomer reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pgm.topology.load import load
from tests.cli.command import invoked
from tests.net.support.lab import ROOT


def test_init_writes_the_tree_of_the_readme_which_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoked("init").code == 0
    text = (tmp_path / "tree.toml").read_text()
    assert f"```toml\n{text}```" in (ROOT / "README.md").read_text()
    assert invoked("check", "tree.toml").out == "tree.toml: good\n"
    assert all(segment.interface == "127.0.91.0/24" for segment in load("tree.toml").segments.values())
    invoked("init").complains(2, "tree.toml exists", "--force")


def test_init_takes_hosts_of_one_subnet(tmp_path: Path) -> None:
    hosts = ("--host", "exchange=10.0.0.10", "--host", "keeper=10.0.0.11", "--host", "desk.1=10.0.1.21")
    assert invoked("init", tmp_path / "a.toml", *hosts).code == 0
    nodes = load(tmp_path / "a.toml").nodes
    assert [(name, node.role.value) for name, node in nodes.items()] == [
        ("exchange", "source"),
        ("keeper", "repairer"),
        ("desk.1", "receiver"),
    ]
    invoked("init", tmp_path / "b.toml", *hosts[:4]).complains(2, "2 of 3 hosts", "a source, a repairer and a receiver")
    invoked("init", tmp_path / "b.toml", *hosts, "--host", "far=10.9.0.1").complains(2, "different subnets", "relays")
    invoked("init", tmp_path / "b.toml", "--host", "exchange").complains(2, "no NAME=ADDRESS", "exchange=10.0.0.10")


def test_overview_tells_which_extra_a_command_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Needs:" not in invoked("--help").out
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    words = " ".join(invoked("--help").out.split())
    assert "browsers and Prometheus. Needs: pip install 'pgm-repair-network[monitor]'" in words


def test_readme_names_the_top_level_packages_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    assert sorted(names) == ["aggregator", "deploy", "pgm", "repairer"]
    told = (ROOT / "README.md").read_text().partition("## What is installed")[2].partition("##")[0]
    assert all(f"`{name}`" in told for name in names)
