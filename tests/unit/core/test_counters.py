"""The counter table."""

import attrs

from pgm.core.counters import ROWS, Counters
from pgm.wire.rejects import REASONS


def test_every_row_has_a_unit_and_a_sentence():
    assert len(ROWS) > 40
    for row in ROWS:
        assert row.metadata["unit"]
        assert row.metadata["doc"].endswith(".")
        assert row.default == 0


def test_rows_are_the_fields_but_for_tables_and_who_watches():
    others = ("rejects", "subjects", "watch")
    assert [row.name for row in ROWS] == [field.name for field in attrs.fields(Counters) if field.name not in others]


def test_every_reject_reason_has_a_sentence():
    assert all(sentence.endswith(".") for sentence in REASONS.values())


def test_snapshot_holds_what_was_counted():
    counters = Counters()
    assert counters.snapshot() == {}
    counters.nak_packets += 3
    counters.rejects["checksum"] += 2
    assert counters.snapshot() == {"nak_packets": 3, "rejects": {"checksum": 2}}


def test_nodes_do_not_share_their_counts():
    one, other = Counters(), Counters()
    one.rejects["checksum"] += 1
    assert not other.rejects
