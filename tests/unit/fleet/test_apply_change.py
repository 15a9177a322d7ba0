"""Changes of the topology file on several hosts: all take the new file, or all are as before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.errors import PgmError, ProcessError, UsageError
from pgm.topology.load import loads
from tests.unit.fleet.hosts_of_nodes import NEW, OLD, change_of, host_with, two_hosts

NEW_DIGEST = loads(NEW).digest
VERBS = ("prepare", "put", "act", "verify", "hold")


def test_all_hosts_take_the_file_and_all_nodes_report_it(tmp_path: Path) -> None:
    hosts = two_hosts(tmp_path)
    told: list[str] = []
    change_of(hosts, told).run()
    assert all(host.state[0] == NEW and host.state[2] == ["tree.toml"] for host in hosts)
    assert {digest for host in hosts for digest in host.nodes.digests.values()} == {NEW_DIGEST}
    assert {"east-second", "east-5"} <= hosts[0].nodes.digests.keys()
    starts = [told.index(f"start: {node}") for node in ("east-second", "east-5")]
    assert starts[0] < next(at for at, text in enumerate(told) if text.startswith("change:")) < starts[1]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("index", [0, 1])
def test_refusal_in_any_phase_leaves_all_as_before(tmp_path: Path, verb: str, index: int) -> None:
    hosts = two_hosts(tmp_path)
    before = [host.state for host in hosts]
    hosts[index].refuses = verb
    with pytest.raises(UsageError, match="All hosts are as before") as caught:
        change_of(hosts).run()
    assert caught.value.remedy == "do something else"
    assert [host.state for host in hosts] == before


@settings(max_examples=20)
@given(st.integers(0, 1), st.integers(0, 30), st.booleans())
def test_any_failure_leaves_all_as_before(index: int, at: int, is_silent: bool) -> None:
    """A node may fail in any step, and an answer of a host may be lost. A later run takes the file."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = two_hosts(Path(folder))
        before = [host.state for host in hosts]
        if is_silent:
            hosts[index].silent_at = at
        else:
            hosts[index].nodes.fails_at = at
        try:
            change_of(hosts).run()
        except PgmError as error:
            assert "All hosts are as before" in error.message  # noqa: PT017
            assert [host.state for host in hosts] == before
            change_of(hosts).run()
        assert {digest for host in hosts for digest in host.nodes.digests.values()} == {NEW_DIGEST}


def test_node_that_keeps_the_old_file_is_named(tmp_path: Path) -> None:
    hosts = two_hosts(tmp_path)
    before = [host.state for host in hosts]
    hosts[1].nodes.stubborn = "west-2"
    with pytest.raises(ProcessError, match=f"node west-2 runs file {OLD.digest}"):
        change_of(hosts).run()
    assert [host.state for host in hosts] == before


def test_host_with_another_file_refuses(tmp_path: Path) -> None:
    hosts = two_hosts(tmp_path)
    hosts[1].nodes.file.write_text(f"{hosts[1].state[0]}# changed by hand\n")
    with pytest.raises(UsageError, match="is another file"):
        change_of(hosts).run()
    assert hosts[0].state[2] == hosts[1].state[2] == ["tree.toml"]


def test_unsupervised_node_that_must_stop_is_refused(tmp_path: Path) -> None:
    host = host_with(tmp_path, "one", ["east-1"])
    host.nodes.supervised_ones.clear()
    request = {"do": "prepare", "id": "a", "text": NEW, "old_digest": OLD.digest, "stop": ["east-1"]}
    with pytest.raises(UsageError, match="node east-1 must stop, and no pgm up of this host runs it"):
        host.ask(request)


def test_two_changes_at_once_are_refused(tmp_path: Path) -> None:
    host = host_with(tmp_path, "one", ["east-1"])
    request = {"do": "prepare", "text": NEW, "old_digest": OLD.digest}
    host.ask({**request, "id": "a"})
    with pytest.raises(UsageError, match="change a is in progress"):
        host.ask({**request, "id": "b"})
    with pytest.raises(ProcessError, match="'b' is not in progress"):
        host.ask({"do": "put", "id": "b"})
    assert host.ask({"do": "back", "id": "b"}) == {"back": False}


def test_change_of_another_process_is_seen(tmp_path: Path) -> None:
    """The files of a change lie beside the topology file, also those of a process that was killed."""
    host, other = (host_with(tmp_path, name, ["east-1"]) for name in ("one", "two"))
    other.nodes.file.with_name(".tree.toml.old-0a").write_text(NEW)
    request = {"do": "prepare", "id": "a", "text": NEW, "old_digest": OLD.digest}
    assert host.ask(request)["running"] == ["east-1"]
    with pytest.raises(UsageError, match=r"it left \.tree\.toml\.old-0a"):
        other.ask(request)
