"""A share of the search of states: no fault in the cores, and each fault that is put into them is found."""

from __future__ import annotations

import pytest

from pgm.core.recovery.recovery import Recovery
from tests.explore import nodes
from tests.explore.command import main
from tests.explore.mutations import broken
from tests.explore.replay import arrive, copy, kind_of, lose, replay, send, wake
from tests.explore.search import Account, Search, forget_trees
from tests.explore.setups import SETUPS, Bounds
from tests.explore.tree import PropertyBroken

_SMALL = Bounds(messages=6, before=4, losses=2, copies=1, flights=1, heartbeats=1)
_ONE_LOSS = Bounds(messages=5, before=4, losses=2, copies=0, flights=0, heartbeats=1)


@pytest.mark.parametrize("setup", SETUPS)
def test_states_of_each_setup_break_no_property(setup, monkeypatch):
    monkeypatch.setattr(nodes, "COMPARED", 1)  # where two cores have one form, both are run
    forget_trees()
    search = Search(setup, _SMALL)
    account = search.run(700, tell=lambda _account: None)
    assert not account.faults, account.faults
    assert account.states >= 700
    assert account.endings > 5
    assert account.compared > 5


@pytest.mark.parametrize("setup", SETUPS)
def test_nodes_share_no_core(setup):
    """A receiver with the core of another one would send by the address of that one."""
    cores = Search(setup, _SMALL).tree.begin()[0]
    assert len(set(cores)) == len(cores) == 4


def test_small_bounds_are_searched_completely():
    search = Search("aggregator", Bounds(messages=1, losses=1, copies=0, flights=0, heartbeats=0))
    told: list[int] = []
    account: Account = search.run(10_000, tell=lambda seen: told.append(seen.depth))
    assert account.is_complete
    assert told == list(range(1, account.depth + 1))
    assert 5 < account.states < 100


@pytest.mark.parametrize("mutation", ["forgets-to-cancel", "lead-off-by-one"])
def test_fault_in_a_core_is_found_and_written_as_test(mutation, tmp_path, capsys):
    """The written test fails while the fault is there, and passes without it."""
    words = "aggregator --messages 6 --before 4 --copies 0 --flights 0 --heartbeats 1 --endings 1 --states 2000"
    try:
        assert main([*words.split(), "--mutation", mutation, "--tests", str(tmp_path)]) == 1
    finally:
        forget_trees()
    [path] = tmp_path.iterdir()
    assert "1 fault," in capsys.readouterr().out
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # as pytest imports it
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    with broken(mutation), pytest.raises(PropertyBroken):
        test()
    test()


def test_replay_ends_early_where_a_packet_is_missing():
    assert replay("repairer", (send(), lose("element", "ODATA 0")))
    assert not replay("repairer", (send(), copy("left", "RDATA 7")))


def test_window_edge_off_by_one_breaks_a_property():
    """Two packets of five are lost, and the SPM tells that the first of them has left the window."""
    steps = []
    for sqn in range(3, 8):
        packet = f"ODATA {sqn}"
        steps += [send(), arrive("element", packet), arrive("right", packet)]
        steps.append((lose if sqn < 5 else arrive)("left", packet))
    steps += [wake("source"), arrive("element", "SPM 1 4-7"), arrive("left", "SPM 1 4-7")]
    with broken("trail-off-by-one"), pytest.raises(PropertyBroken, match="left reports sqn 4 as gone"):
        replay("aggregator", steps, before=3)
    assert replay("aggregator", steps, before=3)


def test_loss_without_report_breaks_a_property():
    """The search takes 5,796 states to it: a packet and its repair are lost, and leave the window."""
    steps = (
        send(),
        lose("element", "ODATA 4"),
        send(),
        arrive("element", "ODATA 5"),
        arrive("source", "NAK 4"),
        wake("source"),
        lose("element", "RDATA 4"),
    )
    with broken("reports-no-loss"), pytest.raises(PropertyBroken, match="without a report"):
        replay("aggregator", steps, before=4)
    assert replay("aggregator", steps, before=4)


def test_core_that_raises_is_a_fault(monkeypatch):
    def fails(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Recovery, "detect", fails)
    monkeypatch.setattr(Recovery, "detect_new", fails)
    forget_trees()
    search = Search("aggregator", _ONE_LOSS)
    account = search.run(1000, tell=lambda _account: None)
    forget_trees()
    assert {kind_of(fault.text) for fault, _ in account.faults} & {
        "receiver raises ZeroDivisionError()",
        "element raises ZeroDivisionError()",
    }
