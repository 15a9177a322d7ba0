"""Names of peers in tables, events and pages."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.monitor.history import History
from deploy.monitor.html_page import one_node, overview
from deploy.status.detail import tables
from deploy.status.peers import PeerNames
from pgm.fleet.nodes import NodeAddress, NodeRecord, NodeState, TreeView
from tests.unit.fleet.agents import snapshot

NAMES = PeerNames.of(
    [
        ("10.0.0.7", "relay"),
        ("10.0.0.17", "desk"),
        ("fe80::1", "six"),
        ("10.0.0.9", "a"),
        ("10.0.0.9", "b"),
        (None, "c"),
    ]
    + [("10.0.0.8", f"many-{number}") for number in range(4)]
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("asks 10.0.0.7 now", "asks relay (10.0.0.7) now"),
        ("10.0.0.7:3056, 10.0.0.17.", "relay (10.0.0.7):3056, desk (10.0.0.17)."),
        ("from fe80::1 to 10.0.0.9", "from six (fe80::1) to a or b (10.0.0.9)"),
        ("already relay (10.0.0.7)", "already relay (10.0.0.7)"),
        (
            "session 10.0.0.7.0.0.1.500 of 210.0.0.7 and 10.0.0.70",
            "session 10.0.0.7.0.0.1.500 of 210.0.0.7 and 10.0.0.70",
        ),
        ("many of 10.0.0.8 at 12:30:45", "many of 10.0.0.8 at 12:30:45"),
        ("", ""),
    ],
)
def test_peers_have_names_beside_their_addresses(text: str, told: str) -> None:
    assert NAMES.in_text(text) == told


def session(**more: Any) -> dict[str, Any]:
    base = {
        "stream": "s",
        "source": "10.0.0.7",
        "tsi": "1.2",
        "state": "open",
        "trail": 1,
        "lead": 2,
        "missing_sqns": 0,
    }
    base |= {"pending_sqns": 0, "held_octets": 0, "parent": "10.0.0.7", "silent_ns": 0, "counts": {}, "lines": []}
    asker = {"address": "10.0.0.17", "nak_packets": 1, "nak_sqns": 1, "braked": 0, "has_excess_naks": False}
    return {**base, "askers": [asker], "acked": None, **more}


def record(topology: str, name: str, address: str, **more: Any) -> NodeRecord:
    segment = {"segment": "lan", "side": "both", "group": "239.0.0.1", "interface": "lo", "address": address}
    own = snapshot(name, "repairer") | {"segments": [{**segment, "rcvbuf": 1, "sndbuf": 1}], **more}
    return NodeRecord(topology, name, "repairer", NodeState.UP, snapshot=own)


def test_peers_of_another_tree_give_no_name() -> None:
    """Trees on loopback may have the same addresses."""
    event = {"id": "parent-changed", "text": "10.0.0.7 replaces 10.0.0.17", "at_s": 0.0}
    planned = NodeRecord("t", "desk", planned_places=(NodeAddress("lan", "up", "10.0.0.17"),))
    node = record("t", "repairer", "10.0.0.5", sessions=[session()], events=[event], last_event=event)
    view = TreeView((node, record("t", "relay", "10.0.0.7"), planned, record("other", "x", "10.0.0.7")), 0.0, 0.0)
    page = one_node(view, node, History())
    assert "relay (10.0.0.7) replaces desk (10.0.0.17)" in page
    assert '<td data-head="asks">relay (10.0.0.7)</td>' in page
    assert "s of relay (10.0.0.7)" in page
    assert ">desk (10.0.0.17)</td>" in page
    assert ">10.0.0.5</td>" in page, "the node's own address needs no name"
    assert "relay (10.0.0.7) replaces desk (10.0.0.17)" in overview(view)
    assert node.snapshot is not None
    # On a narrow screen a table of many columns has cards with headings, so that nothing is off the screen.
    assert '<table class=cards><thead><tr><th class="t">stream</th>' in page
    assert '<td data-head="missing">0</td>' in page
    bare = [cell for _, _, cells in tables(node.snapshot) for row in cells for cell in row]
    assert "10.0.0.7" in bare
