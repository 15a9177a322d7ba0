"""`pgm archive schema`: the fields of a sample of values, from a directory or a range service."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pytest

from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.spark.support.archives import archive, at, served
from tests.unit.archive.makers import loss, valued


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    trades = [cbor2.dumps({"symbol": "IBM", "price": row / 8, "count": row}) for row in range(3000)]
    trades[0] = b"no map"
    parts = [valued(0, trades[:1000], ("/trades/a", "/trades/b")), loss(1000, 10), valued(1010, trades[1000:], ("/c",))]
    archive(tmp_path / "archives" / "a", parts)
    return tmp_path / "archives"


def test_schema_of_a_directory_and_of_a_service(directory: Path) -> None:
    done = invoked("archive", "schema", directory)
    assert (done.code, done.out) == (0, "symbol STRING, price DOUBLE, count BIGINT\n")
    assert "cbor: 1,000 values sampled, 1 differ" in done.err
    assert 'fields count\n  remedy: .option("decodePrefix", "value_")' in done.err
    with served(directory) as service:
        found = invoked("archive", "schema", at(service), "--json", "--sample", "100")
    documented("archive schema", found.json)
    documented("archive schema.reasons[]", found.json["reasons"][0])
    assert (found.json["sampled"], found.json["differ"], found.json["clashes"]) == (100, 1, ["count"])
    some = invoked("archive", "schema", directory, "--json", "--subject", "/trades/b", "--decode", "cbor")
    assert (some.json["sampled"], some.json["differ"]) == (374, 0)  # three of the eight places have this subject


def test_schema_refuses_what_has_none(directory: Path) -> None:
    invoked("archive", "schema", directory, "--subject", "/x").complains(2, "no message with the subjects /x")
    invoked("archive", "schema", directory, "--decode", "json").complains(2, "none has fields as json", "--subject")
    invoked("archive", "schema", "grpc://127.0.0.1:1").complains(1, "does not give its values", "pgm serve")
    invoked("archive", "ls", "grpc://127.0.0.1:1").complains(2, "`ls` reads a directory")
    invoked("archive", "ls", directory, "--sample", "5").complains(2, "--sample is an option of `schema`")
