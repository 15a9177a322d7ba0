"""Budget for the signatures of false proofs and key records."""

from __future__ import annotations

import random

import attrs

from pgm.core.counters import Counters
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.receiver.proved import StreamJudge
from pgm.core.session.detail_requests import DetailRequests
from pgm.core.session.state import SessionEpoch, SessionState
from pgm.core.window.proved_window import Arrival
from pgm.trust.session_check import SessionCheck
from pgm.trust.verifier import ProofChain
from pgm.units import SECOND
from tests.unit.core.makers import parameters, session_context
from tests.unit.trust.test_signing import SESSION, chain_of, keys_of

RATE = 50
EPOCH = SessionEpoch(SESSION.epoch, 0)


@attrs.define(eq=False)
class Reader:
    """Judge of a session, with its counters and clock."""

    judge: StreamJudge
    counters: Counters
    arrival: Arrival
    checks: list[bytes]  # octets whose signatures were checked

    @classmethod
    def new(cls) -> Reader:
        counters, arrival, checks = Counters(), Arrival(), list[bytes]()
        state = SessionState(session_context(counters=counters))
        state.epoch = EPOCH
        chain = ProofChain(SESSION, keys_of)

        def is_record(octets: bytes) -> bool:
            checks.append(octets)
            return octets == b"true"

        judge = StreamJudge(
            state,
            lambda _tsi, _started_ns: SessionCheck(chain, is_record),
            arrival,
            counters,
            DetailRequests(parameters(), random.Random(1)),
            TokenBucket(RATE, SECOND),
            may_begin_later=False,
        )
        return cls(judge, counters, arrival, checks)


def _falsified(octets: bytes) -> bytes:
    return octets[:-1] + bytes([octets[-1] ^ 1])


def test_flood_of_false_proofs_costs_bounded_checks() -> None:
    proofs, reader = chain_of(200), Reader.new()
    for octets in proofs[:100]:  # more than the budget, and all true
        assert reader.judge.take_untrusted(octets)
    for _ in range(10 * RATE):
        assert not reader.judge.take_untrusted(_falsified(proofs[100]))
    assert reader.counters.unchecked_proofs == 9 * RATE
    assert not reader.judge.take_untrusted(proofs[100])
    reader.arrival.now_ns += SECOND // RATE
    assert reader.judge.take_untrusted(proofs[100])


def test_proofs_refused_without_a_check_cost_no_budget() -> None:
    proofs, reader = chain_of(4), Reader.new()
    assert reader.judge.take_untrusted(proofs[0])
    for octets in (proofs[0], proofs[1][:-1], b"junk"):
        for _ in range(2 * RATE):
            assert not reader.judge.take_untrusted(octets)
    assert reader.counters.unchecked_proofs == 0
    assert reader.judge.take_untrusted(proofs[1])


def test_false_key_records_share_the_budget() -> None:
    reader = Reader.new()
    for _ in range(3 * RATE):
        assert not reader.judge.take_record_untrusted(b"false")
    assert len(reader.checks) == RATE
    assert reader.counters.unchecked_proofs == 2 * RATE
    reader.arrival.now_ns += SECOND
    assert reader.judge.take_record_untrusted(b"true")
