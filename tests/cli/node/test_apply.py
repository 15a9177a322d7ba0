"""`pgm apply` beside a running tree: changes while data flows, and one that fails in the middle."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from deploy.node.run import FAULTS
from pgm.net.control.status_socket import ask_status
from pgm.topology.load import loads
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.campaigns.apply_changes import changes, file_of, run_changes
from tests.net.support.places import Place


def test_twelve_changes_under_loss_and_a_failed_one_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of 13 changes starts a node that fails after others have changed: all is as before."""
    done: list[Path] = []

    def apply(new: Path) -> None:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(new.parent))
        if not done:
            require_rollback(new)
        result = invoked("apply", new, "--json")
        assert result.code == 0, result
        assert result.json["applied"]
        done.append(new)

    found = run_changes(apply, rate="8Mbit/s", loss="1%", pause_packets=100, has_guest=False)
    assert found.changes == 12
    assert found.desk["delivered"] >= found.sent > 1200
    assert {key: found.desk[key] for key in FAULTS} == dict.fromkeys(FAULTS, 0)
    assert found.desk["repaired"]


def require_rollback(new: Path) -> None:
    """Apply a file whose new receiver cannot start, because a socket of the test is in its place."""
    tree = new.parent / "tree.toml"
    before, good = tree.read_text(), new.read_text()
    desk = good[good.index("[nodes.desk-1]") : good.index("[nodes.second]")]
    new.write_text(good + desk.replace("desk-1", "desk-9").replace('.101"', '.109"'))
    sockets = new.parent / loads(before).name
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(sockets / "desk-9.sock"))
        taken.listen()
        failed = invoked("apply", new)
    (sockets / "desk-9.sock").unlink()
    assert failed.code == 1, failed
    assert "pgm: node desk-9: a process for this node is already running" in failed.err
    assert "All hosts are as before" in failed.err
    assert tree.read_text() == before
    paths = sorted(sockets.glob("*.sock"))
    assert [path.stem for path in paths] == ["desk-1", "first", "source"]
    assert {ask_status(path)["file"] for path in paths} == {loads(before).digest}
    new.write_text(good)


def test_dry_run_compares_two_files_and_is_documented(tmp_path: Path) -> None:
    place = Place.new()
    text = file_of(place, "8Mbit/s", "1%")
    (tmp_path / "tree.toml").write_text(text)
    (tmp_path / "new.toml").write_text(next(new for _, new in changes(place, text, "8Mbit/s")))
    words = ("apply", tmp_path / "new.toml", "--from", tmp_path / "tree.toml", "--dry-run")
    result = invoked(*words, "--json")
    assert result.code == 0, result
    documented("apply", result.json)
    documented("apply.steps[]", result.json["steps"][0])
    assert "1. start repairer second" in invoked(*words).out
    assert (tmp_path / "tree.toml").read_text() == text


def test_file_that_runs_is_refused_as_its_own_change(tmp_path: Path) -> None:
    (tmp_path / "tree.toml").write_text(file_of(Place.new(), "8Mbit/s", "1%"))
    result = invoked("apply", tmp_path / "tree.toml", "--from", tmp_path / "tree.toml")
    result.complains(2, "is the file that the nodes run")


def test_change_that_may_lose_data_needs_consent(tmp_path: Path) -> None:
    text = file_of(Place.new(), "8Mbit/s", "1%")
    (tmp_path / "tree.toml").write_text(text)
    (tmp_path / "new.toml").write_text(text.replace('window = "10s"', 'window = "5s"'))
    words = ("apply", tmp_path / "new.toml", "--from", tmp_path / "tree.toml", "--dry-run", "--json")
    assert invoked(*words).code == 2
    assert json.loads(invoked(*words, "--allow-loss").out)["steps"][0]["may_lose"]
