"""Streams with signed SPMs: without the source's key nothing moves a window, ends a session or begins one."""

from __future__ import annotations

from datetime import date
from typing import Any

import attrs
import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.session.signed_streams import StreamSigners
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.signature_check import SignatureCheck
from pgm.units import SECOND
from pgm.wire.control_packets import Spm, decode_control_untrusted, encode, with_path
from pgm.wire.formats import PacketType
from pgm.wire.option_rewriting import with_back_off
from pgm.wire.options import Fin, Join, NakBoIvl, PgmccFeedback, Rst, SpmSignature, UnknownOption, find
from pgm.wire.signed_spm import SignedSpm, SpmSigner
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.rfc.bench import SOURCE, UP, A, B, Bench
from tests.unit.core.makers import MS, SEGMENT, data_train, deadlines, ncf_packet, parameters, sent_control, spm_packet
from tests.unit.core.reader import Reader

TODAY, DAYS = date(2027, 1, 2), (date(2027, 1, 1), date(2028, 1, 1))
KEYS = PrivateKeys.of_secret(bytes(range(64)), *DAYS)
STRANGER = PrivateKeys.of_secret(bytes(64), *DAYS)
WALL_NS = 1_800_000_000 * SECOND  # at 0 of the cores' clock
START = 1000 * SECOND  # by the clock of the readers
SIGNERS = StreamSigners({DATA_PORT: SignatureCheck([KEYS.public], lambda: TODAY)}, lambda: WALL_NS)
ATTACKER = "10.0.0.66"


def signed(spm: Spm, *, keys: PrivateKeys = KEYS, at_ns: int = WALL_NS + START) -> Spm:
    return SpmSigner(keys.public.id_octets, keys.sign).signed(spm, at_ns)


def a_reader(**changes: Any) -> Reader:
    return Reader(ReceiverSetup(SEGMENT, signers=SIGNERS), **changes)


def a_running_reader(**changes: Any) -> Reader:
    """Return a reader that has heard a signed SPM and packets 0 to 9."""
    reader = a_reader(**changes)
    reader.hear(signed(spm_packet(0, 0, -1)))
    reader.hear(data_train(range(10)))
    assert len(reader.fates[TSI]) == 10
    return reader


FORGERIES = {
    "unsigned": spm_packet(1, 0, 9 + (1 << 30)),
    "foreign keys": signed(spm_packet(1, 0, 9 + (1 << 30)), keys=STRANGER),
    "fin": spm_packet(1, 0, 9, Fin()),
    "rst": spm_packet(1, 0, 9, Rst()),
    "other edges": attrs.evolve(signed(spm_packet(1, 0, 9)), lead=500),
    "another end": attrs.evolve(signed(spm_packet(1, 0, 9)), options=(*signed(spm_packet(1, 0, 9)).options, Fin())),
    "id of the keys": spm_packet(1, 0, 99, SpmSignature(0, 0, proof=KEYS.public.id_octets + bytes(64))),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_spm_changes_nothing(name: str) -> None:
    reader = a_running_reader()
    for _ in range(3):
        reader.hear(FORGERIES[name], peer=ATTACKER)
    reader.until(reader.now + 2 * SECOND)
    assert reader.core.counters.forged_spm_packets == 3
    assert (reader.core.counters.missing_sqns, reader.sent) == (0, [])
    reader.hear(signed(spm_packet(1, 0, 9)))
    reader.hear(data_train(range(10, 20)))
    assert len(reader.fates[TSI]) == 20


@pytest.mark.parametrize("spm_sqn", [0, 1], ids=["repeated", "next"])
def test_forged_spm_with_an_option_of_other_packets_is_counted(spm_sqn: int) -> None:
    """Such an SPM was encoded again to verify its signature, which ended the process."""
    reader = a_running_reader()
    foreign = UnknownOption(PgmccFeedback.TYPE, 0, 0, bytes(12))
    forged = attrs.evolve(signed(spm_packet(spm_sqn, 0, 9)), octets=b"")
    reader.hear(Train.of(encode(attrs.evolve(forged, options=(*forged.options, foreign)))))
    counters = reader.core.counters
    assert counters.forged_spm_packets + counters.spm_packets_stale == 1


def test_signed_spm_begins_jumps_and_ends() -> None:
    """A signed jump is followed at once, and a signed end closes the session."""
    reader = a_running_reader(rxw_sqns=64)
    lead = 1 << 20
    reader.hear(signed(spm_packet(1, lead - 20, lead)))
    assert reader.core.sessions.state_of(TSI).lead == lead
    reader.hear(data_train(range(lead + 1, lead + 5), trail=lead - 20))
    reader.hear(signed(spm_packet(2, lead - 20, lead + 4, Fin())))
    reader.until(reader.now + 60 * SECOND)
    assert [mark.cause.name for mark in reader.marks[1:]] == ["FIN"]


def test_data_of_an_unknown_session_waits_for_a_signed_spm() -> None:
    reader = a_reader()
    reader.hear(data_train(range(4)))
    assert not list(reader.core.sessions)
    assert reader.core.counters.unproved_packets == 4
    reader.hear(signed(spm_packet(0, 0, 3, Join(min_sqn=4))))
    reader.hear(data_train(range(4, 9)))
    assert list(reader.fates[TSI]) == list(range(4, 9))


def test_data_neither_moves_the_trail_nor_ends_the_session() -> None:
    reader = a_running_reader()
    reader.hear(data_train([10], trail=10, options=(Fin(),)))
    state = reader.core.sessions.state_of(TSI)
    assert (state.trail, state.end.is_claimed) == (0, False)
    reader.hear(signed(spm_packet(1, 5, 10)))
    assert state.trail == 5


def test_replay_of_an_earlier_session_begins_none() -> None:
    reader = a_reader(signature_age=60 * SECOND)
    for offset_s in (-61, 61):
        reader.hear(signed(spm_packet(0, 0, -1), at_ns=WALL_NS + START + offset_s * SECOND))
    assert (reader.core.counters.forged_spm_packets, len(list(reader.core.sessions))) == (2, 0)
    reader.hear(signed(spm_packet(0, 0, -1), at_ns=WALL_NS + START - 59 * SECOND))
    assert len(list(reader.core.sessions)) == 1


def test_replay_within_a_session_is_stale() -> None:
    reader = a_running_reader()
    first, second = (signed(spm_packet(sqn, 0, 9)) for sqn in (1, 2))
    reader.hear(second)
    for _ in range(20):
        reader.hear(first, peer=ATTACKER)
    counters = reader.core.counters
    assert (counters.spm_packets_stale, counters.forged_spm_packets, counters.spm_sqns_followed) == (20, 0, 0)


def test_flood_of_forged_spms_leaves_the_budget_of_the_true_sender() -> None:
    """A thousand forged SPMs cost as many verifications as the budget allows, and the true SPMs pass meanwhile."""
    reader = a_running_reader(spm_verify_rte=50)
    for number in range(1000):
        reader.hear(signed(spm_packet(2000 + number, 0, 99), keys=STRANGER), peer=ATTACKER, after=MS)
        if number % 100 == 0:
            reader.hear(signed(spm_packet(1 + number // 100, 0, 9)))
    counters = reader.core.counters
    assert counters.forged_spm_packets + counters.unverified_spm_packets == 1000
    assert counters.forged_spm_packets <= 50 * 2
    assert reader.core.sessions.state_of(TSI).spm.spm_sqn == 10


def test_source_signs_every_spm() -> None:
    signer = SpmSigner(KEYS.public.id_octets, KEYS.sign)
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=WALL_NS + START, signer=signer)
    core, reader = SourceCore(setup, parameters(), START), a_reader()
    for now in deadlines(core, START, START + 5 * SECOND):
        for spm in sent_control(core.handle_deadline(now), PacketType.SPM):
            reader.hear(spm)
    assert reader.core.counters.forged_spm_packets == 0
    assert reader.core.counters.spm_packets_in >= 2


def test_elements_forward_signed_spms_with_their_path_and_back_off() -> None:
    """A relay writes its own path and back-off; the signature holds below, and a standby relay knows the copy."""
    spm = decode_control_untrusted(encode(signed(spm_packet(0, 0, 9))))
    passed = with_back_off(spm, with_path(spm, "10.1.0.1"), (NakBoIvl(ivl_us=5000, ivl_sqn=0),))
    proof = SignedSpm.of(decode_control_untrusted(passed))
    assert KEYS.public.id_octets == proof.key_id
    assert SIGNERS.by_port[DATA_PORT](proof.key_id, proof.signature, proof.octets)


def test_relay_passes_only_signed_spms() -> None:
    bench = Bench(setup=ElementSetup(UP, (A, B), parents=(SOURCE,), signers=SIGNERS))
    bench.hear(spm_packet(0, 0, 9), UP, SOURCE)
    bench.hear(data_train(range(10)), UP, SOURCE)
    assert bench.log == []
    bench.hear(signed(spm_packet(0, 0, 9)), UP, SOURCE)
    bench.hear(spm_packet(1, 0, 9, Fin()), UP, SOURCE)
    sent = [item for _, _, item in bench.sent(PacketType.SPM)]
    assert [spm.path_nla for spm in sent] == ["10.1.0.1", "10.2.0.1"]
    assert all(find(spm.options, SpmSignature) for spm in sent)


def test_standby_relay_counts_the_copies_of_its_partner() -> None:
    """A standby that has heard each SPM from above first stays silent while its partner relays them."""
    partner = "10.1.0.2"
    setup = ElementSetup(UP, (A,), parents=(SOURCE,), signers=SIGNERS, partners=frozenset({partner}), is_standby=True)
    bench = Bench(setup=setup, relay_takeover_ivl=SECOND)
    for number in range(20):
        spm = signed(spm_packet(number, 0, 9), at_ns=WALL_NS + START + number * SECOND // 2)
        bench.hear(spm, UP, SOURCE, after=SECOND // 2)
        bench.hear(attrs.evolve(spm, path_nla=partner), A, partner)
    assert bench.core.counters.takeovers == 0
    assert bench.sent(PacketType.SPM) == []


def test_ncf_reveals_no_packets() -> None:
    """An NCF of an attacker moved the lead by 985 sqns, and the receiver asked for them to the end."""
    reader = a_running_reader()
    reader.hear(ncf_packet(10, 1000), peer=ATTACKER)
    reader.until(reader.now + SECOND)
    assert (reader.core.counters.missing_sqns, reader.core.counters.nak_packets) == (0, 0)
    assert reader.core.sessions.state_of(TSI).lead == 9
