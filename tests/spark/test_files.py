"""Rows read from the files of a local range service, compared with rows it sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from pgm.archive.errors import CorruptSegment
from pgm.archive.requests import ACTION_FILES, RangeRequest
from pgm.archive.service.local_reads import read_file_ranges
from pgm.spark import ranges
from pgm.spark.offsets import spans_of
from pgm.spark.option_table import READ
from pgm.spark.options import SourceOptions, read_options
from pgm.spark.ranges import RangeReader, pieces_of
from pgm.spark.recorders import ask, survey
from pgm.spark.sessions import sessions_of
from tests.spark.support.archives import archive, at, served, session
from tests.unit.archive.makers import TSI_TEXT, loss, messages


def _options(recorders: str, **values: object) -> SourceOptions:
    given = {"recorders": recorders, "retrySeconds": "0", **values}
    return read_options({key: str(value) for key, value in given.items()}, READ)


def _rows(options: SourceOptions) -> list[dict[str, Any]]:
    pieces = pieces_of(spans_of(sessions_of(survey(options), options), options), options)
    return [row for piece in pieces for batch in RangeReader(piece, options).batches() for row in batch.to_pylist()]


def _told(service: Any, **values: Any) -> tuple[dict[str, Any], RangeRequest]:
    request = RangeRequest(TSI_TEXT, 1_000_000, node="recorder-1", **values)
    return ask(_options(at(service)), at(service), ACTION_FILES, json.loads(request.to_bytes())), request


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"minPartitions": 7, "columns": "value,sqn"},
        {"subjects": "x/*", "columns": "sqn"},
        {"subjects": "nobody", "columns": "sqn,lost"},
        {"startingOffsets": json.dumps({TSI_TEXT: 320}), "endingOffsets": json.dumps({TSI_TEXT: 711})},
    ],
)
def test_the_same_rows_as_the_service_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, object]
) -> None:
    named = attrs.evolve(messages(0, 300), subjects=("x/1", "y/2"), subject=np.array([1, 2] * 150, np.uint8))
    archive(
        tmp_path / "a", [named, loss(300, 50), messages(350, 350), loss(700, 50), messages(750, 250, repaired=(760,))]
    )
    with served(tmp_path) as service:
        sent = _rows(_options(at(service), localFiles="false", **asked))
        monkeypatch.setattr(ranges, "open_range", lambda *_: pytest.fail("the service was asked for rows"))
        assert _rows(_options(at(service), **asked)) == sent
        assert sent or asked.get("subjects") == "nobody"


def test_spots_are_told_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgm.archive.service.service._MAX_RANGES", 3)
    archive(tmp_path / "a", [messages(first, 10) for first in range(0, 100, 10)])
    with served(tmp_path) as service:
        monkeypatch.setattr(ranges, "open_range", lambda *_: pytest.fail("the service was asked for rows"))
        assert [row["sqn"] for row in _rows(_options(at(service), columns="sqn"))] == list(range(100))


@pytest.mark.parametrize("elsewhere", ["nothing", "another node's", "other sqns"])
def test_a_path_that_means_something_else_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str) -> None:
    archive(tmp_path / "served" / "a", [messages(0, 100), messages(100, 100)], session("a"))
    of = session("b" if elsewhere == "another node's" else "a")
    if elsewhere != "nothing":
        archive(tmp_path / "here", [messages(0, 100), messages(1100 if elsewhere == "other sqns" else 100, 100)], of)

    def asked(*given: Any) -> dict[str, Any]:
        return {**ask(*given), "directory": str(tmp_path / "here")}

    monkeypatch.setattr(ranges, "ask", asked)
    with served(tmp_path / "served") as service:
        rows = _rows(_options(at(service)))
    assert [(row["sqn"], row["node"]) for row in rows] == [(sqn, "a") for sqn in range(200)]


def test_files_that_are_gone_or_damaged(tmp_path: Path) -> None:
    archive(tmp_path / "a", [messages(first, 100) for first in range(0, 300, 100)])
    with served(tmp_path) as service:
        told, request = _told(service)
    (segment,) = (tmp_path / "a").glob("*.arrows")
    assert sum(batch.num_rows for batch in read_file_ranges(told, request, 0, 250)) == 250
    octets = bytearray(segment.read_bytes())
    octets[told["spots"][1][1] + told["spots"][1][2] - 10] ^= 1
    segment.write_bytes(octets)
    with pytest.raises(CorruptSegment):
        list(read_file_ranges(told, request, 0, 300))
    segment.unlink()
    with pytest.raises(FileNotFoundError):
        list(read_file_ranges(told, request, 0, 300))


def test_a_service_that_does_not_tell(tmp_path: Path) -> None:
    archive(tmp_path / "a")
    with served(tmp_path, files=False) as service:
        assert len(_rows(_options(at(service), columns="sqn"))) == 1000
