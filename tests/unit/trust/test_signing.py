"""A signed session from source to receiver: true packets are proved, altered ones never, and each has one verdict."""

from __future__ import annotations

import random
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import MOST_SPANS, Proof, Span
from pgm.trust.public_keys import PublicKeys
from pgm.trust.signer import FAST_IVLS, SPAN_OCTETS, BlockSigner
from pgm.trust.verifier import BlockVerifier, JudgedRun, ProofChain, ProofReject, Verdict
from pgm.units import MILLISECOND, NEVER
from pgm.wire.packet_run import Run
from tests.unit.trust.keys import private_keys
from tests.unit.trust.packets import runs_of

KEYS, OTHERS = private_keys(1), private_keys(2)
SESSION = SignedSession(bytes(range(8)), 7)
BITS = 3


def keys_of(key_id: str) -> PublicKeys | None:
    return KEYS.public if key_id == KEYS.public.id else None


def signer(bits: int = BITS) -> BlockSigner:
    return BlockSigner(KEYS, SESSION, MILLISECOND, bits)


def proof_of(chain: ProofChain, octets: bytes) -> Proof:
    proof = chain.take_untrusted(octets)
    assert isinstance(proof, Proof), proof
    return proof


def copied(run: Run) -> Run:
    return Run(run.first, run.count, run.buffer.copy(), run.offset, run.stride, run.payload_at)


def verdicts(judged: list[JudgedRun]) -> dict[int, Verdict]:
    """Return the verdict by sqn, and assert that the packets leave once and in order."""
    sqns = [sqn for one in judged for sqn in range(one.run.first, one.run.end)]
    assert sqns == sorted(set(sqns))
    return {sqn: one.verdict for one in judged for sqn in range(one.run.first, one.run.end)}


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, Any]:
    pieces = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.none()), min_size=1, max_size=8))
    first = draw(st.integers(0, 100))
    count = sum(piece[0] for piece in pieces)
    sqns = st.sets(st.integers(first, first + count - 1), max_size=4)
    idles = draw(st.sets(st.integers(0, len(pieces) - 1)))
    return {"first": first, "pieces": pieces, "lost": draw(sqns), "altered": draw(sqns), "idles": idles}


@given(sessions(), st.integers(0, 6), st.booleans())
def test_true_packets_are_proved_and_altered_ones_are_not(
    session: dict[str, Any], delay: int, has_details: bool
) -> None:
    source, chain, verifier = signer(), ProofChain(SESSION, keys_of), BlockVerifier(SESSION, 1 << 20)
    sent = runs_of(session["first"], session["pieces"], random.Random(1))
    judged: list[JudgedRun] = []
    waiting: list[list[bytes]] = [[] for _ in range(delay)]
    now = 0

    def arrive(proofs: list[bytes]) -> None:
        for octets in proofs:
            judged.extend(verifier.prove(proof_of(chain, octets)))
        while (span := verifier.doubtful) is not None:
            judged.extend(verifier.prove(proof_of(chain, details(span))) if has_details else verifier.give_up())

    def details(span: Span) -> bytes:
        parts = [run.part(max(run.first, span.first), min(run.end, span.end)) for run in sent]
        [octets] = source.details([part for part in parts if part.count > 0])
        return octets

    for index, run in enumerate(sent):
        waiting.append(source.take([run]))
        if index in session["idles"]:
            now = max(now + 1, 0 if source.deadline_ns == NEVER else source.deadline_ns)
            waiting.append(source.handle_deadline(now))
        received = copied(run)
        for sqn in range(run.first, run.end):
            if sqn in session["altered"]:
                received.payloads[sqn - run.first, 0] ^= 1
            if sqn not in session["lost"]:
                judged.extend(verifier.take(received.part(sqn, sqn + 1)))
                arrive([])
        arrive(waiting.pop(0))
    waiting.append(source.handle_deadline(now + FAST_IVLS * MILLISECOND))
    judged.extend(verifier.skip_to(sent[-1].end))
    for proofs in waiting:
        arrive(proofs)
    found = verdicts(judged + verifier.end())
    arrived = {sqn for run in sent for sqn in range(run.first, run.end)} - session["lost"]
    assert set(found) == arrived
    for sqn in arrived:
        if sqn in session["altered"]:
            assert found[sqn] is not Verdict.PROVED
        else:
            assert found[sqn] is not Verdict.FORGED
        if has_details:
            assert found[sqn] is (Verdict.FORGED if sqn in session["altered"] else Verdict.PROVED)


def test_one_message_of_an_idle_source_is_signed_at_once() -> None:
    source = signer()
    [run] = runs_of(0, [(1, 9, None)], random.Random(1))
    assert source.deadline_ns == NEVER
    assert source.take([run]) == []
    assert source.deadline_ns == 0
    [octets] = source.handle_deadline(5 * MILLISECOND)
    assert proof_of(ProofChain(SESSION, keys_of), octets).spans == (Span(0, 1, SESSION.digest([run])),)
    assert source.deadline_ns == NEVER
    [more] = runs_of(1, [(1, 9, None)], random.Random(2))
    source.take([more])
    assert source.handle_deadline(5 * MILLISECOND + 1) == []
    assert source.deadline_ns == 6 * MILLISECOND
    assert len(source.handle_deadline(6 * MILLISECOND)) == 1


def test_signatures_are_bounded_by_the_interval() -> None:
    source, proofs = signer(), []
    for sqn, run in enumerate(runs_of(0, [(1, 5, None)] * 400, random.Random(1))):
        now = sqn * MILLISECOND // 10
        proofs += source.take([run])
        proofs += source.handle_deadline(now)
        proofs += source.handle_deadline(now)
    assert len(proofs) == 21  # two intervals after each proof of several packets
    chain = ProofChain(SESSION, keys_of)
    spans = [span for octets in proofs for span in proof_of(chain, octets).spans]
    assert [span.first for span in spans[1:]] == [span.end for span in spans[:-1]]


@pytest.mark.parametrize(("octets", "packets"), [(70, 1024), (1400, 128), (8976, 16)])
def test_span_has_many_packets_and_fits_the_cache(octets: int, packets: int) -> None:
    source = BlockSigner(KEYS, SESSION, MILLISECOND)
    [run] = runs_of(5, [(3000, octets, None)], random.Random(1))
    proofs = [
        proof_of(ProofChain(SESSION, keys_of, None), one) for one in source.take([run]) + source.handle_deadline(0)
    ]
    ends = [span.end for proof in proofs for span in proof.spans]
    assert ends[:-1] == list(range(packets, 3005, packets))
    assert packets * run.stride <= SPAN_OCTETS


def test_packets_of_mixed_sizes_share_a_span() -> None:
    source = BlockSigner(KEYS, SESSION, MILLISECOND)
    runs = runs_of(0, [(100, 1400, None), (5, 70, None), (20, 1400, None)], random.Random(1))
    assert source.take(runs) == []
    [octets] = source.handle_deadline(0)
    assert proof_of(ProofChain(SESSION, keys_of), octets).spans == (Span(0, 125, SESSION.digest(runs)),)


def test_high_rate_has_fewer_proofs_until_it_falls() -> None:
    source, times = BlockSigner(KEYS, SESSION, MILLISECOND), []
    for ms, run in enumerate(runs_of(0, [(200, 1400, None)] * 20 + [(1, 70, None)] * 20, random.Random(1))):
        source.take([run])
        times += [ms] * len(source.handle_deadline(ms * MILLISECOND))
    assert times == [0, 8, 16, 24, 32, *range(34, 40, 2)]


def test_proof_never_has_too_many_spans() -> None:
    source = signer(bits=0)
    buffer = np.zeros(24 * (MOST_SPANS + 5), np.uint8)
    [octets] = source.take([Run(0, MOST_SPANS + 5, buffer, 0, 24, 24)])
    assert len(proof_of(ProofChain(SESSION, keys_of), octets).spans) == MOST_SPANS
    [rest] = source.handle_deadline(MILLISECOND)
    assert len(rest) < len(octets)


def chain_of(count: int) -> list[bytes]:
    source, proofs = signer(bits=0), []
    for number, run in enumerate(runs_of(0, [(1, 5, None)] * count, random.Random(1))):
        source.take([run])
        proofs += source.handle_deadline(number * MILLISECOND)
    return proofs


def test_chain_refuses_replays_forks_and_strangers() -> None:
    octets = chain_of(4)
    chain = ProofChain(SESSION, keys_of)
    first = proof_of(chain, octets[0])
    assert chain.take_untrusted(octets[0]) is ProofReject.REPLAYED
    assert chain.take_untrusted(octets[1][:-1]) is ProofReject.MALFORMED
    assert chain.take_untrusted(octets[1][:-1] + b"\0") is ProofReject.SIGNATURE
    fork = attrs.evolve(first, number=1, previous=bytes(32)).signed_by(KEYS)
    assert chain.wrong_signatures == 1
    assert chain.take_untrusted(fork) is ProofReject.FORK
    assert chain.take_untrusted(fork[:-1] + bytes([fork[-1] ^ 1])) is ProofReject.FORK
    assert chain.wrong_signatures == 1  # the check costs the most, and was not needed
    other = attrs.evolve(first, number=1, session=SignedSession(bytes(8), 7)).signed_by(KEYS)
    assert chain.take_untrusted(other) is ProofReject.OTHER_SESSION
    stranger = attrs.evolve(first, number=1, key_id=OTHERS.public.id).signed_by(OTHERS)
    assert chain.take_untrusted(stranger) is ProofReject.UNKNOWN_KEYS
    proof_of(chain, octets[1])


def test_lost_proof_is_counted_and_the_next_one_is_taken() -> None:
    octets = chain_of(4)
    chain = ProofChain(SESSION, keys_of)
    for one in (octets[0], octets[3]):
        proof_of(chain, one)
    assert chain.lost == 2
    assert chain.take_untrusted(octets[1]) is ProofReject.REPLAYED
    late = ProofChain(SESSION, keys_of, previous=None)
    proof_of(late, octets[3])
    assert late.lost == 0


def test_packets_beyond_the_bound_leave_unproved() -> None:
    verifier = BlockVerifier(SESSION, most_octets=100)
    judged = [one for run in runs_of(0, [(1, 16, None)] * 10, random.Random(1)) for one in verifier.take(run)]
    assert [one.verdict for one in judged] == [Verdict.UNPROVED] * 8
    assert verdicts(judged + verifier.end()).keys() == set(range(10))


def test_proofs_ahead_of_packets_are_bounded() -> None:
    verifier = BlockVerifier(SESSION, 1 << 20, most_spans=4)
    chain = ProofChain(SESSION, keys_of)
    for octets in chain_of(10):
        assert verifier.prove(proof_of(chain, octets)) == []
    judged = [one for run in runs_of(0, [(1, 5, None)] * 10, random.Random(1)) for one in verifier.take(run)]
    assert list(verdicts(judged).values()) == [Verdict.UNPROVED] * 6 + [Verdict.PROVED] * 4


@pytest.mark.parametrize("join", [1, 5, 8, 11])
def test_late_joiner_needs_details_of_its_first_span_alone(join: int) -> None:
    source, chain, verifier = signer(), ProofChain(SESSION, keys_of), BlockVerifier(SESSION, 1 << 20)
    [run] = runs_of(0, [(16, 5, None)], random.Random(1))
    source.take([run])
    judged = verifier.take(run.part(join, 16))
    for octets in source.handle_deadline(0):
        judged += verifier.prove(proof_of(chain, octets))
    if join % 8:
        assert verifier.doubtful is not None
        judged += verifier.prove(
            proof_of(chain, *source.details([run.part(verifier.doubtful.first, verifier.doubtful.end)]))
        )
    assert verdicts(judged) == dict.fromkeys(range(join, 16), Verdict.PROVED)


def test_details_that_lack_a_packet_are_not_used() -> None:
    source, chain, verifier = signer(), ProofChain(SESSION, keys_of), BlockVerifier(SESSION, 1 << 20)
    [run] = runs_of(0, [(8, 5, None)], random.Random(1))
    source.take([run])
    verifier.take(run.part(1, 8))
    verifier.prove(proof_of(chain, source.handle_deadline(0)[0]))
    assert verifier.prove(proof_of(chain, *source.details([run.part(0, 5)]))) == []
    assert verifier.doubtful is not None
    assert verdicts(verifier.give_up()) == dict.fromkeys(range(1, 8), Verdict.UNPROVED)


def test_details_of_runs_with_left_out_sqns_name_each_packet() -> None:
    rng = random.Random(1)
    runs = [*runs_of(0, [(4, 5, None)], rng), *runs_of(8, [(3, 5, None)], rng)]  # a group of parity that ended early
    [octets] = signer().details(runs)
    proof = proof_of(ProofChain(SESSION, keys_of, None), octets)
    assert [span.first for span in proof.spans] == [0, 1, 2, 3, 8, 9, 10]
    assert all(
        span.digest == SESSION.digest([run.part(span.first, span.first + 1)])
        for span in proof.spans
        for run in runs
        if run.first <= span.first < run.end
    )
