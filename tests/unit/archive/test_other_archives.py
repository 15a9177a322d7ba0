"""A recorder takes from the archives of other recorders what it could not get."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.other_archives import OtherArchives
from pgm.archive.recording.row_collector import RowCollector
from pgm.archive.recording.rows import RowBuilder, rows_of_batch
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.effects import LossCause, Lost
from pgm.messages.batch_decoder import NO_TIME, DecodedBatch
from pgm.messages.columns import Columns
from pgm.units import MILLISECOND
from tests.unit.archive.makers import SESSION, append, check_rows, log_to, loss, messages, run_of, small, table

OTHER = attrs.evolve(SESSION, node="recorder-2")


@contextmanager
def served(folder: Path, *parts: RowBuilder) -> Iterator[str]:
    """Yield the address of another recorder's archive."""
    writer = ArchiveWriter(folder, small(), log_to([]))
    append(writer, parts, OTHER)
    writer.close()
    service = RangeService(Archives(folder), "grpc://127.0.0.1:0", small())
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        yield f"127.0.0.1:{service.port}"
    finally:
        service.end()
        thread.join()


def collector(folder: Path, *addresses: str) -> RowCollector:
    parameters = small(durable_archive_ivl=5000 * MILLISECOND)
    others = OtherArchives(addresses, parameters)
    return RowCollector(ArchiveWriter(folder, small(), log_to([])), parameters, log_to([]), others=others)


def losses(rows: Any) -> list[tuple[int, int, str]]:
    return [(row["sqn"], row["count"], row["lost"]) for row in rows.to_pylist() if row["lost"]]


def test_losses_are_filled_from_the_archives_of_others(tmp_path: Path) -> None:
    with (
        served(tmp_path / "a", messages(0, 30), loss(30, 5), messages(35, 10)) as first,
        served(tmp_path / "b", messages(33, 20)) as second,
    ):
        recording = collector(tmp_path / "own", "127.0.0.1:1", first, second)
        feed = SessionFeed(SESSION)
        recording.add_run(feed, run_of(0, 10), 7)
        recording.add_run(feed, run_of(20, 5), 7)  # nobody recorded the sqns between
        recording.add_lost(feed, Lost(b"", 25, 35, LossCause.RETRIES), 7)
        recording.add_run(feed, run_of(60, 10), 7)
        recording.close()
    rows = table(tmp_path / "own")
    check_rows(rows, 0, 70)
    assert losses(rows) == [(30, 3, "retries"), (53, 7, "retries")]
    assert rows["node"].unique().to_pylist() == ["recorder-1"]


def test_two_recorders_without_the_packets_record_the_loss(tmp_path: Path) -> None:
    """Neither waits for the other."""
    with served(tmp_path / "a", messages(0, 10), loss(10, 10)) as address:
        recording = collector(tmp_path / "own", address)
        recording.add_run(SessionFeed(SESSION), run_of(0, 10), 7)
        recording.add_run(SessionFeed(SESSION), run_of(20, 10), 7)
        recording.close()
    assert losses(table(tmp_path / "own")) == [(10, 10, "recorder")]


def test_packets_in_conflict_stay_lost(tmp_path: Path) -> None:
    with served(tmp_path / "a", messages(0, 30)) as address:
        recording = collector(tmp_path / "own", address)
        recording.add_run(SessionFeed(SESSION), run_of(0, 10), 7)
        recording.add_lost(SessionFeed(SESSION), Lost(b"", 10, 10, LossCause.CONFLICT), 7)
        recording.close()
    assert losses(table(tmp_path / "own")) == [(10, 10, LossCause.CONFLICT.value)]


def test_rows_of_shared_packets_keep_subjects_and_times(tmp_path: Path) -> None:
    columns = Columns.of_list(
        [b"a", b"bb", b"c", b"dd"], subjects=("x", "y"), subject=np.array([1, 2, 0, 1], np.uint32)
    )
    sent_us = np.array([5, NO_TIME])
    batch = DecodedBatch(columns, np.array([10, 11]), np.array([3, 1]), sent_us=sent_us)
    shared = rows_of_batch(batch, 0, 1, np.zeros(2, np.bool_), 1)
    with served(tmp_path / "a", messages(0, 10), shared) as address:
        recording = collector(tmp_path / "own", address)
        feed = SessionFeed(SESSION)
        recording.add_run(feed, run_of(0, 10), 7)
        recording.add_lost(feed, Lost(b"", 10, 2, LossCause.WINDOW), 7)
        recording.close()
    found = table(tmp_path / "own", first=10).to_pylist()
    assert [(one["sqn"], one["count"], one["index"]) for one in found] == [
        (10, 1, 0),
        (10, 0, 1),
        (10, 0, 2),
        (11, 1, 0),
    ]
    assert [(one["subject"], one["value"]) for one in found] == [("x", b"a"), ("y", b"bb"), (None, b"c"), ("x", b"dd")]
    assert [one["sent"] is None for one in found] == [False, False, False, True]
