"""Details of a block on request: digests of its packets in the session of proofs, bounded against hostile nodes."""

from __future__ import annotations

from pgm.core.control_codes import NO_CONTROL_KEYS, ControlKeys, NoNodeKeys
from pgm.core.effects import Effect
from pgm.core.session.proofs import most_proof_octets, proof_port, proof_tsi
from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import proof_companions
from pgm.core.source.setup import SourceSetup
from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import Proof, decode_proof_untrusted, is_signed_untrusted, spans_within
from pgm.trust.signer import BlockSigner
from pgm.units import SECOND
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.options import StateOffer
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import BY_GROUP, BY_UNICAST, MS, PEER, SEGMENT, parameters, payload_of, run_of, sent_items
from tests.unit.core.source.sources import QUIET, START
from tests.unit.trust.keys import private_keys

KEYS = private_keys(1)
SESSION = SignedSession(TSI, START)
PROOFS, PROOFS_PORT = proof_tsi(TSI), proof_port(DATA_PORT)


class Signing:
    """Source of a signed stream that has sent some packets, and the details that have left it."""

    def __init__(self, count: int = 80, control: ControlKeys = NO_CONTROL_KEYS, **changes: object) -> None:
        settings = parameters(**QUIET | changes)
        most = spans_within(most_proof_octets(settings.max_tpdu))
        prover = BlockSigner(KEYS, SESSION, settings.proof_ivl, most_spans=most)
        setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=START, control=control)
        self.core = CompanionSource(setup, settings, START, proof_companions(prover, None))
        self.core.submit([payload_of(sqn) for sqn in range(count)])
        self.now = START
        self.details: list[Proof] = []
        self.run(10 * MS)

    def run(self, for_ns: int) -> None:
        until = self.now + for_ns
        while (at := self.core.deadline_ns) <= until:
            self.now = max(self.now, at)
            self.note(self.core.handle_deadline(self.now))
        self.now = until

    def note(self, effects: list[Effect]) -> None:
        for item in sent_items(effects):
            if isinstance(item, Data) and bytes(item.tsi) == PROOFS:
                for at in range(item.count):
                    octets = item.run(0).part(at, at + 1).alone()
                    proof = decode_proof_untrusted(octets)
                    assert proof is not None
                    if proof.has_details:
                        assert is_signed_untrusted(octets, KEYS.public)
                        self.details.append(proof)

    def ask(self, sqn: int, peer: str = PEER, channel: object = BY_UNICAST, *, details: bool = True) -> None:
        option = StateOffer(wrap(sqn), details)
        packet = encode(Spmr(tsi=PROOFS, data_port=PROOFS_PORT, options=(option,)))
        self.note(self.core.receive(Train.of(packet), channel, peer, self.now))

    @property
    def sqns(self) -> list[int]:
        return [span.first for proof in self.details for span in proof.spans]


def test_details_have_the_digest_of_every_packet_of_a_block():
    source = Signing()
    source.ask(40)
    source.run(MS)
    assert source.sqns == list(range(32, 64))
    assert len(source.details) == 2
    found = {span.first: span.digest for proof in source.details for span in proof.spans}
    assert found == {sqn: SESSION.digest([run_of(sqn, 1)]) for sqn in range(32, 64)}


def test_details_of_the_newest_block_end_with_what_was_sent():
    source = Signing()
    source.ask(79)
    source.run(MS)
    assert source.sqns == list(range(64, 80))
    for sqn in (80, 95, 1 << 20, -1, 1 << 31):
        source.ask(sqn)
    source.run(MS)
    assert len(source.sqns) == 16


def test_details_of_packets_that_left_the_window_are_not_sent():
    source = Signing(txw_secs=SECOND, txw_adv_secs=SECOND)
    source.run(2 * SECOND)
    source.core.submit([b"next"] * 3)
    source.run(10 * MS)
    trail = source.core.window.trail
    assert trail > 32
    source.ask(0)
    source.ask(trail)
    source.run(MS)
    assert source.sqns == list(range(trail, min(trail | 31, 82) + 1))


def test_requests_to_the_group_or_for_states_get_no_details():
    source = Signing()
    source.ask(3, channel=BY_GROUP)
    source.ask(3, details=False)
    source.run(MS)
    assert not source.details


def test_block_is_answered_once_in_half_of_the_interval():
    source = Signing(details_ivl=100 * MS)
    for peer in range(9):
        source.ask(3, f"10.0.0.{peer}")
    source.run(49 * MS)
    source.ask(3)
    assert len(source.sqns) == 32
    assert source.core.counters.detail_requests == 1
    source.run(10 * MS)
    source.ask(3)
    source.run(MS)
    assert len(source.sqns) == 64


def test_flood_of_requests_gets_details_at_the_limit():
    """From many nodes, for all blocks: the rest is counted and costs nothing."""
    source = Signing(count=32 * 400, details_rte=20, txw_max_rte=10**9)
    source.run(SECOND)
    for step in range(4000):
        source.ask(32 * (step % 400), f"10.0.{step % 7}.{step % 50}")
        source.run(MS // 2)
    assert 20 <= source.core.counters.detail_requests <= 20 + 2 * 20
    assert source.core.counters.detail_requests + source.core.counters.detail_requests_braked == 4000
    assert len(source.sqns) == 32 * source.core.counters.detail_requests


def test_closed_source_sends_details_while_it_stays():
    source = Signing(fin_quiet_ivl=SECOND)
    source.core.close()
    source.run(900 * MS)
    source.ask(3)
    source.run(900 * MS)
    assert source.sqns == list(range(32))
    assert not source.core.is_finished(source.now)
    source.run(200 * MS)
    assert source.core.is_finished(source.now)
    source.ask(40)
    source.run(MS)
    assert len(source.sqns) == 32


def test_requests_without_a_needed_code_get_no_details():
    source = Signing(control=ControlKeys(frozenset({DATA_PORT, PROOFS_PORT}), NoNodeKeys()))
    source.ask(3)
    source.run(MS)
    assert not source.details
    assert source.core.counters.uncoded_packets == 1
