"""Writer of records: ranges of one event are written together, within the records of a second."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.flight.contents import contents_untrusted
from pgm.flight.record import FlightKind
from pgm.flight.record_writer import NO_DETAIL, RecordWriter, Sqns
from pgm.flight.ring import LEAST_OCTETS, FlightRing
from pgm.units import SECOND
from tests.reference import TSI

FACTS = {"node": "desk-1"}
PEER = "10.0.0.3"
LIMIT = 5  # records a second


def written(events: list[list[Sqns]], *, together: bool) -> list[tuple[int, ...]]:
    """Return the records of events, one event a third of a second."""
    octets = bytearray(LEAST_OCTETS)
    ring = FlightRing(octets, "boot", FACTS)
    writer = RecordWriter(ring, LIMIT, 0)
    place = ring.session(bytes(TSI), 7500)
    for number, ranges in enumerate(events):
        writer.now_ns = number * SECOND // 3
        if together:
            writer.add_each(FlightKind.NAK_OUT, place, [(sqns, NO_DETAIL) for sqns in ranges], 0, PEER)
        else:
            for sqns in ranges:
                writer.add(FlightKind.NAK_OUT, place, sqns, 0, PEER)
    rows = contents_untrusted(bytes(octets)).records
    return [(int(row["time_ns"]), int(row["kind"]), int(row["first"]), int(row["count"])) for row in rows]


@given(st.lists(st.lists(st.tuples(st.integers(0, 1 << 33), st.integers(1, 9)), max_size=LIMIT), max_size=12))
def test_ranges_together_are_written_as_one_by_one(events):
    """Also where a second has no room for all of them: the rest is counted, and its number is a record."""
    one_by_one, together = (written(events, together=way) for way in (False, True))
    assert together == one_by_one
