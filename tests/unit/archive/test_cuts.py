"""Ranges cut anywhere give the rows of the whole, each once and in order, from the reader and over Flight."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.archive.recording.rows import batch_of
from pgm.archive.requests import RangeRequest
from pgm.archive.store.reader import ArchiveReader
from pgm.archive.store.selection import end_of
from tests.spark.support.archives import at, served
from tests.unit.archive.drawn import Part, cuts, given_by, record, sessions, stored_by, wanted
from tests.unit.archive.makers import SESSION, TSI_TEXT

_TSIS = (TSI_TEXT, "9.9.9.9.9.9.7500")
_SUBJECT = "/s/1"


@given(st.data())
def test_reader_of_any_cuts_gives_each_row_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    each = {tsi: data.draw(sessions()) for tsi in _TSIS}
    directory = tmp_path_factory.mktemp("archive")
    record(directory, each)
    reader = ArchiveReader(directory)

    def rows(request: RangeRequest) -> list[dict[str, Any]]:
        return [row for batch in reader.read(request).batches() for row in batch.to_pylist()]

    for tsi, parts in each.items():
        ranges = list(itertools.pairwise(data.draw(cuts(parts))))
        for subject in (None, _SUBJECT):
            subjects = None if subject is None else (subject,)
            found = [rows(RangeRequest(tsi, first=first, end=end, subjects=subjects)) for first, end in ranges]
            assert given_by(itertools.chain(*found)) == wanted(parts, subject=subject)
            for (first, end), some in zip(ranges, found, strict=True):
                assert all(first <= row["sqn"] < end for row in some)


@given(st.data())
def test_flight_of_any_cuts_gives_each_row_once(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    each = {tsi: data.draw(sessions()) for tsi in _TSIS}
    directory = tmp_path_factory.mktemp("archive")
    record(directory, each)
    with served(directory) as service, flight.connect(at(service)) as client:
        for tsi, parts in each.items():
            asked = [RangeRequest(tsi, first=a, end=b) for a, b in itertools.pairwise(data.draw(cuts(parts)))]
            found = [client.do_get(flight.Ticket(one.to_bytes())).read_all().to_pylist() for one in asked]
            assert given_by(itertools.chain(*found)) == wanted(parts)
            command = RangeRequest(tsi, parts=data.draw(st.integers(1, 5))).to_bytes()
            info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
            found = [client.do_get(one.ticket).read_all().to_pylist() for one in info.endpoints]
            assert given_by(itertools.chain(*found)) == wanted(parts)


@given(sessions())
def test_end_of_stored_rows_is_behind_their_last_packet(parts: list[Part]) -> None:
    for rows in stored_by(SESSION.node, parts):
        batch = batch_of(SESSION, rows)
        assert end_of(batch) == end_of(pa.Table.from_batches([batch])) == rows[-1].end
