"""Ranges without Spark: choice of places, and failures during a read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import attrs
import numpy as np
import pytest

from pgm.spark.errors import DataLoss, RecorderDown
from pgm.spark.offsets import spans_of
from pgm.spark.option_table import READ
from pgm.spark.options import SourceOptions, read_options
from pgm.spark.ranges import RangePiece, RangeReader, pieces_of
from pgm.spark.recorders import survey
from pgm.spark.register import packed
from pgm.spark.sessions import sessions_of
from tests.net.support.processes import Process
from tests.spark.support.archives import archive, at, served, session
from tests.unit.archive.makers import loss, messages


def options(recorders: str, **values: object) -> SourceOptions:
    given = {"recorders": recorders, "retrySeconds": "0", "columns": "sqn", **values}
    return read_options({key: str(value) for key, value in given.items()}, READ)


def pieces(chosen: SourceOptions) -> list[RangePiece]:
    return pieces_of(spans_of(sessions_of(survey(chosen), chosen), chosen), chosen)


def sqns(chosen: SourceOptions) -> list[int]:
    return [
        sqn
        for piece in pieces(chosen)
        for batch in RangeReader(piece, chosen).batches()
        for sqn in batch.column("sqn").to_pylist()
    ]


def test_a_service_that_is_killed_in_the_middle_of_a_range(tmp_path: Path) -> None:
    parts = [messages(first, 1000, 2000) for first in range(0, 20_000, 1000)]
    archive(tmp_path / "a", parts, session("a"))
    archive(tmp_path / "b", parts, session("b"))
    with ExitStack() as stack:
        places = []
        for name in ("a", "b"):
            service = Process(name, ["serve", str(tmp_path / name), "--listen", "127.0.0.1:0"])
            stack.callback(service.close)
            service.line_with("ready:")
            places.append((service, service.log.rpartition(" on ")[2].strip()))
        chosen = options(f"{places[0][1]}|{places[1][1]}", columns="sqn,value", localFiles="false")
        (piece,) = pieces(chosen)
        found: list[int] = []
        for number, batch in enumerate(RangeReader(piece, chosen).batches()):
            found += batch.column("sqn").to_pylist()
            if number == 0:
                next(service for service, where in places if where == piece.places[0].location).kill()
        assert found == list(range(20_000))
        alone = options(piece.places[0].location, columns="sqn,value", localFiles="false")
        with pytest.raises(RecorderDown, match="does not answer"):
            list(RangeReader(RangePiece(_session(piece), 0, 20_000, piece.places[:1]), alone).batches())


def _session(piece: RangePiece) -> object:
    return attrs.make_class("Session", ["key", "tsi", "epoch_us"])(piece.key, piece.tsi, piece.epoch_us)


def test_ranges_two_recorders_complete_each_other(tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 300), loss(300, 100), messages(400, 100)], session("a"))
    archive(tmp_path / "b", [loss(100, 50), messages(150, 850)], session("b"))
    with served(tmp_path) as service:
        for count in (1, 7):
            assert sqns(options(at(service), minPartitions=count)) == list(range(1000))
        both = options(at(service), startingOffsets='{"1.2.3.4.5.6.7500": 120}', columns="sqn,count,lost")
        (first, *_) = (batch for piece in pieces(both) for batch in RangeReader(piece, both).batches())
        assert first.column("lost").null_count == first.num_rows


def test_a_loss_that_both_have_stays_one_loss(tmp_path: Path) -> None:
    for node in ("a", "b"):
        archive(tmp_path / node, [messages(0, 10), loss(10, 5), messages(15, 10)], session(node))
    with served(tmp_path) as service:
        assert sqns(options(at(service))) == [*range(11), *range(15, 25)]


def test_of_a_long_loss_another_gives_what_it_has(tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 10), loss(10, 50_000), messages(50_010, 10)], session("a"))
    archive(tmp_path / "b", [loss(0, 30_000), messages(30_000, 20_020)], session("b"))
    with served(tmp_path) as service:
        chosen = options(at(service), node="a,b", columns="sqn,count,lost")
        rows = [
            row
            for piece in pieces(chosen)
            for batch in RangeReader(piece, chosen).batches()
            for row in batch.to_pylist()
        ]
        assert sum(row["count"] for row in rows) == 50_020
        assert {row["sqn"] for row in rows if row["lost"] is None} == {*range(10), *range(30_000, 50_020)}


def test_sqns_that_nobody_has(tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(0, 100)], session("a"))
    archive(tmp_path / "b", [messages(200, 100)], session("b"))
    with served(tmp_path) as service:
        with pytest.raises(DataLoss, match="sqns 100 to 199 are not available: held from 200 on"):
            sqns(options(at(service)))
        assert sqns(options(at(service), failOnDataLoss="false")) == [*range(100), *range(200, 300)]


def test_subjects_are_chosen_by_the_service(tmp_path: Path) -> None:
    part = attrs.evolve(messages(0, 10), subjects=("x/1", "y/2"), subject=np.array([1, 2] * 5, np.uint8))
    for node in ("a", "b"):
        archive(tmp_path / node, [part, loss(10, 5), messages(15, 3)], session(node))
    with served(tmp_path) as service:
        assert sqns(options(at(service), subjects="x/*")) == [0, 2, 4, 6, 8, 10]
        assert sqns(options(at(service), subjects="y/2,z")) == [1, 3, 5, 7, 9, 10]


def test_ranges_pickle_only_the_needed_state(tmp_path: Path) -> None:
    import zipfile

    names = zipfile.ZipFile(packed(tmp_path / "x.zip")).namelist()
    assert {"pgm/__init__.py", "pgm/spark/source.py", "pgm/archive/store/schema.py", "attrs/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith("pgm/net")]
