"""Rows for durable receivers leave at `archive_rte`, for all of them together."""

from __future__ import annotations

import threading
import time

import attrs

from pgm.archive.service.pace import RowPace


@attrs.frozen
class _Batch:
    nbytes: int


def test_readers_share_the_rate() -> None:
    pace = RowPace(1_000_000, threading.Event())
    began = time.monotonic()
    readers = [pace.slowed(iter([_Batch(20_000)] * 5)) for _ in range(2)]
    assert [len(list(reader)) for reader in readers] == [5, 5]
    assert time.monotonic() - began >= 0.18  # ten batches of 20 ms, of which the first waits for none


def test_end_of_the_service_ends_the_wait() -> None:
    ends = threading.Event()
    reader = RowPace(1, ends).slowed(iter([_Batch(1_000_000)] * 2))
    next(reader)
    ends.set()
    assert list(reader) == []
