"""Excessive NAKs on real sockets: one process of a tree loses most packets."""

from __future__ import annotations

import time
from pathlib import Path

from pgm.errors import UsageError
from pgm.net.control.control_socket import ask_control
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, Processes, Stream, count, processes

SOON = (
    'excess_nak_window_ivl = "500ms", excess_nak_check_ivl = "1s", excess_nak_min_sqns = 50, excess_nak_share = "30%", '
    'session_expiry = "20s"'
)


def tree_of(place: Place, loss: str) -> str:
    text = one_segment(place, loss=f'{{ loss = "{loss}" }}', parameters=SOON, rate="8Mbit/s", window="30s")
    text = text.replace('parents = ["source"]', 'parents = ["repairer"]')
    return (
        text + '\n[nodes.repairer]\nrole = "repairer"\n'
        f'segment = "lan"\naddress = "{place.address(60)}"\nparents = ["source"]\n'
    )


def _release(tree: Processes, child: str) -> None:
    """Give that child its normal budget back from outside."""
    repairer = tree.running["repairer"]
    tree.until("repairer", lambda _: _is_released(tree.folder / tree.name / "repairer.ctl", child))
    repairer.line_with(f"setting-changed: {child} is released, by process")
    repairer.line_with(f"{child} was released")


def _is_released(path: Path, child: str) -> bool:
    try:
        return ask_control(path, {"do": "release", "child": child})["sessions"] == 1
    except UsageError:  # it has calmed down for a moment
        return False


def test_child_with_excess_naks_is_limited_and_others_get_all(place: Place) -> None:
    with processes(tree_of(place, "1%"), f"t{place.number}") as tree:
        stream = Stream(tree)
        worse = tree.folder / "worse.toml"
        worse.write_text(tree_of(place, "70%"))
        stream.start(["desk-1"], ["repairer"])
        arguments = ["run", str(worse), "--node", "desk-2", "--json"]
        child = Process("desk-2", arguments, env={"PGM_RUNTIME_DIR": str(tree.folder / "worse")})
        tree.all.append(child)
        try:
            child.line_with("ready:")
            stream.go()
            child.line_with("excess-naks: session")
            tree.running["repairer"].line_with("child-excess-naks: session")
            found_at = time.monotonic()
            stream.until_delivered(1000)
            assert time.monotonic() - found_at < 25  # NAKs admitted earlier are answered first
            snapshot = tree.until("repairer", lambda one: count(one, "excess_nak_packets"))
            assert count(snapshot, "excess_nak_children") >= 1  # again, if it had calmed down
            lines = [line for line in tree.running["repairer"].log.splitlines() if "child-excess-naks: session" in line]
            assert {line.split(" sends excessive NAKs")[0].split()[-1] for line in lines} == {place.address(101)}
            assert count(tree.status("desk-1"), "lost_sqns") == 0
            _release(tree, place.address(101))
            child.close()
            tree.running["repairer"].line_with("child-excess-naks-over: session")
        finally:
            stream.stop()
        [account] = stream.end()
    assert account["lost"] == 0
    assert account["delivered"] == stream.messages
