"""Batches are published once, wherever the service dies.

The service reports which messages a session may have sent twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from pgm.archive.errors import ArchiveError, BadRequest, NotStaged
from pgm.archive.requests import ACTION_PUBLISH, ACTION_PUBLISHED
from pgm.archive.service import publications as publications_module
from pgm.archive.service.publication_journal import completed_rows
from pgm.archive.service.publications import Publications, PublicationTarget
from pgm.parameters import Parameters

_ROWS = 250
_CHUNK = 100


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications_module, "_CHUNK", _CHUNK)


class _Kill(BaseException):
    """Simulated death of the process: no handler catches it and no cleanup runs."""


@attrs.define(eq=False)
class _ServiceRun:
    """One run of the service, killed at the `dies_at`th external effect."""

    dies_at: int
    tsi: str
    sent: list[bytes] = attrs.field(factory=list)

    def count_effect(self) -> None:
        self.dies_at -= 1
        if self.dies_at < 0:
            raise _Kill

    def publish(self, _: str, rows: pa.Table) -> None:
        values = rows["value"].to_pylist()
        for part in (values[: len(values) // 2], values[len(values) // 2 :]):
            self.count_effect()
            self.sent += part

    def where(self) -> tuple[str, int]:
        return self.tsi, len(self.sent)


def _rows(values: Sequence[bytes], **names: object) -> pa.Table:
    return completed_rows(pa.table({"value": pa.array(values, pa.binary()), **names}))


def _values(batch: int, rows: int = _ROWS) -> list[bytes]:
    return [b"%d %d" % (batch, row) for row in range(rows)]


def _batch(publications: Publications, batch: int, rows: int = _ROWS) -> dict[str, Any]:
    values = _values(batch, rows)
    for at in range(0, rows, 70):
        publications.stage(f"{batch}", _rows(values[at : at + 70]))
    return publications.do(ACTION_PUBLISH, {"writer": "w", "batch": batch, "attempts": [f"{batch}"]})


def _counted(publications: Publications, lives: Sequence[_ServiceRun]) -> list[bytes]:
    """Return the messages of all sessions without the repeats that the service reports."""
    cut: dict[str, int] = {}
    for one in publications.do(ACTION_PUBLISHED, {})["repeats"]:
        assert one["end"] is None
        cut[one["tsi"]] = one["first"]
    return [value for life in lives for value in life.sent[: cut.get(life.tsi)]]


@pytest.mark.parametrize("again", [10_000, 1, 4])
def test_killed_anywhere_every_row_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: int) -> None:
    for kill in range(40):
        folder = tmp_path / str(kill)
        folder.mkdir()
        lives: list[_ServiceRun] = []

        def synced(_: int, lives: list[_ServiceRun] = lives) -> None:
            lives[-1].count_effect()

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "fdatasync", synced)
        patience = iter([kill, again, 10_000])
        while True:
            lives.append(_ServiceRun(next(patience), f"session {len(lives)}"))
            try:
                target = PublicationTarget(lives[-1].publish, folder / "state", lives[-1].where)
                publications = Publications(target, Parameters(), lambda _: None)
                publications.finish()
                for batch in range(2):
                    told = _batch(publications, batch)
                    assert told == {"published": 0 if told["repeated"] else _ROWS, "repeated": told["repeated"]}
                break
            except _Kill:
                continue
        assert _counted(publications, lives) == _values(0) + _values(1), f"killed at {kill} and {again}"
        assert not [path for path in folder.iterdir() if ".batch" in path.name and path.suffix != ".new"]
    assert lives[0].dies_at > 0, "the test did not reach the end of the run"


def _fails(*_: object) -> None:
    raise OSError("the source is gone")


def _begun(folder: Path, publish: Callable[..., None], said: list[str]) -> Publications:
    parameters = attrs.evolve(Parameters(), archive_stage_bytes=1 << 20)
    return Publications(PublicationTarget(publish, folder / "published.json"), parameters, said.append)


def test_publications_failed_batch_is_finished_first(tmp_path: Path) -> None:
    said: list[str] = []
    life = _ServiceRun(10_000, "one")
    sends = [life.publish, life.publish, _fails]
    target = PublicationTarget(
        lambda stream, values: (sends.pop(0) if sends else life.publish)(stream, values),
        tmp_path / "published.json",
        life.where,
    )
    publications = Publications(target, Parameters(), said.append)
    with pytest.raises(OSError, match="gone"):
        _batch(publications, 7)
    publications.publish("", _rows([b"between"]))
    assert life.sent == [*_values(7), b"between"]
    assert _batch(publications, 7) == {"published": 0, "repeated": True}
    assert said == ["batch 7 of w resumes at row 200: rows that session one sent from sqn 200 on come again in session one from sqn 200 on"]  # fmt: skip
    (repeat,) = publications.do(ACTION_PUBLISHED, {})["repeats"]
    assert (repeat["first"], repeat["end"], repeat["row"], repeat["rows"]) == (200, 200, 200, _ROWS - 200)


def test_names_that_the_source_refuses_begin_no_batch(tmp_path: Path) -> None:
    """A begun batch must end, so no name may fail it."""
    sent: list[pa.Table] = []
    target = PublicationTarget(lambda _, rows: sent.append(rows), tmp_path / "published.json")
    publications = Publications(target, Parameters(), print)
    with pytest.raises(BadRequest, match="column subject: 'no slash' is no subject"):
        publications.stage("a", _rows([b"1", b"2"], subject=["/a", "no slash"]))
    with pytest.raises(BadRequest, match="column to: '' is no name of a node"):
        publications.publish("", _rows([b"1"], to=[""]))
    publications.stage("a", _rows([b"1", b"2"], subject=["/a", None], to=[None, "desk-1"]))
    publications.do(ACTION_PUBLISH, {"writer": "w", "batch": 1, "attempts": ["a"]})
    assert [table.to_pylist() for table in sent] == [
        [{"value": b"1", "subject": "/a", "to": None}, {"value": b"2", "subject": None, "to": "desk-1"}]
    ]
    plain = Publications(PublicationTarget(lambda *_: None, has_names=False), Parameters(), print)
    plain.stage("a", _rows([b"1"]))
    with pytest.raises(BadRequest, match="the messages of this stream have none"):
        plain.stage("a", _rows([b"1"], subject=["/a"]))


def test_a_journal_of_an_earlier_version_is_finished(tmp_path: Path) -> None:
    description = json.dumps({"writer": "w", "batch": 1, "stream": "s"}).encode()
    schema = pa.schema([("value", pa.binary())], {b"pgm.batch": description})
    with pa.OSFile(str(tmp_path / "published.json.batch"), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([b"1"], pa.binary())], schema=schema))
    sent: list[pa.Table] = []
    target = PublicationTarget(lambda _, rows: sent.append(rows), tmp_path / "published.json")
    Publications(target, Parameters(), print).finish()
    assert [table.to_pylist() for table in sent] == [[{"value": b"1", "subject": None, "to": None}]]


def test_batches_are_published_once_over_restarts(tmp_path: Path) -> None:
    sent: list[bytes] = []
    said: list[str] = []
    first = _begun(tmp_path, lambda _, rows: sent.extend(rows["value"].to_pylist()), said)
    assert _batch(first, 4, 2) == {"published": 2, "repeated": False}
    again = _begun(tmp_path, lambda _, rows: sent.extend(rows["value"].to_pylist()), said)
    assert _batch(again, 4, 2) == {"published": 0, "repeated": True}
    with pytest.raises(NotStaged, match="1 of 1 attempts are missing"):
        again.do(ACTION_PUBLISH, {"writer": "w", "batch": 5, "attempts": ["5"]})
    assert (sent, said) == (_values(4, 2), [])
    with pytest.raises(BadRequest, match="wait to be published already"):
        again.stage("b", _rows([bytes(2 << 20)]))
    (tmp_path / "published.json.batch").write_text("no rows")
    with pytest.raises(ArchiveError, match="does not say which batch was on its way"):
        _batch(again, 5, 2)
    (tmp_path / "published.json").write_text("[]")
    with pytest.raises(ArchiveError, match="does not say which batches"):
        _begun(tmp_path, _fails, said)
