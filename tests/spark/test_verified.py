"""The column `verified`: the verdict of a check with public keys, for each row of a signed stream."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import attrs
import pytest
from pyspark.sql import SparkSession

from pgm.archive.store.schema import COLUMN_NAMES
from pgm.spark import register
from pgm.spark.errors import BadOption
from pgm.spark.offsets import spans_of
from pgm.spark.option_table import READ
from pgm.spark.options import SourceOptions, read_options
from pgm.spark.ranges import pieces_of
from pgm.spark.recorders import survey
from pgm.spark.register import packed
from pgm.spark.sessions import sessions_of
from pgm.spark.source import PgmReader, PgmStreamReader
from pgm.spark.verified import RowReader
from pgm.trust.private_keys import PrivateFile
from tests.spark.support.archives import at, served
from tests.unit.archive.makers import run_of
from tests.unit.archive.signed import (
    MESSAGES,
    batch_run,
    mixed,
    proofs_of,
    record,
    rewritten,
    sealed,
    sealer_for,
    tree_text,
)
from tests.unit.trust.keys import private_keys

NAMES = ("/nasdaq/ibm", "/lse/vod")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.toml"
    path.write_text(tree_text())
    return path


def options(recorders: str, tree: Path | None, **values: object) -> SourceOptions:
    signatures = {} if tree is None else {"signatures": tree}
    given = {"recorders": recorders, "retrySeconds": "0", "columns": "sqn,verified", **signatures, **values}
    return read_options({key: str(value) for key, value in given.items()}, READ)


def verdicts(chosen: SourceOptions) -> list[tuple[int, bool | None]]:
    """Return sqn and verdict of all rows, by the pieces of a batch."""
    sessions = sessions_of(survey(chosen), chosen)
    found: list[tuple[int, bool | None]] = []
    for piece in pieces_of(spans_of(sessions, chosen), chosen):
        for batch in RowReader(piece, chosen).batches():
            found += zip(batch.column("sqn").to_pylist(), batch.column("verified").to_pylist(), strict=True)
    return found


def test_verified_rows_are_proved_in_any_partition(tmp_path: Path, tree: Path) -> None:
    record(tmp_path / "a" / "a", mixed(), proofs_of(mixed()))
    with served(tmp_path / "a") as service:
        for parts, local in ((1, "true"), (7, "false"), (40, "true")):
            found = verdicts(options(at(service), tree, minPartitions=parts, localFiles=local))
            assert set(dict(found).values()) == {True}, (parts, found)
            assert len(found) == 20 + 1 + 1 + 139
        assert {one for _, one in verdicts(options(at(service), None))} == {None}  # no check was asked
        assert len(sessions_of(survey(options(at(service), None)), options(at(service), None))) == 1  # without proofs


def test_verified_rows_of_altered_and_unsigned_sessions(tmp_path: Path, tree: Path) -> None:
    def change(rows: list[dict[str, object]]) -> None:
        rows[150]["value"] = b"other"

    record(tmp_path / "true", mixed(), proofs_of(mixed()))
    rewritten(tmp_path / "true", tmp_path / "a" / "a", change)
    with served(tmp_path / "a") as service:
        found = verdicts(options(at(service), tree, minPartitions=9))
        assert 0 < Counter(one for _, one in found)[False] <= 32
        assert found[150][1] is False
    tree.write_text(tree_text(private_keys(2)))
    with served(tmp_path / "true") as service:
        assert {one for _, one in verdicts(options(at(service), tree))} == {False}
    record(tmp_path / "b" / "b", [run_of(5, 10)], [], session=attrs.evolve(MESSAGES, stream="other"))
    with served(tmp_path / "b") as service:
        assert {one for _, one in verdicts(options(at(service), tree))} == {None}


def test_verified_rows_of_chosen_subjects_are_those_of_whole_packets(tmp_path: Path, tree: Path) -> None:
    tree.write_text(tree_text(framing="batch"))
    runs = [batch_run(7 + at, [(b"%d" % (4 * at + i), NAMES[i % 2]) for i in range(4)]) for at in range(60)]
    record(tmp_path / "a" / "a", runs, proofs_of(runs), has_batches=True)
    with served(tmp_path / "a") as service:
        found = verdicts(options(at(service), tree, subjects="/lse/*", minPartitions=3))
    assert found == [(7 + at, True) for at in range(60) for _ in range(2)]


def test_verified_rows_wait_for_their_proofs(tmp_path: Path, tree: Path) -> None:
    now_us = time.time_ns() // 1000
    proofs = proofs_of([run_of(5, 100)])
    record(tmp_path / "a" / "a", [run_of(5, 200)], proofs, at_us=now_us)
    with served(tmp_path / "a") as service:
        chosen = options(at(service), tree, proofSeconds=3600)
        found = [row for piece in PgmReader(chosen).partitions() for row in _read(chosen, piece)]
        assert found == [(sqn, True) for sqn in range(5, 105)]
        stream = PgmStreamReader(chosen)
        start = stream.initialOffset()
        end = stream.latestOffset(start, stream.getDefaultReadLimit())
        assert list(end.values()) == [105]
        assert stream.partitions(start, dict.fromkeys(end, 150))  # an end of an earlier process still counts
        at_once = options(at(service), tree, proofSeconds=0)
        found = [row for piece in PgmReader(at_once).partitions() for row in _read(at_once, piece)]
        assert found == [(sqn, sqn < 105) for sqn in range(5, 205)]


def _read(chosen: SourceOptions, piece: object) -> list[tuple[int, bool | None]]:
    return [
        (row["sqn"], row["verified"])
        for batch in PgmReader(chosen).read(piece)  # type: ignore[arg-type]
        for row in batch.to_pylist()
    ]


def test_option_signatures_names_what_is_wrong(tmp_path: Path, tree: Path) -> None:
    tree.write_text(tree_text().replace("signed = true", ""))
    with pytest.raises(BadOption, match=r"option signatures = .* has no signed stream"):
        options("grpc://127.0.0.1:1", tree)
    with pytest.raises(BadOption, match=r"missing\.toml"):
        options("grpc://127.0.0.1:1", tmp_path / "missing.toml")
    tree.write_text(tree_text())
    with pytest.raises(BadOption, match="history excludes signatures"):
        options("grpc://127.0.0.1:1", tree, history=tmp_path)


def test_verified_in_a_query_and_in_a_stream(spark: SparkSession, tmp_path: Path, tree: Path) -> None:
    register(spark)

    def change(rows: list[dict[str, object]]) -> None:
        rows[3]["value"] = b"other"

    record(tmp_path / "true", mixed(), proofs_of(mixed()))
    rewritten(tmp_path / "true", tmp_path / "a" / "a", change)
    with served(tmp_path / "a") as service:
        given = {"recorders": at(service), "signatures": str(tree), "minPartitions": "2"}
        frame = spark.read.format("pgm").options(**given).load()
        assert tuple(frame.columns) == (*COLUMN_NAMES, "verified")
        found = Counter(row.verified for row in frame.select("verified").collect())
        assert found == {True: 161 - found[False], False: found[False]}
        assert found[False] <= 32
        counts: Counter[bool | None] = Counter()
        query = (
            spark.readStream.format("pgm")
            .options(columns="sqn,verified", **given)
            .load()
            .writeStream.foreachBatch(lambda rows, _: counts.update(row.verified for row in rows.collect()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert counts == found


def test_executors_get_the_modules_of_a_check(tmp_path: Path) -> None:
    packed(tmp_path / "x.zip")
    program = "import pgm, pgm.spark.source, pgm.archive.signatures.checked_range; print(pgm.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "x.zip")}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.startswith(str(tmp_path)), ran


def test_keys_open_the_values_of_proved_rows(tmp_path: Path, tree: Path) -> None:
    tree.write_text(tree_text(framing="batch", is_sealed=True))
    runs = [batch_run(7 + at, [(b"%d" % (4 * at + i), NAMES[i % 2]) for i in range(4)]) for at in range(60)]
    sealer = sealer_for(private_keys(2))
    encrypted = sealed(runs, sealer)
    record(tmp_path / "a" / "a", encrypted, proofs_of(encrypted, sealer=sealer), records=list(sealer.records()))
    key_file = tmp_path / "reader.key"
    key_file.write_text(PrivateFile("floor", "desk", private_keys(2)).text())
    key_file.chmod(0o600)
    with served(tmp_path / "a") as service:
        chosen = options(at(service), tree, keys=key_file, columns="value,verified", subjects="/lse/*", minPartitions=3)
        found = [row for piece in PgmReader(chosen).partitions() for row in _rows(chosen, piece)]
        assert found == [(b"%d" % (4 * at + i), True) for at in range(60) for i in (1, 3)]
        locked = options(at(service), tree, columns="value,verified")

        assert len([row for piece in PgmReader(locked).partitions() for row in _rows(locked, piece)]) == 60
        key_file.chmod(0o644)
        with pytest.raises(BadOption, match="is open to other users: mode 0644"):
            _rows(chosen, PgmReader(chosen).partitions()[0])
    with pytest.raises(BadOption, match="option keys needs signatures"):
        options("grpc://127.0.0.1:1", None, keys=key_file)


def _rows(chosen: SourceOptions, piece: object) -> list[tuple[bytes, bool | None]]:
    return [
        (row["value"], row["verified"])
        for batch in PgmReader(chosen).read(piece)  # type: ignore[arg-type]
        for row in batch.to_pylist()
    ]
