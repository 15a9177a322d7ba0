"""Secrets of a sealed session at its source and at its readers: generations, records, and packets without a secret."""

from __future__ import annotations

import random

import attrs
import numpy as np

from pgm.core.structures.arena import Arena
from pgm.trust.blocks import SignedSession
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys
from pgm.trust.session_check import SessionCheck
from pgm.trust.signer import BlockSigner
from pgm.trust.stream_secrets import SealedSessionCheck, StreamSealer
from pgm.trust.verifier import ProofChain
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.packet_run import Run
from tests.unit.trust.keys import private_keys

SOURCE, READER, OTHER = private_keys(1), private_keys(2), private_keys(3)
SESSION = SignedSession(b"12345678", 5)
OCTETS = 400  # of a payload: records of 4 members
CHUNK = 1 << 16


def keys_of(key_id: str) -> PublicKeys | None:
    return SOURCE.public if key_id == SOURCE.public.id else None


def sealer_for(*members: PrivateKeys) -> StreamSealer:
    return StreamSealer(SESSION, SOURCE, [one.public for one in members], OCTETS, random.Random(1).randbytes)


def check_for(keys: PrivateKeys, memory: Arena | None = None) -> SealedSessionCheck:
    proofs = SessionCheck(ProofChain(SESSION, keys_of, None))
    return SealedSessionCheck(proofs, SESSION, keys_of, keys, (memory or Arena(CHUNK)).take)


def sealed_run(sealer: StreamSealer, first: int, count: int) -> Run:
    """Return packets whose payloads have their sqn in every octet before they are sealed."""
    rows = np.zeros((count, DATA_HEADER_OCTETS + OCTETS), np.uint8)
    plain = np.repeat(np.arange(first, first + count, dtype=np.uint8), OCTETS).reshape(count, OCTETS)
    sealer.seal(first, plain, plain)
    rows[:, DATA_HEADER_OCTETS:] = plain
    return Run(first, count, rows.reshape(-1), 0, rows.shape[1], DATA_HEADER_OCTETS)


def proofs_of(sealer: StreamSealer, *runs: Run) -> list[bytes]:
    signer = BlockSigner(SOURCE, SESSION, 1, generation_at=sealer.generation_at)
    return [proof for at, run in enumerate(runs) for proof in (*signer.take([run]), *signer.handle_deadline(2 * at))]


def is_open(check: SealedSessionCheck, run: Run) -> bool:
    """Return whether all packets open to what was sealed."""
    parts = list(check.opened(run))
    assert parts[0].first == run.first
    assert parts[-1].end == run.end
    return all(
        bool((part.payloads == np.arange(part.first, part.end, dtype=np.uint8)[:, None]).all()) for part in parts
    )


def test_reader_waits_for_the_secret_that_its_proof_tells() -> None:
    sealer = sealer_for(READER, OTHER)
    check, first_records = check_for(READER), list(sealer.records())
    old = sealed_run(sealer, 0, 40)
    sealer.change([READER.public], 40)
    new = sealed_run(sealer, 40, 60)
    for proof in proofs_of(sealer, old, new):
        assert check.proof_of_untrusted(proof)
    assert not check.may_open(0, 1)
    assert all(check.take_record_untrusted(record) for record in first_records)
    assert check.may_open(0, 1)
    assert not check.may_open(64, 65), "the old secret would open it to other text"
    assert all(check.take_record_untrusted(record) for record in sealer.records())
    assert check.may_open(64, 65)
    assert is_open(check, old)
    assert is_open(check, new)


def test_opened_packets_take_memory_that_was_used_before() -> None:
    """A new array for each run costs page faults for ever."""
    sealer, memory = sealer_for(READER), Arena(CHUNK)
    check = check_for(READER, memory)
    assert all(check.take_record_untrusted(record) for record in sealer.records())
    runs = [sealed_run(sealer, first, 40) for first in range(0, 240, 40)]
    assert check.proof_of_untrusted(proofs_of(sealer, runs[0])[0])
    for _ in range(5):
        assert all(is_open(check, run) for run in runs)
    [kept] = check.opened(runs[0])
    assert all(is_open(check, run) for run in runs)
    assert (kept.payloads[:, 0] == np.arange(40)).all(), "nothing is written into packets that somebody has"
    assert memory.chunks <= 3


def test_details_in_place_of_a_lost_proof_tell_the_secret() -> None:
    sealer = sealer_for(READER)
    first_records = list(sealer.records())
    runs = [sealed_run(sealer, 0, 32)]
    sealer.change([READER.public], 40)
    runs.append(sealed_run(sealer, 40, 24))
    proofs = proofs_of(sealer, *runs)
    signer = BlockSigner(SOURCE, SESSION, 1, generation_at=sealer.generation_at)
    [later, earlier] = [signer.details([runs[1].part(*part)]) for part in ((48, 64), (40, 48))]
    check = check_for(READER)
    for octets in (proofs[0], *later, *earlier):  # the second proof is lost
        assert check.proof_of_untrusted(octets)
    assert all(check.take_record_untrusted(record) for record in first_records)
    assert check.may_open(0, 32)
    assert not any(check.may_open(*part) for part in ((40, 48), (48, 64), (0, 64)))
    assert all(check.take_record_untrusted(record) for record in sealer.records())
    assert check.may_open(0, 64)
    assert all(is_open(check, run) for run in runs)


def test_run_across_a_change_opens_in_two_parts() -> None:
    sealer = sealer_for(READER)
    old = sealed_run(sealer, 0, 40)
    sealer.change([READER.public], 40)
    new = sealed_run(sealer, 40, 60)
    whole = Run(0, 100, np.concatenate([old.buffer, new.buffer]), 0, old.stride, old.payload_at)
    check = check_for(READER)
    for octets in proofs_of(sealer, whole):
        assert check.proof_of_untrusted(octets)
    for record in sealer.records():
        assert check.take_record_untrusted(record)
    assert is_open(check, whole)


def test_reader_that_was_left_out_never_opens_later_packets() -> None:
    sealer = sealer_for(READER, OTHER)
    old = sealed_run(sealer, 0, 32)
    sealer.change([OTHER.public], 32)
    new = sealed_run(sealer, 32, 32)
    check = check_for(READER)
    for octets in proofs_of(sealer, old, new):
        assert check.proof_of_untrusted(octets)
    for record in sealer.records():
        assert check.take_record_untrusted(record)
    assert check.may_open(0, 1)
    assert not check.may_open(32, 33)


def test_records_have_each_member_once_in_packets() -> None:
    members = [private_keys(number) for number in range(2, 13)]
    records = list(sealer_for(*members).records())
    assert len(records) == 3
    assert max(map(len, records)) <= OCTETS
    for keys in members:
        check = check_for(keys)
        assert all(check.take_record_untrusted(record) for record in records)


def test_records_of_strangers_and_other_sessions_are_refused() -> None:
    check = check_for(READER)
    forged = StreamSealer(SESSION, OTHER, [READER.public], OCTETS, random.Random(1).randbytes)
    moved = StreamSealer(SignedSession(SESSION.tsi, 6), SOURCE, [READER.public], OCTETS, random.Random(1).randbytes)
    [record] = sealer_for(READER).records()
    for octets in (*forged.records(), *moved.records(), record[:-1], record[:-1] + b"?", b"", bytes(len(record))):
        assert not check.take_record_untrusted(octets)
    assert check.take_record_untrusted(record)


def test_record_that_does_not_open_is_counted() -> None:
    [record] = sealer_for(READER).records()
    damaged = check_for(attrs.evolve(OTHER, public=READER.public))
    assert damaged.take_record_untrusted(record)
    assert damaged.unopened == 1
    assert not damaged.may_open(0, 1)


def test_sealer_shows_no_secret() -> None:
    sealer = sealer_for(READER)
    assert repr(sealer) == f"StreamSealer({SESSION!r})"
