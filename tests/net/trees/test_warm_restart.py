"""A killed repairer comes back with its cache, and requests only what was sent meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgm.core.counters import Counters
from tests.folders import short_folder
from tests.net.support.places import Place
from tests.net.support.processes import Stream, count, streaming
from tests.net.trees.test_kill import head, node, receivers, segment, tree_of

DESKS = ["desk-1", "desk-2"]
# The source repairs a second of its stream at its own slow rate: no promised packet is requested twice meanwhile.
PATIENT = 'parameters = { nak_rdata_ivl = "10s", nak_rdata_min_ivl = "10s" }\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def one_lan(place: Place, folder: Path, more: str = "") -> str:
    """One segment whose receivers lose packets and prefer the repairer to the source."""
    return "".join(
        [
            head(place),
            segment(place, "lan", 0),
            node(place, "source", "source", 1, segment="lan", streams=["s"]),
            node(place, "repairer", "repairer", 3, segment="lan", parents=["source"]),
            f'cache = {{ bytes = "64MiB", directory = "{folder}" }}\n{PATIENT}{more}',
            receivers(place, "lan", ["repairer", "source"]),
        ]
    )


def counters_of(stream: Stream) -> Counters:
    assert stream.source is not None
    return stream.source.counters


def kill_and_restart(stream: Stream) -> None:
    """Kill the repairer once it has served, and check what the next one takes over and requests."""
    tree = stream.tree
    before = tree.until("repairer", lambda snapshot: count(snapshot, "rdata_packets") > 20)
    held = count(before, "received_packets") + count(before, "cache_packets_restored")
    tree.running["repairer"].kill()
    tree.running["repairer"].wait()
    stream.until_delivered(1)
    tree.start_all(["repairer"])
    after = tree.until("repairer", lambda snapshot: count(snapshot, "cache_packets_restored"))
    meanwhile = counters_of(stream).odata_packets - held
    assert count(after, "cache_packets_restored") >= held
    assert count(after, "cache_records_refused") == 0
    whole = tree.until(
        "repairer", lambda snapshot: count(snapshot, "repaired_sqns") == count(snapshot, "missing_sqns") > 0
    )
    assert count(whole, "nak_sqns") <= count(whole, "missing_sqns") <= meanwhile


def test_killed_repairer_requests_only_what_was_sent_meanwhile(place: Place, folder: Path) -> None:
    with streaming(one_lan(place, folder), tree_of(place), DESKS, ["repairer"]) as stream:
        kill_and_restart(stream)
        kill_and_restart(stream)
        stream.end_whole()
