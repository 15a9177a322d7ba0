"""Return to the old file after faults of a host: full disks, failing nodes, forgetful agents, edits by hand."""

from __future__ import annotations

import codecs
import resource
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from pgm.errors import ProcessError, UsageError
from pgm.fleet.apply_host import HostChange
from pgm.fleet.fingerprint import file_digest
from pgm.topology.load import load, loads
from tests.unit.fleet.hosts_of_nodes import NEW, OLD, SimulatedHost, host_with
from tests.unit.topology.changes.trees import DEMO

NEW_DIGEST = loads(NEW).digest
PREPARE = {"do": "prepare", "id": "a", "text": NEW, "old_digest": OLD.digest}
CHANGE = {"do": "act", "id": "a", "verb": "change", "nodes": ["east-1", "east-2"]}
PUT, BACK = {"do": "put", "id": "a"}, {"do": "back", "id": "a"}


def one_host(folder: Path, *, lease_s: float = 60.0) -> SimulatedHost:
    return host_with(folder, "one", ["east-1", "east-2"], lease_s=lease_s)


def changed_host(folder: Path, *, lease_s: float = 60.0) -> SimulatedHost:
    """Return a host whose nodes have taken the new file in place."""
    host = one_host(folder, lease_s=lease_s)
    for request in (PREPARE, PUT, CHANGE):
        host.ask(request)
    return host


def wait_until_ended(host: SimulatedHost) -> None:
    until_s = time.monotonic() + 20
    while host.state[2] != ["tree.toml"] and time.monotonic() < until_s:
        time.sleep(0.01)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow above a part of the topology file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(DEMO) // 2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_disk_that_is_full_after_prepare_destroys_no_file(tmp_path: Path) -> None:
    host = one_host(tmp_path)
    before = host.state
    host.ask(PREPARE)
    with full_disk():
        for _ in range(2):  # the second `put` changes nothing
            host.ask(PUT)
        assert host.state[0] == NEW
        assert host.ask(BACK) == {"back": True}
    assert host.state == before


def test_full_disk_refuses_the_change_and_leaves_no_file(tmp_path: Path) -> None:
    host = one_host(tmp_path)
    before = host.state
    with full_disk(), pytest.raises(ProcessError, match=r"prepare: .*File too large") as caught:
        host.ask(PREPARE)
    assert f"ReadWritePaths={host.nodes.file.parent}" in caught.value.remedy
    assert host.state == before
    host.ask(PREPARE)


def test_failed_return_is_tried_again_and_claims_no_success(tmp_path: Path) -> None:
    host = changed_host(tmp_path)
    host.nodes.broken = "east-1"
    for _ in range(2):
        with pytest.raises(ProcessError, match="east-1: reload failed"):
            host.ask(BACK)
    assert host.state[0] == DEMO
    assert host.nodes.digests["east-2"] == OLD.digest
    calls = host.nodes.calls
    host.nodes.broken = ""
    assert host.ask(BACK) == host.ask(BACK) == {"back": True}
    assert host.nodes.calls == calls + 1
    assert host.state[1:] == ({"east-1": OLD.digest, "east-2": OLD.digest}, ["tree.toml"])


def test_return_by_itself_is_tried_again_with_a_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = changed_host(tmp_path, lease_s=0.05)
    host.nodes.broken = "east-1"
    wait_until_ended(host)
    assert [record.message.count("east-1: reload failed") for record in caplog.records] == [1, 1, 1, 1, 1, 0]
    assert (host.state[0], host.state[2]) == (DEMO, ["tree.toml"])


def test_host_that_went_back_by_itself_says_so_later(tmp_path: Path) -> None:
    host = one_host(tmp_path, lease_s=0.01)
    before = host.state
    host.ask(PREPARE)
    wait_until_ended(host)
    assert host.state == before
    assert host.ask(BACK) == {"back": True}


def test_node_is_asked_for_a_known_verb_only(tmp_path: Path) -> None:
    host = one_host(tmp_path)
    host.ask(PREPARE)
    with pytest.raises(UsageError, match="'shoot' is nothing that a node can do"):
        host.ask({**CHANGE, "verb": "shoot"})
    assert host.ask(BACK) == {"back": True}


def started_again(host: SimulatedHost) -> SimulatedHost:
    """Return a host with all files of another one, whose agent has just started."""
    folder = host.nodes.file.parent.with_name("again")
    shutil.copytree(host.nodes.file.parent, folder)
    nodes = attrs.evolve(host.nodes, file=folder / "tree.toml")
    return SimulatedHost("again", HostChange(OLD.name, nodes.file, nodes, settle_s=0.0), nodes)


def test_restarted_agent_goes_back_by_the_files_that_were_left(tmp_path: Path) -> None:
    host = started_again(changed_host(tmp_path))
    with pytest.raises(UsageError, match="is no id"):
        host.ask({**BACK, "id": "../a"})
    assert host.ask(BACK) == {"back": True}
    assert host.state == (DEMO, {"east-1": OLD.digest, "east-2": OLD.digest}, ["tree.toml"])


def test_restarted_agent_names_the_nodes_whose_state_it_forgot(tmp_path: Path) -> None:
    host = started_again(changed_host(tmp_path))
    with pytest.raises(ProcessError, match="forgotten what was done to east-2"):
        host.ask({**BACK, "restart": ["east-2"]})
    assert host.ask(BACK) == {"back": False}
    assert host.state == (DEMO, {"east-1": OLD.digest, "east-2": NEW_DIGEST}, ["tree.toml"])


def test_files_of_a_change_killed_before_put_stop_no_later_one(tmp_path: Path) -> None:
    former = one_host(tmp_path)
    former.ask({**PREPARE, "id": "0a"})
    host = started_again(former)
    host.ask(PREPARE)
    assert host.ask(BACK) == {"back": True}
    assert host.state[2] == ["tree.toml"]


def test_edit_by_hand_before_put_refuses_the_change(tmp_path: Path) -> None:
    host = one_host(tmp_path)
    host.ask(PREPARE)
    host.nodes.file.write_text(f"{DEMO}# by hand\n")
    with pytest.raises(UsageError, match="was edited during the change"):
        host.ask(PUT)
    assert host.ask(BACK) == {"back": True}
    assert (host.state[0], host.state[2]) == (f"{DEMO}# by hand\n", ["tree.toml"])


def test_edit_by_hand_of_the_new_file_is_kept_and_named(tmp_path: Path) -> None:
    host = changed_host(tmp_path)
    host.nodes.file.write_text(f"{NEW}# by hand\n")
    kept = host.nodes.file.with_name(".tree.toml.by-hand-a")
    assert host.ask(BACK) == {"back": True, "by_hand": str(kept)}
    assert kept.read_text() == f"{NEW}# by hand\n"
    assert host.state[0] == DEMO


def test_two_processes_never_change_one_file_at_once(tmp_path: Path) -> None:
    """The name of the file has brackets, which a pattern of names would take for a set."""
    host = host_with(tmp_path, "one", ["east-1"], file="tree[1].toml")
    other = HostChange(OLD.name, host.nodes.file, host.nodes)
    host.ask(PREPARE)
    with pytest.raises(UsageError, match=r"another change of .* is in progress"):
        other.answer({**PREPARE, "id": "b"})
    host.ask(BACK)
    assert other.answer({**PREPARE, "id": "b"})["running"] == ["east-1"]


def test_mode_of_the_file_stays_after_the_change_and_the_return(tmp_path: Path) -> None:
    host = one_host(tmp_path)
    host.nodes.file.chmod(0o644)
    modes = []
    for request in (PREPARE, PUT, BACK):
        host.ask(request)
        modes.append(stat.S_IMODE(host.nodes.file.stat().st_mode))
    assert modes == [0o644] * 3


def test_byte_order_mark_is_no_part_of_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "tree.toml"
    path.write_bytes(codecs.BOM_UTF8 + DEMO.encode())
    assert file_digest(path) == load(path).digest == OLD.digest
