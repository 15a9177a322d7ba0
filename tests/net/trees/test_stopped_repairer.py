"""A stopped repairer reads its sockets before it believes requests: it asks for nothing that waits there."""

from __future__ import annotations

import signal

from tests.net.support.places import Place
from tests.net.support.processes import count, streaming
from tests.net.trees.test_kill import DESKS, tree_of, two_tiers

_STOPPED_MESSAGES = 2500  # some 4 s of the stream, a quarter of the repairer's socket buffer


def test_stopped_repairer_asks_for_nothing_in_its_sockets(place: Place) -> None:
    """The relay asks the repairer of its segment first, so requests wait beside the data that they name."""
    text = two_tiers(place, "aggregator", repairer=True).replace("[parameters]", '[parameters]\nrelay_cache_ivl = "0s"')
    with streaming(text, tree_of(place), DESKS, ["relay", "repairer"]) as stream:
        tree = stream.tree
        before = tree.until("repairer", lambda snapshot: count(snapshot, "rdata_packets") > 20)
        stopped = tree.running["repairer"].process
        stopped.send_signal(signal.SIGSTOP)
        stream.until_delivered(_STOPPED_MESSAGES)
        stopped.send_signal(signal.SIGCONT)
        stream.until_delivered(500)
        before_naks = count(before, "nak_packets_in")
        after = tree.until("repairer", lambda snapshot: count(snapshot, "nak_packets_in") > before_naks)
        stream.end_whole()
    found = count(after, "nak_packets_in") - before_naks
    asked = count(after, "nak_sqns") - count(before, "nak_sqns")
    print(f"{found} NAKs waited; the repairer asked for {asked} sqns")
    assert count(after, "socket_drops") == 0
    assert asked == 0
