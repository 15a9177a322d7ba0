"""Proofs of a source: when they leave, beside the packets that they prove."""

from __future__ import annotations

from pgm.core.effects import Send
from pgm.core.session.proofs import proof_port, proof_tsi
from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import proof_companions
from pgm.core.source.setup import SourceSetup
from pgm.trust.blocks import SignedSession
from pgm.trust.signer import BlockSigner
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Data
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_UNICAST,
    MS,
    OWN,
    PEER,
    SEGMENT,
    deadlines,
    nak_packet,
    parameters,
    sent_items,
    train_of,
)
from tests.unit.core.source.sources import QUIET, START
from tests.unit.trust.keys import private_keys

PROOFS = proof_tsi(TSI)


def source(**changes: object) -> CompanionSource:
    """Return a source that has sent the first SPMs of its sessions."""
    settings = parameters(**QUIET | changes)
    prover = BlockSigner(private_keys(1), SignedSession(TSI, START), settings.proof_ivl)
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=START)
    core = CompanionSource(setup, settings, START, proof_companions(prover, None))
    while core.deadline_ns <= START:
        core.handle_deadline(START)
    return core


def sent(core: CompanionSource, now_ns: int) -> list[bytes]:
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


def test_repairs_of_stream_and_proofs_together_keep_their_share() -> None:
    rate, share = 100_000, 0.25
    core = source(txw_max_rte=rate, rdata_share=share, rdata_hold_ivl=0, rdata_ignore_ivl=0, ncf_ivl=0)
    for number in range(40):
        core.submit([b"%04d" % number * 250])
        for now_ns in deadlines(core, START + number * 20 * MS, START + (number + 1) * 20 * MS):
            core.handle_deadline(now_ns)
    begin_ns, octets = START + SECOND, {TSI: 0, PROOFS: 0}
    for step in range(200):
        now_ns = begin_ns + step * 10 * MS
        for tsi, port in ((TSI, DATA_PORT), (PROOFS, proof_port(DATA_PORT))):
            nak = nak_packet(*range(30), tsi=tsi, data_port=port, source_nla=OWN)
            core.receive(train_of(nak), BY_UNICAST, PEER, now_ns)
        for due_ns in deadlines(core, now_ns, now_ns + 10 * MS - 1):
            for item in sent_items([one for one in core.handle_deadline(due_ns) if isinstance(one, Send)]):
                if isinstance(item, Data) and item.type is PacketType.RDATA:
                    octets[bytes(item.tsi)] += item.count * item.stride
    assert min(octets.values()) > sum(octets.values()) / 4  # they take turns
    assert sum(octets.values()) <= (2 + 1) * rate * share  # a bucket of a second at most
