"""Check of stored rows by their proofs: each alteration of an archive is found, and nothing else is accused."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.other_archives import OtherArchives
from pgm.archive.recording.row_collector import RowCollector
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.archive.session import companion_tsi
from pgm.archive.signatures.authority import Authority
from pgm.archive.signatures.row_check import RowVerdict
from pgm.archive.store.frames import Frame, decode_frame_untrusted
from pgm.archive.store.writer import ArchiveWriter
from pgm.core.effects import Lost
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.signer import BlockSigner
from pgm.wire.train import Run
from tests.unit.archive.makers import TSI_TEXT, log_to, run_of, small, table
from tests.unit.archive.signed import (
    KEYS,
    MESSAGES,
    PROOFS_OF,
    SESSION,
    Change,
    altered,
    authority,
    batch_run,
    batches,
    checked,
    checked_part,
    lost,
    mixed,
    proofs_of,
    record,
)
from tests.unit.trust.keys import FIRST, private_keys

PROVED, UNPROVED, FORGED = RowVerdict.PROVED, RowVerdict.UNPROVED, RowVerdict.FORGED
COMPANION = companion_tsi(TSI_TEXT)
NAMES = ("/nasdaq/ibm", "/lse/vod", None)


def recorded(tmp_path: Path) -> Path:
    record(tmp_path, mixed(), proofs_of(mixed()))
    return tmp_path


def batch_runs() -> list[Run]:
    texts = [b"m%d" % at * (at % 7) for at in range(400)]
    return [batch_run(7 + at, [(texts[4 * at + i], NAMES[(at + i) % 3]) for i in range(4)]) for at in range(100)]


def test_signatures_of_all_kinds_of_packets_prove_every_row(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    verdicts, proofs = checked(batches(directory), batches(directory, COMPANION))
    assert Counter(verdicts) == {PROVED: 20 + 1 + 1 + 139}
    assert (proofs.missing, proofs.rejects) == (0, {})
    assert set(proofs.used) == {KEYS.public.id}


def test_signatures_of_batches_prove_every_message_with_its_subject(tmp_path: Path) -> None:
    record(tmp_path, batch_runs(), proofs_of(batch_runs(), every=9), has_batches=True)
    by = authority(is_batched=True)
    verdicts, _ = checked(batches(tmp_path), batches(tmp_path, COMPANION), by)
    assert Counter(verdicts) == {PROVED: 400}

    def rename(rows: list[dict[str, Any]]) -> None:
        rows[6]["subject"] = "/lse/other"

    verdicts, _ = checked(altered(tmp_path, rename), batches(tmp_path, COMPANION), by)
    assert [at for at, one in enumerate(verdicts) if one is FORGED] == [4, 5, 6, 7]
    assert Counter(verdicts)[PROVED] == 396
    verdicts, _ = checked(batches(tmp_path), batches(tmp_path, COMPANION), authority())
    assert Counter(verdicts) == {FORGED: 400}  # rows of a stream without batches are whole packets


def _flip(rows: list[dict[str, Any]]) -> None:
    rows[100]["value"] = b"x" + rows[100]["value"][1:]


def _swap(rows: list[dict[str, Any]]) -> None:
    rows[100]["value"], rows[101]["value"] = rows[101]["value"], rows[100]["value"]


def _shift(rows: list[dict[str, Any]]) -> None:
    for row in rows[100:]:
        row["sqn"] += 1


def _subject(rows: list[dict[str, Any]]) -> None:
    rows[100]["subject"] = "/a"


def _in_large(rows: list[dict[str, Any]]) -> None:
    rows[20]["value"] = rows[20]["value"][:-1] + b"x"


@pytest.mark.parametrize(
    ("change", "forged", "unproved"),
    [(_flip, range(1, 33), 0), (_swap, range(1, 33), 0), (_subject, (1,), 0), (_in_large, range(1, 33), 0)],
)
def test_signatures_find_an_altered_row(tmp_path: Path, change: Change, forged: range, unproved: int) -> None:
    directory = recorded(tmp_path)
    verdicts, _ = checked(altered(directory, change), batches(directory, COMPANION))
    found = Counter(verdicts)
    assert found[FORGED] in forged
    assert found[UNPROVED] == unproved
    assert verdicts[20 if change is _in_large else 100] is FORGED


def test_signatures_find_rows_that_were_moved_or_removed(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    verdicts, _ = checked(altered(directory, _shift), batches(directory, COMPANION))
    assert all(one is not PROVED for one in verdicts[100:])

    def remove(rows: list[dict[str, Any]]) -> None:
        del rows[100]

    verdicts, _ = checked(altered(directory, remove), batches(directory, COMPANION))
    assert 0 < Counter(verdicts)[UNPROVED] < 32


def test_signatures_miss_a_removed_proof_and_a_loss(tmp_path: Path) -> None:
    runs: list[Run | Lost] = [run_of(5, 100), lost(105, 3), run_of(108, 92)]
    record(tmp_path, runs, proofs_of([run_of(5, 195)]))
    verdicts, _ = checked(batches(tmp_path), batches(tmp_path, COMPANION))
    assert Counter(verdicts) == {RowVerdict.LOSS: 1, UNPROVED: 29, PROVED: 163}
    every = [run_of(first, 50) for first in range(5, 205, 50)]
    other = tmp_path / "other"
    record(other, every, [proof for at, proof in enumerate(proofs_of(every)) if at != 1])
    verdicts, proofs = checked(batches(other), batches(other, COMPANION))
    assert Counter(verdicts)[UNPROVED] > 0 < Counter(verdicts)[PROVED]
    assert (Counter(verdicts)[FORGED], proofs.missing) == (0, 1)


@pytest.mark.parametrize(
    ("keys", "by", "reason"),
    [
        (private_keys(2), authority(), "which are not among those of the source"),
        (private_keys(1, end=date(2026, 1, 2)), None, "which were not valid on 2026-09-21"),
        (private_keys(1, first=date(2027, 1, 2)), None, "which were not valid on 2026-09-21"),
    ],
)
def test_signatures_of_other_keys_prove_nothing(
    tmp_path: Path, keys: PrivateKeys, by: Authority | None, reason: str
) -> None:
    record(tmp_path, mixed(), proofs_of(mixed(), keys))
    verdicts, proofs = checked(batches(tmp_path), batches(tmp_path, COMPANION), by or authority(keys))
    assert set(verdicts) == {UNPROVED}
    assert [reason in one for one in proofs.rejects] == [True]


def test_signatures_of_keys_that_expired_later_count(tmp_path: Path) -> None:
    keys = private_keys(1, FIRST, date(2026, 9, 22))  # the session began the day before
    record(tmp_path, mixed(), proofs_of(mixed(), keys))
    verdicts, _ = checked(batches(tmp_path), batches(tmp_path, COMPANION), authority(keys))
    assert set(verdicts) == {PROVED}


def test_signatures_of_revoked_keys_are_told(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    by = authority(revoked=[KEYS.public.id])
    assert set(checked(batches(directory), batches(directory, COMPANION), by)[0]) == {RowVerdict.REVOKED}
    lines_gone = attrs.evolve(authority(private_keys(2)), revoked=by.revoked)  # as `pgm keys revoke` leaves the file
    assert set(checked(batches(directory), batches(directory, COMPANION), lines_gone)[0]) == {RowVerdict.REVOKED}


def test_signatures_of_a_range_are_those_of_the_whole_session(tmp_path: Path) -> None:
    directory = recorded(tmp_path)
    starts = [row["sqn"] for row in table(directory).to_pylist()]
    for first, end in ((5, 205), (6, 7), (25, 26), (26, 90), (64, 66), (40, 41), (90, 128), (95, 97), (200, 205)):
        assert checked_part(directory, first, end) == [(sqn, PROVED) for sqn in starts if first <= sqn < end], (
            first,
            end,
        )


def test_signatures_of_a_range_among_many_proofs_are_found(tmp_path: Path) -> None:
    runs = [run_of(at, 1) for at in range(5, 505)]
    record(tmp_path, runs, proofs_of(runs))
    for first in range(5, 500, 70):
        assert checked_part(tmp_path, first, first + 5) == [(sqn, PROVED) for sqn in range(first, first + 5)]


def test_frames_survive_their_octets() -> None:
    frame = Frame(((3, 100), (1, 7)), b"before", b"after", True)
    assert decode_frame_untrusted(frame.to_bytes()) == frame
    assert decode_frame_untrusted(Frame().to_bytes()) == Frame()
    for cut in range(7):
        assert decode_frame_untrusted(frame.to_bytes()[:cut]) is None


def test_signatures_prove_rows_that_another_archive_has_filled(tmp_path: Path) -> None:
    record(tmp_path / "other", batch_runs(), proofs_of(batch_runs()), has_batches=True)
    service = RangeService(Archives(tmp_path / "other"), "grpc://127.0.0.1:0", small())
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        own = attrs.evolve(MESSAGES, node="recorder-2")
        others = OtherArchives([f"127.0.0.1:{service.port}"], small(durable_archive_ivl=5_000_000_000))
        writer = ArchiveWriter(tmp_path / "own", small(), log_to([]))
        collector = RowCollector(writer, small(), log_to([]), others=others)
        collector.add_run(SessionFeed(own, has_batches=True), batch_runs()[0], 1)
        collector.add_lost(SessionFeed(own, has_batches=True), lost(8, 99), 1)
        collector.add_lost(SessionFeed(attrs.evolve(PROOFS_OF, node="recorder-2")), lost(0, 100), 1)
        collector.close()
    finally:
        service.end()
        thread.join()
    verdicts, _ = checked(batches(tmp_path / "own"), batches(tmp_path / "own", COMPANION), authority(is_batched=True))
    assert Counter(verdicts) == {PROVED: 400}


def test_signatures_of_single_packets_judge_a_span_with_a_loss(tmp_path: Path) -> None:
    """A receiver that lacked a packet has requested details, which the source sends in the session of proofs."""
    whole = [run_of(5, 195)]
    signer = BlockSigner(KEYS, SESSION, 1, bits=5)
    proofs = [*proofs_of(whole), *signer.details([run_of(96, 32)])]
    runs: list[Run | Lost] = [run_of(5, 95), lost(100, 3), run_of(103, 97)]
    record(tmp_path, runs, proofs)
    verdicts, found = checked(batches(tmp_path), batches(tmp_path, COMPANION))
    assert Counter(verdicts) == {PROVED: 192, RowVerdict.LOSS: 1}
    assert found.rejects == {}

    def flip(rows: list[dict[str, Any]]) -> None:
        rows[97]["value"] = b"other"  # sqn 104

    verdicts, _ = checked(altered(tmp_path, flip), batches(tmp_path, COMPANION))
    assert [at for at, one in enumerate(verdicts) if one is FORGED] == [97]
    forged = [*proofs_of(whole), *BlockSigner(private_keys(2), SESSION, 1, bits=5).details([run_of(96, 32)])]
    record(tmp_path / "forged", runs, forged)
    verdicts, found = checked(batches(tmp_path / "forged"), batches(tmp_path / "forged", COMPANION))
    assert Counter(verdicts) == {PROVED: 163, UNPROVED: 29, RowVerdict.LOSS: 1}
    assert len(found.rejects) == 1
