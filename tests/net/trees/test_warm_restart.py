"""A killed repairer comes back with its cache, and requests only what was sent meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deploy.node.sample_messages import generate
from pgm.archive.requests import RangeRequest
from pgm.archive.store.reader import ArchiveReader
from pgm.core.counters import Counters
from tests.folders import short_folder
from tests.net.support.places import Place
from tests.net.support.processes import Stream, count, streaming
from tests.net.trees.test_kill import head, node, receivers, segment, tree_of

DESKS = ["desk-1", "desk-2"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


def one_lan(place: Place, folder: Path, more: str = "") -> str:
    """One segment whose receivers lose packets and prefer the repairer to the source."""
    return "".join(
        [
            head(place, window="120s"),  # a busy machine may take long to start a process
            segment(place, "lan", 0),
            node(place, "source", "source", 1, segment="lan", streams=["s"]),
            node(place, "repairer", "repairer", 3, segment="lan", parents=["source"]),
            f'cache = {{ bytes = "64MiB", seconds = 3600, directory = "{folder}" }}\n{more}',
            receivers(place, "lan", ["repairer", "source"]),
        ]
    )


def counters_of(stream: Stream) -> Counters:
    assert stream.source is not None
    return stream.source.counters


def is_whole(snapshot: dict[str, Any]) -> bool:
    """Return whether nothing is missing any more. A child's early request for a packet of the file counts as missing."""
    return count(snapshot, "repaired_sqns") > 0 and all(row["missing_sqns"] == 0 for row in snapshot["sessions"])


def kill_and_restart(stream: Stream) -> None:
    """Kill the repairer once it has served, and check what the next one takes over and requests."""
    tree = stream.tree
    before = tree.until("repairer", lambda snapshot: count(snapshot, "rdata_packets") > 20)
    held = count(before, "received_packets") + count(before, "cache_packets_restored")
    tree.running["repairer"].kill()
    stream.until_delivered(1)
    tree.start_all(["repairer"])
    after = tree.until("repairer", lambda snapshot: count(snapshot, "cache_packets_restored"))
    meanwhile = counters_of(stream).odata_packets - held
    assert count(after, "cache_packets_restored") >= held
    assert count(after, "cache_records_refused") == 0
    whole = tree.until("repairer", is_whole)
    assert 0 < count(whole, "repaired_sqns") <= meanwhile


def test_killed_repairer_requests_only_what_was_sent_meanwhile(place: Place, folder: Path) -> None:
    with streaming(one_lan(place, folder), tree_of(place), DESKS, ["repairer"]) as stream:
        kill_and_restart(stream)
        kill_and_restart(stream)
        stream.end_whole()


def test_killed_recording_repairer_leaves_an_archive_without_a_gap(place: Place, folder: Path) -> None:
    record = f'record = {{ directory = "{folder}/archive" }}\n'
    with streaming(one_lan(place, folder, record), tree_of(place), DESKS, ["repairer"]) as stream:
        kill_and_restart(stream)
        stream.end_whole()
        stream.tree.running["repairer"].stop()
    reader = ArchiveReader(folder / "archive")
    [held] = reader.holdings()
    found = reader.read(RangeRequest(held.tsi))
    rows = pa.Table.from_batches(list(found.batches()), found.schema)
    sent = [one.tobytes() for batch in generate(stream.messages, stream.size, 1) for one in batch]
    lost = [row for row in rows.select(["sqn", "lost"]).to_pylist() if row["lost"] is not None]
    assert lost == []
    assert rows["value"].to_pylist() == sent
