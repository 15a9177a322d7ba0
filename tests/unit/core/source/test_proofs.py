"""Proofs of a source: when they leave, beside the packets that they prove."""

from __future__ import annotations

from pgm.core.effects import Send
from pgm.core.session.proofs import proof_tsi
from pgm.core.source.proved import ProvedSource
from pgm.core.source.setup import SourceSetup
from pgm.trust.blocks import SignedSession
from pgm.trust.signer import BlockSigner
from pgm.wire.train import Data
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, SEGMENT, parameters, sent_items
from tests.unit.core.source.sources import QUIET, START
from tests.unit.trust.keys import private_keys

PROOFS = proof_tsi(TSI)


def source() -> ProvedSource:
    """Return a source that has sent the first SPMs of its sessions."""
    settings = parameters(**QUIET)
    prover = BlockSigner(private_keys(1), SignedSession(TSI, START), settings.proof_ivl)
    core = ProvedSource(SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=START), settings, START, prover)
    while core.deadline_ns <= START:
        core.handle_deadline(START)
    return core


def sent(core: ProvedSource, now_ns: int) -> list[bytes]:
    """Return the TSIs of the data that leave in one call."""
    items = sent_items([effect for effect in core.handle_deadline(now_ns) if isinstance(effect, Send)])
    return [bytes(item.tsi) for item in items if isinstance(item, Data)]


def test_lone_message_and_its_proof_leave_in_one_call() -> None:
    core = source()
    core.submit([b"text"])
    assert sorted(sent(core, START + 10 * MS)) == sorted([TSI, PROOFS])
    assert core.deadline_ns > START + 20 * MS


def test_proof_of_a_second_message_waits_for_its_time() -> None:
    core = source()
    core.submit([b"text"])
    sent(core, START + 10 * MS)
    core.submit([b"more"])
    assert sent(core, START + 10 * MS + 1000) == [TSI]
    due_ns = START + 10 * MS + core.parameters.proof_ivl
    assert core.deadline_ns == due_ns
    assert sent(core, due_ns) == [PROOFS]
