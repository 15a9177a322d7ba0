"""Ring of segments: bounded in octets and age, and never without a state."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.errors import TapeError
from pgm.tape import records
from pgm.tape.records import TapeRecordKind
from pgm.tape.segments import LEAST_OCTETS, SegmentRing, read_segment, segments_of, write_state
from pgm.tape.taping import delete_old, tapes_of

RECORD = records.build(TapeRecordKind.DEADLINE, records.NO_TAG, 0, 0, bytes(40))


def octets_of(folder):
    return sum(path.stat().st_size for path in folder.iterdir())


def fill(ring, now_ns, state_octets):
    write_state(ring.open({"node": "n"}, now_ns, state_octets), [bytes(state_octets)])
    while ring.at + 1000 < ring.limit:
        ring.put(RECORD, records.padding(len(RECORD)))
    ring.flush()


def fill_without_states(ring, segments):
    for number in range(segments):
        ring.open({}, number, 100)
        while ring.at + 1000 < ring.limit:
            ring.put(RECORD, records.padding(len(RECORD)))
        ring.flush()


@settings(max_examples=15)
@given(st.lists(st.integers(0, LEAST_OCTETS // 2 - LEAST_OCTETS // 8), min_size=1, max_size=12))
def test_ring_never_exceeds_its_octets(tmp_path_factory, sizes):
    folder = tmp_path_factory.mktemp("ring") / "tape"
    ring = SegmentRing(folder, LEAST_OCTETS)
    for number, size in enumerate(sizes):
        fill(ring, number, size)
        assert octets_of(folder) <= LEAST_OCTETS
        assert segments_of(folder)[0].has_state
    ring.close_segment()


def test_ring_of_small_states_keeps_most_of_its_octets(tmp_path):
    ring = SegmentRing(tmp_path / "tape", LEAST_OCTETS)
    for number in range(20):
        fill(ring, number, 100)
    assert octets_of(ring.folder) > LEAST_OCTETS * 3 // 4
    assert len(segments_of(ring.folder)) >= 7


def test_ring_drops_segments_that_are_too_old(tmp_path):
    ring = SegmentRing(tmp_path / "tape", LEAST_OCTETS)
    for number in range(6):
        fill(ring, number, 100)
    ring.drop_older(4)
    assert [segment.number for segment in segments_of(ring.folder)] == [4, 5, 6]


def test_ring_keeps_the_only_state(tmp_path):
    ring = SegmentRing(tmp_path / "tape", LEAST_OCTETS)
    fill(ring, 0, 100)
    with pytest.raises(TapeError):
        fill_without_states(ring, 20)
    assert segments_of(ring.folder)[0].has_state
    assert octets_of(ring.folder) <= LEAST_OCTETS


def test_segment_written_is_read_back(tmp_path):
    ring = SegmentRing(tmp_path / "tape", LEAST_OCTETS)
    fill(ring, 0, 10)
    ring.close_segment()
    (segment,) = segments_of(ring.folder)
    found = read_segment(segment)
    assert found.description["node"] == "n"
    assert len(list(found.records())) > 100
    assert oct(ring.folder.stat().st_mode & 0o777) == "0o700"
    assert oct(segment.path.stat().st_mode & 0o777) == "0o600"


def test_segment_of_another_kind_is_refused(tmp_path):
    (tmp_path / "00000001.tape").write_bytes(b"something else entirely")
    with pytest.raises(TapeError):
        read_segment(segments_of(tmp_path)[0])


def test_old_tapes_of_a_node_are_deleted_and_others_stay(tmp_path):
    for number, name in enumerate(["a.1", "a.2", "a.3", "b.1"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000001.tape").touch()
        os.utime(tmp_path / name, (number, number))
    delete_old(tmp_path, "a", 1)
    assert [path.name for path in tapes_of(tmp_path)] == ["a.3", "b.1"]
