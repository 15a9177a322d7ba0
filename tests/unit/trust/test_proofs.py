"""Proofs: read as written, refused after any change, and equal to the test vectors of an independent program."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import (
    FIRST_PREVIOUS,
    MOST_SPANS,
    Proof,
    Span,
    decode_proof_untrusted,
    hash_of_proof,
    is_signed_untrusted,
)
from pgm.trust.public_keys import PublicKeys
from tests.unit.trust import independent, vectors
from tests.unit.trust.keys import private_keys

KEYS, OTHERS = private_keys(1), private_keys(2)
digests = st.binary(min_size=32, max_size=32)


def verified(octets: bytes, keys: PublicKeys) -> Proof | None:
    """Return the proof in these octets if it names these keys and they have signed it."""
    proof, is_signed = decode_proof_untrusted(octets), is_signed_untrusted(octets, keys)
    return proof if proof is not None and proof.key_id == keys.id and is_signed else None


@st.composite
def proofs(draw: st.DrawFn) -> Proof:
    at, spans = draw(st.integers(0, 2**62)), []
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 2**20)), min_size=1, max_size=20)):
        spans.append(Span(at + gap, count, draw(digests)))
        at = spans[-1].end
    session = SignedSession(draw(st.binary(min_size=8, max_size=8)), draw(st.integers(0, 2**64 - 1)))
    return Proof(KEYS.public.id, session, draw(st.integers(0, 2**64 - 1)), draw(digests), tuple(spans))


@given(proofs())
def test_proof_is_read_as_written(proof: Proof) -> None:
    octets = proof.signed_by(KEYS)
    assert verified(octets, KEYS.public) == proof
    fields = independent.proof_fields(octets, KEYS.public.line)
    assert fields is not None
    assert fields["spans"] == [attrs.astuple(span) for span in proof.spans]
    assert (fields["tsi"], fields["epoch"]) == (proof.session.tsi, proof.session.epoch)


@given(proofs(), st.data())
def test_changed_proof_is_refused(proof: Proof, data: st.DataObject) -> None:
    octets = bytearray(proof.signed_by(KEYS))
    octets[data.draw(st.integers(0, len(octets) - 1))] ^= data.draw(st.integers(1, 255))
    assert verified(bytes(octets), KEYS.public) is None


@given(proofs(), st.data())
def test_cut_or_longer_proof_is_refused(proof: Proof, data: st.DataObject) -> None:
    octets = proof.signed_by(KEYS)
    cut = octets[: data.draw(st.integers(0, len(octets) - 1))]
    for changed in (cut, octets + data.draw(st.binary(min_size=1, max_size=80)), octets[1:], b"\0" + octets):
        assert verified(changed, KEYS.public) is None


@given(st.binary(max_size=400))
def test_other_octets_are_no_proof(octets: bytes) -> None:
    assert verified(octets, KEYS.public) is None
    decode_proof_untrusted(octets)


@given(proofs())
def test_proof_of_other_keys_is_refused(proof: Proof) -> None:
    assert verified(proof.signed_by(OTHERS), KEYS.public) is None
    assert verified(proof.signed_by(KEYS), OTHERS.public) is None
    renamed = attrs.evolve(proof, key_id=OTHERS.public.id).signed_by(KEYS)
    assert verified(renamed, OTHERS.public) is None


@pytest.mark.parametrize(
    "spans",
    [
        (),
        (Span(5, 0, bytes(32)),),
        (Span(5, 3, bytes(32)), Span(7, 1, bytes(32))),
        (Span(5, 3, bytes(32)), Span(1, 1, bytes(32))),
        (Span(2**63 - 1, 2, bytes(32)),),
        tuple(Span(at, 1, bytes(32)) for at in range(MOST_SPANS + 1)),
    ],
)
def test_spans_that_do_not_ascend_are_never_signed(spans: tuple[Span, ...]) -> None:
    with pytest.raises(ValueError, match="span"):
        Proof(KEYS.public.id, SignedSession(bytes(8), 1), 0, FIRST_PREVIOUS, spans).signed_by(KEYS)


def test_largest_proof_is_read() -> None:
    spans = tuple(Span(at, 1, bytes(32)) for at in range(MOST_SPANS))
    proof = Proof(KEYS.public.id, SignedSession(bytes(8), 1), 0, FIRST_PREVIOUS, spans)
    octets = proof.signed_by(KEYS)
    assert len(octets) == 134 + 44 * MOST_SPANS
    assert verified(octets, KEYS.public) == proof
    assert len(hash_of_proof(octets)) == 32


def test_vectors_of_the_file_are_those_of_the_code() -> None:
    assert vectors.FILE.read_text() == vectors.text(), "write them: python -m tests.unit.trust.vectors --write"


def test_independent_program_verifies_the_vectors(tmp_path: Path) -> None:
    """The program runs from another folder, where nothing of the project can be imported."""
    program = tmp_path / "independent.py"
    program.write_text(Path(independent.__file__).read_text())
    imported = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in ast.walk(ast.parse(program.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))}  # fmt: skip
    assert not [name for name in imported if name and name.partition(".")[0] in ("pgm", "deploy", "tests")]
    command = [sys.executable, "-I", str(program), str(vectors.FILE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    told = json.loads(vectors.FILE.read_text())
    lists = (
        told["blocks"],
        told["proofs"],
        told["payloads"],
        told["records"]["members"],
        told["codes"],
        told["packets"],
        told["segment_keys"],
    )
    assert (done.returncode, done.stdout) == (0, f"{sum(map(len, lists))} vectors are right\n"), done.stderr
