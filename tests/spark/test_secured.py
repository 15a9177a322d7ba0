"""Source and sink over TLS with a private certificate authority, and a token.

One test covers rows that a publishing service sent twice.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgm.archive.service.collection import Archives
from pgm.archive.service.publications import PublicationTarget
from pgm.archive.service.service import RangeService, ServiceAccess
from pgm.mutual_tls.gate import PeerGate
from pgm.parameters import Parameters
from pgm.spark import register, without_repeats
from pgm.spark.errors import PublishFailed, RecorderDown, RecorderRefused
from pgm.spark.sink import StagedBatch
from pgm.spark.source import PgmDataSource
from tests.spark.support.archives import archive, at, served, session
from tests.spark.support.authority import Authority, made_authority
from tests.unit.archive.makers import TSI_TEXT, messages
from tests.unit.mutual_tls.parties import forest, keys

_TOKEN = "a long random word"


@pytest.fixture(scope="module", name="authority")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return made_authority(tmp_path_factory.mktemp("keys"))


@contextmanager
def _secured(authority: Authority, directory: Path, sent: list[bytes]) -> Iterator[str]:
    service = RangeService(
        Archives(directory),
        "grpc+tls://127.0.0.1:0",
        Parameters(),
        access=ServiceAccess(certificate=(authority.certificate, authority.key), token=_TOKEN),
        target=PublicationTarget(lambda _, rows: sent.extend(rows["value"].to_pylist()), directory / "published.json"),
    )
    try:
        yield f"grpc+tls://127.0.0.1:{service.port}"
    finally:
        service.end()


def test_source_and_sink_over_tls_with_a_token(spark: SparkSession, tmp_path: Path, authority: Authority) -> None:
    register(spark)
    archive(tmp_path / "a", [messages(0, 500)])
    (tmp_path / "token").write_text(_TOKEN + "\n")
    (tmp_path / "wrong").write_text("guessed")
    sent: list[bytes] = []
    with _secured(authority, tmp_path, sent) as where:
        good = {"recorders": where, "tlsRootCerts": str(authority.file), "tokenFile": str(tmp_path / "token")}
        sending = good | {"localFiles": "false"}
        for options in (good, sending):
            rows = spark.read.format("pgm").options(**options).option("columns", "sqn,value").load()
            assert [row.sqn for row in rows.collect()] == list(range(500))
        copied = spark.readStream.format("pgm").options(**sending).option("columns", "value").load().writeStream
        query = copied.format("pgm").options(**good, checkpointLocation=str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        assert [int.from_bytes(value[:8], "big") for value in sent] == list(range(500))
        wrong = good | {"tokenFile": str(tmp_path / "wrong"), "retrySeconds": "0"}
        no_authority = {name: value for name, value in good.items() if name != "tlsRootCerts"} | {"retrySeconds": "0"}
        for options, says in ((wrong, r"PGM-ARCHIVE-TOKEN"), (no_authority, r"does not answer")):
            source = PgmDataSource(options)
            with pytest.raises((RecorderDown, RecorderRefused), match=says):
                source.reader(rows.schema).partitions()
            with pytest.raises(PublishFailed, match=says):
                source.writer(rows.select("value").schema, overwrite=False).commit([StagedBatch("a", 0, 1, "query")])
        assert len(sent) == 500


def test_source_over_mutual_tls(spark: SparkSession, tmp_path: Path) -> None:
    """Executors read their own private file; the driver sends public keys alone."""
    register(spark)
    archive(tmp_path / "a", [messages(0, 500)])
    tree = forest(tmp_path)
    gate = PeerGate(tree.identity("recorder"), ("desk-1",))
    service = RangeService(
        Archives(tmp_path / "a"),
        "grpc+tls://127.0.0.1:0",
        Parameters(),
        access=ServiceAccess(gate=gate),
    )
    desk, other = (str(tree.private_file(f"desk-{number}", keys(2 + number))) for number in (1, 2))
    good = {
        "recorders": f"grpc+tls://127.0.0.1:{service.port}", "mutualTls": str(tree.file), "keys": desk,
        "serviceNodes": "recorder", "localFiles": "false",
    }  # fmt: skip
    try:
        rows = spark.read.format("pgm").options(**good).option("columns", "sqn,value").load()
        assert [row.sqn for row in rows.collect()] == list(range(500))
        octets = pickle.dumps(PgmDataSource(good).reader(rows.schema))
        assert keys(2).public.ed25519 in octets, "the keys of the service"
        assert keys(1).public.ed25519 not in octets, "no keys of other nodes"
        assert keys(3).secret_octets()[:32] not in octets, "no private keys"
        cases = (
            ({"keys": other}, r"PGM-PEER: desk-2 \(keys"),
            ({"serviceNodes": "exchange"}, "refuses the keys of the other"),
        )
        for wrong, says in cases:
            with pytest.raises((RecorderDown, RecorderRefused), match=says):
                PgmDataSource(good | wrong | {"retrySeconds": "0"}).reader(rows.schema).partitions()
    finally:
        service.end()


def test_secured_repeated_rows_count_once(spark: SparkSession, tmp_path: Path) -> None:
    """A session that was cut short, and the session that repeats its last rows."""
    archive(tmp_path / "recorded" / "a", [messages(0, 100)])
    later = "9.9.9.9.9.9.7500"
    archive(tmp_path / "recorded" / "b", [messages(0, 50)], session(tsi=later))
    (tmp_path / "publisher").mkdir()
    state = tmp_path / "publisher" / "published.json"
    ranges = [(TSI_TEXT, 90, None), (later, 10, 15)]
    repeats = [dict(zip(("tsi", "first", "end"), one, strict=True)) for one in ranges]
    state.write_text(json.dumps({"writers": {}, "repeats": repeats}))
    with (
        served(tmp_path / "recorded") as recorder,
        served(tmp_path / "publisher", target=PublicationTarget(lambda *_: None, state)) as publisher,
    ):
        rows = register(spark).read.format("pgm").option("columns", "tsi,sqn").load(at(recorder))
        counted = without_repeats(rows, at(publisher)).groupBy("tsi").count().collect()
    assert {row.tsi: row["count"] for row in counted} == {TSI_TEXT: 90, later: 45}
