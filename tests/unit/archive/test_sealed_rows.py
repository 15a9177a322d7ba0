"""Rows of sealed sessions: checked without secrets, and opened by the keys of a reader if they are proved."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest

from pgm.archive.session import OPENED
from pgm.archive.signatures.opened_rows import opened_rows
from pgm.archive.signatures.row_check import JudgedRows, RowCheck, RowVerdict
from pgm.archive.signatures.row_packets import NEEDED
from pgm.archive.signatures.session_proofs import SessionProofs, octets_of
from pgm.archive.signatures.session_secrets import SessionSecrets
from pgm.trust.private_keys import PrivateKeys
from pgm.wire.train import Run
from tests.unit.archive.makers import TSI, run_of, table
from tests.unit.archive.signed import (
    EPOCH_NS,
    KEY_RECORDS_OF,
    KEYS,
    MESSAGES,
    PROOFS_OF,
    altered,
    authority,
    batch_run,
    batches,
    mixed,
    proofs_of,
    record,
    sealed,
    sealer_for,
)
from tests.unit.trust.keys import private_keys

READER, OTHER = private_keys(2), private_keys(3)
PROVED, UNPROVED, FORGED = RowVerdict.PROVED, RowVerdict.UNPROVED, RowVerdict.FORGED
OPENED_BY = attrs.evolve(MESSAGES, kind=OPENED)


def secrets_of(directory: Path, keys: PrivateKeys) -> SessionSecrets:
    secrets = SessionSecrets(TSI, EPOCH_NS // 1000, {KEYS.public.id: KEYS.public}, keys)
    secrets.take(octets_of(batches(directory, KEY_RECORDS_OF.tsi)))
    return secrets


def judged(
    directory: Path, rows: Sequence, secrets: SessionSecrets | None, *, is_opened: bool = False
) -> list[JudgedRows]:
    by = authority()
    proofs = SessionProofs(TSI, EPOCH_NS // 1000, by.keys_for(TSI, "quotes", "exchange"), {})
    spans = proofs.spans(octets_of(batches(directory, PROOFS_OF.tsi)))
    check = RowCheck(spans, is_batched=False, is_opened=is_opened, secrets=secrets)
    found = [check.take(batch.select(NEEDED)) for batch in rows]
    rest = check.end()
    return found if rest is None else [*found, rest]


def opened(directory: Path, keys: PrivateKeys, *, has_batches: bool = False) -> list[dict[str, object]]:
    secrets = secrets_of(directory, keys)
    parts = judged(directory, batches(directory), secrets)
    return [row for part in parts for row in opened_rows(part, secrets, has_batches=has_batches).rows.to_pylist()]


def sealed_archive(directory: Path, runs: Sequence[Run]) -> None:
    sealer = sealer_for(READER)
    encrypted = sealed(runs, sealer)
    record(directory, encrypted, proofs_of(encrypted, sealer=sealer), records=list(sealer.records()))


def test_sealed_rows_are_proved_without_secrets_and_opened_with_them(tmp_path: Path) -> None:
    sealed_archive(tmp_path / "sealed", mixed())
    record(tmp_path / "clear", mixed(), [])
    verdicts = {
        one for part in judged(tmp_path / "sealed", batches(tmp_path / "sealed"), None) for one in part.verdicts
    }
    assert verdicts == {PROVED}
    values = table(tmp_path / "clear")["value"].to_pylist()
    assert table(tmp_path / "sealed")["value"].to_pylist() != values
    assert [row["value"] for row in opened(tmp_path / "sealed", READER)] == values
    assert {row["value"] for row in opened(tmp_path / "sealed", OTHER)} == {None}


def test_sealed_batches_become_messages_with_subjects(tmp_path: Path) -> None:
    names = ("/a", None, "/b")
    runs = [batch_run(7 + at, [(b"m%d" % (3 * at + i), names[i]) for i in range(3)]) for at in range(80)]
    sealed_archive(tmp_path, runs)
    rows = opened(tmp_path, READER, has_batches=True)
    assert [(row["sqn"], row["count"], row["index"], row["subject"], row["value"]) for row in rows] == [
        (7 + at, int(not i), i, names[i], b"m%d" % (3 * at + i)) for at in range(80) for i in range(3)
    ]


def test_sealed_rows_that_are_altered_are_not_opened(tmp_path: Path) -> None:
    sealed_archive(tmp_path, mixed())
    secrets = secrets_of(tmp_path, READER)

    def flip(rows: list[dict[str, object]]) -> None:
        rows[100]["value"] = bytes(24)

    parts = judged(tmp_path, altered(tmp_path, flip), secrets)
    rows = [row for part in parts for row in opened_rows(part, secrets, has_batches=False).rows.to_pylist()]
    forged = [one == FORGED for part in parts for one in part.verdicts]
    assert forged[100]
    assert [row["value"] is None for row in rows] == forged


def test_sealed_rows_under_a_secret_without_the_reader_are_null(tmp_path: Path) -> None:
    """The records of the new secret have gone, too: proofs tell its generation."""
    sealer = sealer_for(READER, OTHER)
    first = sealed([run_of(0, 64)], sealer)
    sealer.change([READER.public], 64)
    runs = [*first, *sealed([run_of(64, 64)], sealer)]
    records = list(sealer.records())
    for name, kept in (("all", records), ("first", records[1:])):
        record(tmp_path / name, runs, proofs_of(runs, sealer=sealer), records=kept)
        for keys, count in ((READER, 128 if name == "all" else 64), (OTHER, 64)):
            values = [row["value"] for row in opened(tmp_path / name, keys)]
            assert [value is not None for value in values] == [True] * count + [False] * (128 - count)


def test_rows_that_a_recorder_has_opened_are_encrypted_for_the_check(tmp_path: Path) -> None:
    sealer = sealer_for(READER)
    proofs = proofs_of(sealed(mixed(), sealer), sealer=sealer)
    record(tmp_path, mixed(), proofs, session=OPENED_BY, records=list(sealer.records()))
    rows = batches(tmp_path)
    for secrets, verdict in (
        (None, UNPROVED),
        (secrets_of(tmp_path, OTHER), UNPROVED),
        (secrets_of(tmp_path, READER), PROVED),
    ):
        parts = judged(tmp_path, rows, secrets, is_opened=True)
        assert {one for part in parts for one in part.verdicts} == {verdict}

    def flip(rows: list[dict[str, object]]) -> None:
        rows[100]["value"] = bytes(24)

    parts = judged(tmp_path, altered(tmp_path, flip), secrets_of(tmp_path, READER), is_opened=True)
    assert np.concatenate([part.verdicts for part in parts])[100] == FORGED


def test_secrets_are_neither_printed_nor_pickled(tmp_path: Path) -> None:
    sealed_archive(tmp_path, mixed())
    secrets = secrets_of(tmp_path, READER)
    assert repr(secrets) == "SessionSecrets(1 of 1)"
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(secrets)
