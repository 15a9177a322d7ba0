"""Segments: rows read back equal the appended rows, despite cuts and damage."""

from __future__ import annotations

import random
import shutil
import zlib
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgm.archive.errors import ArchiveError, BadRequest, CorruptSegment, RangeDropped, SchemaTooNew, UnknownSession
from pgm.archive.recording.rows import batch_of
from pgm.archive.requests import RangeRequest
from pgm.archive.store import segment
from pgm.archive.store.reader import ArchiveReader
from pgm.archive.store.schema import EARLIER_SCHEMA, SCHEMA, STORED_SCHEMA, VERSION_KEY
from pgm.archive.store.segment import HEAD, path_of
from pgm.archive.store.writer import ArchiveWriter
from pgm.crc32 import crc32
from pgm.units import MILLISECOND
from tests.unit.archive.makers import SESSION, TSI_TEXT, append, check_rows, log_to, loss, messages, small, table


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.arrows"))


@given(
    parts=st.lists(
        st.tuples(st.integers(1, 20), st.sampled_from([0, 3, 8, 40]), st.booleans()), min_size=1, max_size=30
    ),
    per_batch=st.integers(1, 5),
    cut=st.tuples(st.integers(0, 600), st.integers(0, 600)),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_segments_any_range_reads_back_as_appended(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, int, bool]],
    per_batch: int,
    cut: tuple[int, int],
) -> None:
    directory = tmp_path_factory.mktemp("archive")
    writer = ArchiveWriter(directory, small(record_segment_bytes=64 * 1024), log_to([]))
    rows, at = [], 7
    for count, size, is_loss in parts:
        rows.append(loss(at, count) if is_loss else messages(at, count, size, repaired=range(at, at + count, 3)))
        at += count
    for start in range(0, len(rows), per_batch):
        append(writer, rows[start : start + per_batch])
    writer.close()
    found = table(directory)
    assert found.schema.equals(SCHEMA, check_metadata=True)
    check_rows(found, 7, at)
    first = min(max(7, cut[0]), at - 1)
    end = min(max(first + 1, cut[1]), at)
    check_rows(table(directory, first=first, end=end), first, end)


def test_a_file_is_a_plain_stream_of_arrow_record_batches(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(0, 100)])
    append(writer, [messages(100, 50, repaired=[120])])
    writer.close()
    (file,) = _segments(tmp_path)
    read = pa.ipc.open_stream(file.read_bytes()).read_all()
    assert read.num_rows == 150
    assert table(tmp_path, columns=("sqn", "repaired"))["repaired"].to_pylist() == [sqn == 120 for sqn in range(150)]


def test_segments_columns_keep_order_and_losses_are_cut(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(0, 10), loss(10, 100, "window"), messages(110, 10)])
    writer.close()
    found = table(tmp_path, first=20, end=30, columns=("lost", "count", "sqn"))
    assert found.schema.names == ["lost", "count", "sqn"]
    assert found.to_pylist() == [{"lost": "window", "count": 10, "sqn": 20}]
    everything = table(tmp_path)
    assert everything["stream"].unique().to_pylist() == ["quotes"]
    assert everything["node"].unique().to_pylist() == ["recorder-1"]
    assert sum(everything["count"].to_pylist()) == 120


def test_segments_subject_filter_keeps_losses(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(0, 10), loss(10, 5)])
    writer.close()
    assert table(tmp_path, subjects=("/nasdaq/*",), columns=("sqn",))["sqn"].to_pylist() == [10]


def test_segments_unreadable_file_is_a_clear_error(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path / "a", small(), log_to([]))
    append(writer, [messages(5, 10)])
    append(writer, [messages(5, 10)], attrs.evolve(SESSION, epoch_us=2_000_000))
    writer.close()
    with pytest.raises(BadRequest, match="several sessions") as several:
        table(tmp_path / "a")
    assert "1000000, 2000000" in several.value.remedy
    with pytest.raises(RangeDropped, match=r"from sqn 5 on, not from 4: oldest=5"):
        table(tmp_path / "a", epoch_us=1_000_000, first=4)
    with pytest.raises(UnknownSession, match="epoch_us 3"):
        table(tmp_path / "a", epoch_us=3)
    with pytest.raises(BadRequest, match="no column 'valeu'"):
        table(tmp_path / "a", epoch_us=1_000_000, columns=("valeu",))
    with pytest.raises(ArchiveError, match="No such file"):
        table(tmp_path / "b")


def test_checksums_are_those_of_zlib() -> None:
    for octets in (b"", b"a", bytes(range(256)) * 41):
        assert crc32(octets) == zlib.crc32(octets)
        assert crc32(octets, 77) == zlib.crc32(octets, 77)


def test_two_writers_do_not_share_a_directory(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(record_lock_ivl=MILLISECOND), log_to([]))
    with pytest.raises(ArchiveError, match="another process records"):
        ArchiveWriter(tmp_path, small(record_lock_ivl=MILLISECOND), log_to([]))
    writer.close()
    ArchiveWriter(tmp_path, small(record_lock_ivl=MILLISECOND), log_to([])).close()


def test_segments_end_by_size_and_the_oldest_go_by_octets(tmp_path: Path) -> None:
    lines: list[str] = []
    writer = ArchiveWriter(tmp_path, small(record_segment_bytes=64 * 1024, record_bytes=1024 * 1024), log_to(lines))
    for at in range(0, 3000, 10):
        append(writer, [messages(at, 10, 1000)])
        writer.sync()
        assert sum(path.stat().st_size for path in _segments(tmp_path)) <= (1024 + 64) * 1024
    writer.close()
    holding = ArchiveReader(tmp_path).holdings()[0]
    assert 0 < holding.oldest < 2500
    assert holding.next_sqn == 3000
    check_rows(table(tmp_path), holding.oldest, 3000)
    assert any(line.startswith("archive-dropped: segment 1 of") and line.endswith("record_bytes") for line in lines)
    with pytest.raises(RangeDropped):
        table(tmp_path, first=0)


def test_segments_drop_under_a_reader_tells_the_rest(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(record_segment_bytes=64 * 1024), log_to([]))
    for at in range(0, 300, 10):
        append(writer, [messages(at, 10, 1000)])
    writer.sync()
    reader = ArchiveReader(tmp_path)
    found = reader.read(RangeRequest(TSI_TEXT))
    _segments(tmp_path)[0].unlink()
    with pytest.raises(RangeDropped, match=r"oldest=[1-9]\d*"):
        list(found.batches())
    writer.close()


def test_segments_end_by_age_and_the_oldest_go_by_age(tmp_path: Path) -> None:
    now = [1_000_000_000_000]
    parameters = attrs.evolve(small(record_segment_ivl=10**9), record_secs=5 * 10**9)
    writer = ArchiveWriter(tmp_path, parameters, log_to([]), lambda: now[0])
    for at in range(20):
        append(writer, [messages(at, 1, at_us=now[0] // 1000)])
        writer.sync()
        now[0] += 10**9
    writer.close()
    assert ArchiveReader(tmp_path).holdings()[0].oldest == 14
    assert len(_segments(tmp_path)) == 6


def test_segments_torn_tail_is_cut_and_reported(tmp_path: Path) -> None:
    """A crash leaves the newest segment cut at any place, or with octets that were never written."""
    whole = tmp_path / "whole"
    writer = ArchiveWriter(whole, small(), log_to([]))
    ends = [len(HEAD)]
    for at in range(0, 50, 10):
        append(writer, [messages(at, 10)])
        writer.sync()
        ends.append(writer.index.sessions[SESSION.key].entries[-1].after)
    octets = path_of(whole, 1).read_bytes()
    writer.close()
    rng = random.Random(7)
    for cut in sorted({*ends, *rng.sample(range(ends[-1]), 60)}):
        directory = tmp_path / str(cut)
        directory.mkdir()
        tail = rng.choice([b"", b"\0" * 100, bytes(rng.randbytes(50))])
        path_of(directory, 1).write_bytes(octets[:cut] + tail)
        lines: list[str] = []
        writer = ArchiveWriter(directory, small(), log_to(lines))
        kept = sum(end <= cut for end in ends) - 1
        assert (writer.index.sessions[SESSION.key].next_sqn if kept > 0 else 0) == 10 * max(0, kept), (cut, tail, lines)
        is_torn = bool(tail) or cut not in ends
        assert any(line.startswith(("archive-torn", "archive-empty")) for line in lines) == (is_torn or kept < 0), lines
        append(writer, [messages(10 * max(0, kept), 10)])
        writer.close()
        check_rows(table(directory), 0, 10 * max(0, kept) + 10)


@pytest.mark.parametrize("where", ["header", "metadata", "body"])
def test_segments_damage_in_synced_rows_names_file_and_place(tmp_path: Path, where: str) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    for at in range(0, 50, 10):
        append(writer, [messages(at, 10)])
    writer.sync()
    entry = writer.index.sessions[SESSION.key].entries[2]
    writer.close()
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(50, 10)])
    writer.close()
    octets = bytearray(path_of(tmp_path, 1).read_bytes())
    octets[
        entry.offset
        + {"header": 1, "metadata": octets[entry.offset :].index(b'"octets"'), "body": entry.octets - 40}[where]
    ] ^= 0xFF
    path_of(tmp_path, 1).write_bytes(octets)
    check_rows(table(tmp_path, end=20), 0, 20)
    place = rf"{path_of(tmp_path, 1)} is damaged at octet {entry.offset}"
    with pytest.raises(CorruptSegment, match=place):
        table(tmp_path)
    check_rows(table(tmp_path, first=50), 50, 60)
    lines: list[str] = []
    writer = ArchiveWriter(tmp_path, small(), log_to(lines))
    assert writer.index.sessions[SESSION.key].next_sqn == 60, "later rows are still known"
    writer.close()
    assert path_of(tmp_path, 1).read_bytes() == octets, "a damaged segment is never cut"
    assert where == "body" or any("archive-corrupt" in line and "octet" in line for line in lines)


def test_segments_damage_of_the_newest_is_no_torn_tail(tmp_path: Path) -> None:
    """A copy of the open archive is in the state after SIGKILL."""
    writer, left = ArchiveWriter(tmp_path / "open", small(), log_to([])), tmp_path / "left"
    append(writer, [messages(0, 10)])
    append(writer, [messages(10, 10)])
    writer.sync()
    shutil.copytree(tmp_path / "open", left)
    writer.close()
    octets = bytearray(path_of(left, 1).read_bytes())
    octets[-20] ^= 1
    path_of(left, 1).write_bytes(octets)
    lines: list[str] = []
    ArchiveWriter(left, small(), log_to(lines)).close()
    assert path_of(left, 1).read_bytes() == octets
    assert any(line.startswith("archive-corrupt") for line in lines), lines


def test_a_segment_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    schema = STORED_SCHEMA.with_metadata({VERSION_KEY: b"3"}).append(pa.field("colour", pa.string()))
    path_of(tmp_path, 1).write_bytes(schema.serialize().to_pybytes())
    with pytest.raises(SchemaTooNew, match=r"000000000001.arrows has rows of schema version 3"):
        ArchiveReader(tmp_path)


def test_a_reader_sees_what_is_synced_while_it_is_written(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(0, 10)])
    writer.sync()
    reader = ArchiveReader(tmp_path)
    found = reader.read(RangeRequest(TSI_TEXT, tail=True))
    assert sum(batch.num_rows for batch in found.batches()) == 10
    append(writer, [messages(10, 10)])
    assert not reader.refresh(), "the rows are not synced"
    writer.sync()
    assert reader.refresh()
    assert [batch["sqn"][0].as_py() for batch in found.batches()] == [10]
    writer.close()
    assert reader.sqn_at(reader.session(TSI_TEXT, None), 10) == 10
    assert reader.sqn_at(reader.session(TSI_TEXT, None), 11) == 20
    assert np.array_equal(np.arange(20), table(tmp_path)["sqn"].to_numpy())


def test_index_of_a_session_holds_its_description_once(tmp_path: Path) -> None:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    for number in range(10):
        append(writer, [messages(number * 10, 10)])
    writer.close()
    (session,) = ArchiveReader(tmp_path).sessions()
    assert len(session.entries) == 10
    assert len({id(entry.session) for entry in session.entries}) == 1


def test_segments_of_the_first_version_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(segment, "HEAD", EARLIER_SCHEMA.serialize().to_pybytes())
        earlier.setattr(segment, "STORED_SCHEMA", EARLIER_SCHEMA)
        batch = batch_of(SESSION, [messages(0, 10)])
        entry = segment.BatchEntry(1, 0, 0, SESSION, 0, 10, 10, (0, 0))
        octets = segment.encode(pa.RecordBatch.from_arrays(batch.columns[:-1], schema=EARLIER_SCHEMA), entry)
        path_of(tmp_path, 1).write_bytes(segment.HEAD + bytes(octets))
    check_rows(table(tmp_path), 0, 10)
    assert table(tmp_path, columns=("sqn", "frame"))["frame"].null_count == 10
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    append(writer, [messages(10, 10)])
    writer.close()
    check_rows(table(tmp_path), 0, 20)
