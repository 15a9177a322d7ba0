"""Answers of agents about recorders: queries of any client, and excerpts of the rings of a tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.monitor.flight_answers import FlightQuery, query_of, rings_as_json
from pgm.errors import UsageError
from pgm.flight.contents import from_json_untrusted
from pgm.flight.record import NO_PEER, FlightKind
from pgm.flight.ring import RingFile

FACTS = {"topology": "t", "node": "desk/1", "role": "receiver", "streams": [{"name": "quotes", "data_port": 7500}]}


@given(st.lists(st.text(max_size=30), max_size=3), st.none() | st.text(max_size=12))
def test_queries_of_any_client_are_read_or_refused(packets: list[str], worst: str | None) -> None:
    try:
        query = query_of(packets, worst)
    except UsageError:
        return
    assert query.packets or query.worst


def test_query_names_streams_with_colons_and_sqns_of_64_bits() -> None:
    assert query_of(["a:b:18446744073709551615"], None) == FlightQuery((("a:b", (1 << 64) - 1),))


def test_rings_of_a_tree_are_answered_and_damaged_files_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "t").mkdir(mode=0o700)
    (tmp_path / "t" / "torn.flight").write_bytes(b"torn")
    file = RingFile(tmp_path / "t" / "desk_1.flight", 1 << 20, FACTS)
    place = file.ring.session(bytes(8), 7500)
    for sqn in range(100):
        file.ring.append([(sqn, 0, sqn, 1, place, 0, FlightKind.GAP, 255, 0, NO_PEER, 0)])
    file.close()
    [ring] = json.loads(rings_as_json("t", query_of(["quotes:57"], None)))["rings"]
    contents = from_json_untrusted(ring)
    assert contents.node == "desk/1"
    assert 57 in contents.records["first"]
    assert len(contents.records) == 58 + 1  # with the gaps before, and the last record
