"""`option("history")`: rows that recorders have dropped come from a table, each row once. Readers run without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from pgm.archive.store.segment import numbers_in, path_of
from pgm.archive.tables.compaction import compact
from pgm.archive.tables.opening import KINDS, open_table
from pgm.parameters import Parameters
from pgm.spark.errors import BadOption, DataLoss
from pgm.spark.offsets import spans_of
from pgm.spark.offsets.next_batch import advanced
from pgm.spark.offsets.received_times import ReceivedTimes
from pgm.spark.offsets.time_order import ReadLimits
from pgm.spark.option_table import READ
from pgm.spark.options import SourceOptions, read_options
from pgm.spark.ranges import RangeReader, SessionSpan, pieces_of
from pgm.spark.recorders import survey
from pgm.spark.sessions import sessions_of
from tests.spark.support.archives import KEY, at, served
from tests.unit.archive.tables.tables import HOUR_US, archive_of, archive_rows, exported, parts, whole_losses


def _options(recorders: str, root: Path, **values: object) -> SourceOptions:
    given = {"recorders": recorders, "retrySeconds": "0", "history": str(root), **values}
    return read_options({key: str(value) for key, value in given.items()}, READ)


def _rows(options: SourceOptions) -> list[dict[str, Any]]:
    pieces = pieces_of(spans_of(sessions_of(survey(options), options), options), options)
    return [row for piece in pieces for batch in RangeReader(piece, options).batches() for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of 1100 sqns over three hours, in six segments."""
    directory = tmp_path_factory.mktemp("whole")
    for first in range(0, 1000, 200):
        archive_of(directory, parts(first, 200))
    return archive_of(directory, parts(1000, 100))


@pytest.fixture
def archives(whole: Path, tmp_path: Path) -> Path:
    """Return a folder with an archive that has only the sqns from 600 on."""
    shutil.copytree(whole, tmp_path / "archives" / "a")
    for number in numbers_in(whole)[:3]:
        path_of(tmp_path / "archives" / "a", number).unlink()
    return tmp_path / "archives"


def _table(kind: str, whole: Path, root: Path) -> Path:
    """Return a table of the first 1000 sqns, with a file for each commit."""
    older = root.parent / "older"
    shutil.copytree(whole, older)
    path_of(older, numbers_in(older)[-1]).unlink()
    exported(kind, older, root)
    return root


def _wanted(whole: Path, first: int = 0) -> list[dict[str, Any]]:
    return [row for row in archive_rows(whole).to_pylist() if row["sqn"] >= first]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_table_and_recorder_come_once(tmp_path: Path, whole: Path, archives: Path, kind: str) -> None:
    root = _table(kind, whole, tmp_path / "table")
    with served(archives) as service:
        options = _options(at(service), root)
        [session] = sessions_of(survey(options), options).values()
        assert [(place.oldest, place.next_sqn) for place in session.places] == [(600, 1100), (0, 1000)]
        assert _rows(options) == _wanted(whole)
        cut = _rows(_options(at(service), root, minPartitions=13))
        assert whole_losses(pa.Table.from_pylist(cut, archive_rows(whole).schema)) == _wanted(whole)
        assert sum(row["count"] for row in cut) == 1100
        time_ms = 400 * HOUR_US // 500 // 1000
        assert _rows(_options(at(service), root, startingTimestamp=time_ms)) == _wanted(whole, 400)
        assert _rows(_options(at(service), root, node="recorder-2")) == []
        alone = attrs.evolve(options, history=None, starting={KEY: 100})
        with pytest.raises(DataLoss, match="which is held from 600 to 1099"):
            _rows(alone)


def test_stream_takes_table_and_recorder_in_the_order_of_time(tmp_path: Path, whole: Path, archives: Path) -> None:
    root = _table("parquet", whole, tmp_path / "table")
    with served(archives) as service:
        options = _options(at(service), root, columns="sqn,count")
        sessions = sessions_of(survey(options), options)
        cut = ReceivedTimes(options).cut
        offsets = {KEY: 0}
        counts = []
        while offsets[KEY] < 1100:
            before = offsets
            offsets = advanced(offsets, sessions, ReadLimits(250), None, cut).offsets
            spans = [SessionSpan(sessions[KEY], before[KEY], offsets[KEY])]
            rows = [row for piece in pieces_of(spans, options) for row in _read(piece, options)]
            counts.append(sum(row["count"] for row in rows))
            assert counts[-1] == offsets[KEY] - before[KEY]
    assert sum(counts) == 1100
    assert max(counts) <= 250


def _read(piece: Any, options: SourceOptions) -> list[dict[str, Any]]:
    return [row for batch in RangeReader(piece, options).batches() for row in batch.to_pylist()]


def test_files_that_were_merged_or_removed_meanwhile(tmp_path: Path, whole: Path, archives: Path) -> None:
    root = _table("parquet", whole, tmp_path / "table")
    with served(archives) as service:
        options = _options(at(service), root, columns="sqn")
        pieces = pieces_of(spans_of(sessions_of(survey(options), options), options), options)
        store = open_table("parquet", root, "each")
        assert compact(store, Parameters()).merged > 2
        store.close()
        assert len([row for piece in pieces for row in _read(piece, options)]) == len(_wanted(whole))
        for path in root.rglob("*.parquet"):
            path.unlink()
        with pytest.raises(DataLoss, match=f"the sqns 0 to 999 are not available.*{root}"):
            _read(pieces[0], options)


def test_tables_that_cannot_stand_in_are_refused(tmp_path: Path, archives: Path) -> None:
    open_table("parquet", tmp_path / "joined", "join").close()
    with served(archives) as service:
        with pytest.raises(BadOption, match="has joined recordings"):
            _rows(_options(at(service), tmp_path / "joined"))
        with pytest.raises(BadOption, match=r"option history: .*none has no table of pgm\n.*pgm archive export"):
            _rows(_options(at(service), tmp_path / "none"))
