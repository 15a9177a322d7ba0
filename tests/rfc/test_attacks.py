"""Hostile packets at every role: bounded time and memory, counted, no exception, and the true session continues.

The attacks are parser abuse, window jumps, NCFs beyond the lead, and floods of SPMRs and of NAKs.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import pytest

from aggregator.core import AggregatorCore
from pgm.core.effects import Effect, LossCause, Lost, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import SECOND
from pgm.wire.control_packets import Packet, encode
from pgm.wire.formats import PacketType, tsi_text
from pgm.wire.options import Fragment, Join
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Train
from repairer.core import RepairerCore
from tests.reference import DATA_PORT, TSI, data_packet, sealed, without_checksum
from tests.rfc.bench import BELOW, SOURCE, UP, A, B
from tests.unit.core.makers import (
    MS,
    data_train,
    deadlines,
    nak_packet,
    ncf_packet,
    parameters,
    payload_of,
    sent_control,
    sent_sqns,
    spm_packet,
    spmr_packet,
)

T = PacketType
ROLES = ("source", "receiver", "aggregator", "repairer")
ATTACKER = "10.1.0.66"
SENT = 200  # packets of the true session
# Several times the cost of a packet under tracing on a busy machine. A loop over a jump would cost seconds.
CPU_NS_PER_PACKET = 5_000_000
KIB = 1024


@attrs.define
class Target:
    """Node in the middle of a session, and its clock."""

    role: str
    core: Core
    now: int = 1000 * SECOND

    @classmethod
    def of(cls, role: str, **changes: object) -> Target:
        """Return a node that has sent or received `SENT` packets."""
        settings = parameters(**changes)
        segment = attrs.evolve(UP, address=SOURCE, downstream=True)
        setup = ElementSetup(UP, (A, B), parents=(SOURCE,))
        core: Core
        if role == "source":
            core = SourceCore(SourceSetup(TSI, segment, DATA_PORT), settings, 1000 * SECOND)
            core.submit([payload_of(sqn) for sqn in range(SENT)])
        elif role == "receiver":
            core = ReceiverCore(ReceiverSetup(UP), settings, random.Random(1))
        elif role == "aggregator":
            core = AggregatorCore(setup, settings)
        else:
            core = RepairerCore(setup, settings, random.Random(1))
        target = cls(role, core)
        if role != "source":
            target.hear(spm_packet(1, 0, -1))
            target.hear(data_train(range(SENT)))
        target.wait(SECOND)
        return target

    def hear(self, what: Train | Packet, peer: str = SOURCE, *, below: bool = False) -> list[Effect]:
        """Hand over a packet from above, or a unicast packet from a child."""
        train = what if isinstance(what, Train) else Train.of(encode(what))
        segment = A if self.role in ("aggregator", "repairer") else UP
        channel = Channel(segment, False) if below else Channel(UP, True)
        return list(self.core.receive(train, channel, peer, self.now))

    def wait(self, ivl: int) -> list[Effect]:
        """Serve the deadlines of an interval."""
        until, found = self.now + ivl, []
        for now in deadlines(self.core, self.now, until):
            found += self.core.handle_deadline(now)
        self.now = until
        return found

    def nak(self, *sqns: int, peer: str = ATTACKER) -> list[Effect]:
        """Hand over a valid NAK from a child."""
        group = UP.group if self.role == "source" else A.group
        return self.hear(nak_packet(*sqns, source_nla=SOURCE, group_nla=group), peer, below=True)


@contextmanager
def bounded(packets: int, octets: int = 512 * KIB) -> Iterator[None]:
    """Assert bounds on the processor time per packet and on the memory that remains."""
    tracemalloc.start()
    try:
        before, begun = tracemalloc.get_traced_memory()[0], time.process_time_ns()
        yield
        assert time.process_time_ns() - begun < packets * CPU_NS_PER_PACKET + SECOND
        assert tracemalloc.get_traced_memory()[0] - before < octets
    finally:
        tracemalloc.stop()


def state_of(target: Target) -> list[object]:
    """Return the status rows without silence and counts."""
    return [attrs.evolve(row, silent_ns=0, counts={}) for row in target.core.status(target.now)]


# The parser


def _options(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([0, 4]) + (4 + len(body)).to_bytes(2, "big") + body


def _broken(rng: random.Random) -> Iterator[bytes]:
    """Return packets with one fault each and a correct checksum."""
    good = [
        data_packet(7, payload_of(7), options=(Fragment(7, 0, 12),)),
        data_packet(7, payload_of(7), kind=T.RDATA),
        encode(spm_packet(9, 0, 9, Join(3))),
        encode(nak_packet(5, 6, 7)),
        encode(ncf_packet(5, 6, 7)),
    ]
    for packet in good:
        yield from (sealed(packet[:cut]) for cut in range(16, len(packet) - 1, 3))
        yield sealed(packet[:4] + bytes([packet[4] | 0x10]) + packet[5:])
        yield sealed(packet[:4] + bytes([packet[4] | 0x40]) + packet[5:])
        yield sealed(packet + bytes(3))
    for length in (0, 1, 2, 3, 200, 255):
        yield data_packet(7, option_octets=_options(bytes([0x83, length, 0, 0]) + bytes(4)))
    yield data_packet(7, option_octets=_options(*[bytes([0x0D, 4, 0, 0])] * 16, bytes([0x8D, 4, 0, 0])))
    yield data_packet(7, option_octets=_options(*[bytes([0x0D, 4, 0, 0])] * 3))
    yield data_packet(7, option_octets=bytes([0, 4, 0xFF, 0xFF, 0x8D, 4, 0, 0]))
    yield data_packet(7, option_octets=bytes([0, 5, 0, 8, 0x8D, 4, 0, 0]))
    nak = encode(nak_packet(5, *range(6, 68)))
    for size in (0, 1, 7, 250):
        yield sealed(nak[:36] + _options(bytes([0x82, 4 + size, 0, 0]) + rng.randbytes(size)))
    for at in (21, 29):
        octets = bytearray(nak)
        octets[at] = 77
        yield sealed(bytes(octets))
    yield data_packet(7, b"x")[:-1] + b"y"
    yield without_checksum(data_packet(7, b"x"))


@pytest.mark.rfc("SEC-06", "W-24", "W-29")
@pytest.mark.parametrize("role", ROLES)
def test_parser_abuse(role):
    """Each packet is counted by reason, once and in thousand repeats, and changes nothing."""
    target = Target.of(role)
    broken = list(_broken(random.Random(1)))
    before = state_of(target)
    for packet in broken:
        rejected = target.core.counters.rejects.total()
        assert target.hear(Train.of(packet), ATTACKER) == []
        assert target.core.counters.rejects.total() == rejected + 1, packet.hex()
    with bounded(20 * len(broken)):
        for packet in broken * 20:
            target.hear(Train.of(packet), ATTACKER)
    assert state_of(target) == before
    assert set(target.core.counters.rejects) >= {
        "truncated", "type", "length", "checksum", "no_checksum", "unknown_afi", "no_opt_length",
        "option_total", "option_length", "too_many_options", "no_opt_end",
    }  # fmt: skip


@pytest.mark.rfc("SEC-06")
@pytest.mark.parametrize("role", ROLES)
def test_random_damage(role):
    """A few octets of good packets change, with a correct checksum. No exception is raised."""
    rng = random.Random(2)
    target = Target.of(role)
    good = [
        encode(spm_packet(2, 0, SENT - 1)),
        encode(nak_packet(5, 6)),
        encode(ncf_packet(5)),
        data_packet(5, b"x" * 9),
    ]
    with bounded(1000, 4096 * KIB):
        for _ in range(1000):
            octets = bytearray(rng.choice(good))
            for _ in range(rng.randint(1, 4)):
                octets[rng.randrange(len(octets))] = rng.randrange(256)
            target.hear(Train.of(sealed(bytes(octets))), ATTACKER, below=rng.random() < 0.5)
            target.wait(rng.choice([0, MS]))


# Sqns that never were


@pytest.mark.rfc("SEC-01")
def test_attack_nak_for_a_sqn_below_0_is_not_asked_upstream():
    """A repairer took it for history, and asked an empty address; once the source was silent, without end."""
    target = Target.of("repairer")
    before = target.core.counters.nak_packets
    target.nak(17, wrap(-30))
    target.wait(2 * SECOND)
    assert target.core.counters.nak_packets == before
    assert target.core.status(target.now)[0].missing_sqns == 0


# Window jumps


@pytest.mark.rfc("SEC-07", "W-18")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
@pytest.mark.parametrize("how", ["spm", "odata"])
def test_window_jumps(role, how):
    """Each packet jumps to another place far ahead.

    Nothing is allocated, asked for or lost, and the true source continues.
    """
    rng = random.Random(3)
    target = Target.of(role)
    naks = target.core.counters.nak_packets
    near, far = range(1 << 21, 1 << 30), range((1 << 30) + (1 << 21), (1 << 31) - 300)
    jumps = [rng.choice(far if number % 2 else near) for number in range(1000)]
    with bounded(len(jumps), 64 * KIB):
        for number, jump in enumerate(jumps):
            lead = SENT + jump
            if how == "spm":
                target.hear(spm_packet(2 + number, lead - 5, lead), ATTACKER)
            else:
                target.hear(Train.of(data_packet(wrap(lead), b"x", trail=lead - 5)), ATTACKER)
            target.wait(10_000)
    [row] = target.core.status(target.now)
    assert (row.lead, row.missing_sqns, row.pending_sqns) == (SENT - 1, 0, 0)
    assert target.core.counters.nak_packets == naks
    assert target.core.counters.jumps_rejected == len(jumps)
    target.hear(spm_packet(2 + len(jumps), 0, SENT - 1))
    target.hear(data_train([SENT]))
    assert target.core.status(target.now)[0].lead == SENT
    assert target.core.counters.lost_sqns == 0


@pytest.mark.rfc("SEC-07", "RCV-10")
def test_a_jump_that_is_confirmed_costs_one_loss_record():
    """A loss of two billion sqns is one object and one record."""
    target = Target.of("receiver")
    lead = SENT + (1 << 31) - 1000
    target.wait(2 * SECOND)
    with bounded(3, 64 * KIB):
        target.hear(Train.of(data_packet(wrap(lead), b"x", trail=lead - 5)))
        target.hear(spm_packet(2, lead - 5, lead))
        effects = target.hear(spm_packet(3, lead - 5, lead))
    lost = [(one.first, one.count, one.cause) for one in effects if isinstance(one, Lost)]
    assert lost == [(SENT, lead - 5 - SENT, LossCause.JUMP)]
    assert target.core.counters.jumps_followed == 1


@pytest.mark.rfc("SEC-07", "SEC-01")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_attack_largest_accepted_window_is_one_range(role):
    """A lead at the end of the receive window is one range.

    The sqns in each request are bounded.
    """
    target = Target.of(role, nak_max_outstanding=1008, ne_nak_max_outstanding=1008)
    with bounded(100, 1024 * KIB):
        target.wait(2 * SECOND)
        for number in (2, 3):
            effects = target.hear(spm_packet(number, 0, SENT + (1 << 20) - 2), ATTACKER)
        assert target.core.status(target.now)[0].lead == SENT + (1 << 20) - 2
        effects = target.wait(20 * MS)
    asked = {sqn for nak in sent_control(effects, T.NAK) for sqn in nak.sqns}
    assert len(asked) <= 1008


# NCFs


@pytest.mark.rfc("SEC-03", "RCV-31", "RCV-46")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_ncfs_beyond_the_lead(role):
    """An NCF beyond its permitted reach reveals no loss and makes no state."""
    rng = random.Random(4)
    target = Target.of(role, ncf_lead_sqns=4096)
    before = state_of(target)
    sqns = [SENT + rng.randrange(5000, (1 << 31) - 100) for _ in range(1000)]
    with bounded(len(sqns), 64 * KIB):
        for sqn in sqns:
            target.hear(ncf_packet(sqn), ATTACKER)
            target.hear(ncf_packet(*range(sqn, sqn + 40)), ATTACKER)
    assert target.wait(50 * MS) == []
    assert state_of(target) == before


@pytest.mark.rfc("SEC-03", "SEC-01")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_attack_accepted_ncfs_make_bounded_state(role):
    """Accepted NCFs make bounded state, at worst one range each."""
    rng = random.Random(5)
    target = Target.of(role, ncf_lead_sqns=4096, rxw_gaps=64, repair_states=64)
    with bounded(4000, 1024 * KIB):
        for _ in range(2000):
            target.hear(ncf_packet(SENT + rng.randrange(4096)), ATTACKER)
            target.hear(ncf_packet(rng.randrange(SENT)), ATTACKER)
    [session] = target.core.sessions
    assert _ranges(target, session) <= 64 + 2


def _ranges(target: Target, session) -> int:
    if target.role == "receiver":
        return len(session.recovery.missing)
    return len(session.elimination.repairs) if target.role == "aggregator" else len(session.upstream.recovery.missing)


@pytest.mark.rfc("SEC-03", "SRC-41")
@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
def test_attack_false_ncf_makes_no_nak_of_true_losses_foreign(role):
    """A child believed a false NCF, and lists sqns that were never sent beside its losses: the whole list was refused."""
    target = Target.of(role)
    effects = [*target.nak(5, 9, SENT + 30, SENT + 900), *target.wait(50 * MS)]
    assert target.core.counters.nak_packets_foreign == 0
    [ncf] = sent_control(effects, T.NCF)
    assert ncf.sqns == (5, 9)
    if role != "aggregator":
        assert sent_sqns(effects, T.RDATA) == [5, 9]


# Floods


@pytest.mark.rfc("SRC-26", "SPMR-08", "NE-39")
@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
def test_spmr_floods(role):
    """Five thousand SPMRs a second from many senders get one answer in IHB_MIN; the rest are counted."""
    target = Target.of(role, ihb_min=100 * MS)
    answers = 0
    with bounded(5000):
        for step in range(5000):
            answers += len(
                sent_control(target.hear(spmr_packet(), f"10.1.{step >> 8}.{step & 255}", below=True), T.SPM)
            )
            target.now += SECOND // 5000
    assert 10 <= answers <= 11
    assert target.core.counters.spmr_packets_in == 5000
    assert target.core.counters.spmr_packets_braked == 5000 - answers


def _random_sqns(rng: random.Random) -> list[int]:
    """Return sqns from the whole space, or a full list from the window."""
    if rng.random() < 0.5:
        return [rng.randrange(1 << 32)]
    return sorted(rng.sample(range(SENT), 63))


@pytest.mark.rfc("SEC-01", "SEC-09", "SRC-41", "NE-08")
@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
@pytest.mark.parametrize("children", [1, 1000])
def test_nak_floods(role, children):
    """NAKs have random sqns and full lists.

    NCFs, repairs, state and forwarded NAKs are bounded, and the rest are counted.
    """
    rng = random.Random(6)
    limits = {"child_nak_rte": 50, "session_nak_rte": 150, "brake_burst_ivl": SECOND, "session_ncf_rte": 150}
    target = Target.of(role, **limits, repair_states=256, txw_max_rte=1_000_000, rdata_share=0.25, max_children=64)
    effects: list[Effect] = []
    flood = 1000
    with bounded(flood, 4096 * KIB):
        for step in range(flood):
            peer = f"10.{1 + step % children // 250}.1.{step % children % 250}"
            effects += target.nak(*_random_sqns(rng), peer=peer)
            effects += target.wait(SECOND // flood)
    counters = target.core.counters
    admitted = (50 if children == 1 else 150) * 2 + 1  # a full bucket, and the tokens of a second
    assert counters.nak_packets_in <= admitted
    assert counters.ncf_packets <= admitted
    assert counters.nak_packets_in + counters.nak_packets_braked + counters.nak_packets_foreign == flood
    assert counters.nak_packets <= 2 * admitted
    repairs = sum(len(one.octets) for one in effects if isinstance(one, Send) and one.is_data)
    assert repairs <= 0.25 * 1_000_000 * 1.1 + 20_000
    if role == "aggregator":
        [session] = target.core.sessions
        assert len(session.elimination.repairs) <= 256


@pytest.mark.rfc("SEC-01", "SEC-09")
@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
def test_a_flood_from_one_child_leaves_room_for_the_others(role):
    """Every child has a budget of its own."""
    rng = random.Random(7)
    target = Target.of(role, child_nak_rte=100, session_nak_rte=1000, brake_burst_ivl=SECOND, nak_elim_ivl=MS)
    for _ in range(3000):
        target.nak(*_random_sqns(rng))
    effects = target.nak(5, peer=BELOW[A.index])
    assert [nak.sqns for nak in sent_control(effects, T.NCF)] == [(5,)]
    later = target.wait(200 * MS)
    if role == "aggregator":
        effects += target.hear(data_train([5], kind=T.RDATA))
    assert 5 in sent_sqns([*effects, *later], T.RDATA)


@pytest.mark.rfc("SEC-01", "SRC-45")
@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rng: nak_packet(5, tsi=rng.randbytes(8), source_nla=SOURCE, group_nla=UP.group),
        lambda rng: nak_packet(SENT + rng.randrange(1 << 30), source_nla=SOURCE, group_nla=UP.group),
    ],
    ids=["unknown sessions", "never sent"],
)
def test_attack_senseless_naks_make_no_state(role, make: Callable[[random.Random], Packet]):
    """The NAKs are neither confirmed nor stored."""
    rng = random.Random(8)
    target = Target.of(role)
    before = state_of(target)
    with bounded(2000, 64 * KIB):
        for _ in range(2000):
            assert target.hear(make(rng), ATTACKER, below=True) == []
    assert state_of(target) == before
    assert target.core.counters.nak_packets_foreign + target.core.counters.foreign_packets == 2000


@pytest.mark.rfc("SEC-01")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
@pytest.mark.parametrize("senders", [1, 250])
@pytest.mark.parametrize("kind", ["data", "spm"])
def test_attack_single_packets_of_new_sessions_evict_no_stream(role, senders, kind):
    """The true stream idles meanwhile. Many addresses cost it nothing, once three SPMs have agreed with its data."""
    target = Target.of(role, max_sessions=16, peer_expiry=10 * SECOND)
    for step in range(3 if senders > 1 else 0):
        target.hear(data_train([SENT + step]))
        target.hear(spm_packet(2 + step, 0, SENT + step))
    target.wait(SECOND)
    for number in range(500):
        tsi = number.to_bytes(8, "big")
        forged = data_train([5], tsi=tsi) if kind == "data" else spm_packet(1, 0, 5, tsi=tsi)
        target.hear(forged, f"10.1.9.{number % senders}")
        target.wait(MS)
    assert tsi_text(TSI) in {row.tsi for row in target.core.status(target.now)}
    newcomer = b"newcomer"
    target.hear(data_train([5], tsi=newcomer), "10.1.0.7")
    target.hear(spm_packet(1, 0, 5, tsi=newcomer), "10.1.0.7")
    for number in range(500, 600):
        target.hear(data_train([5], tsi=number.to_bytes(8, "big")), f"10.1.9.{number % senders}")
        target.wait(MS)
    assert {tsi_text(TSI), tsi_text(newcomer)} <= {row.tsi for row in target.core.status(target.now)}
    assert len(target.core.sessions) == 16


@pytest.mark.rfc("SEC-01")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_attack_full_table_of_streams_in_use_refuses_newcomers(role):
    """A stream that was silent for peer_expiry makes room."""
    target = Target.of(role, max_sessions=2, peer_expiry=10 * SECOND)

    def use(tsi: bytes, steps: range) -> None:
        for step in steps:
            target.hear(data_train([SENT + step], tsi=tsi))
            target.hear(spm_packet(2 + step, 0, SENT + step, tsi=tsi))

    use(TSI, range(3))
    use(b"another!", range(3))
    target.wait(9 * SECOND)
    target.hear(data_train([5], tsi=b"newcomer"))
    assert target.core.counters.sessions_refused == 1
    use(b"another!", range(3, 4))
    target.wait(SECOND)
    target.hear(data_train([5], tsi=b"newcomer"))
    assert {row.tsi for row in target.core.status(target.now)} == {tsi_text(b"another!"), tsi_text(b"newcomer")}
    assert target.core.counters.sessions_evicted == 1


@pytest.mark.rfc("SEC-01")
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_attack_number_of_sessions_is_bounded(role):
    """The number of sessions is bounded.

    Silent sessions are evicted, and the active one stays.
    """
    rng = random.Random(9)
    target = Target.of(role, max_sessions=16)
    with bounded(2000, 2048 * KIB):
        for step in range(1000):
            tsi = rng.randbytes(8)
            target.hear(data_train([step], tsi=tsi), ATTACKER)
            target.hear(spm_packet(step, 0, step, tsi=tsi), ATTACKER)
            if step % 8 == 0:
                target.hear(data_train([SENT + step // 8]))
            target.now += MS
    assert len(target.core.sessions) == 16
    leads = {one.tsi: one.lead for one in target.core.status(target.now)}
    assert leads[tsi_text(TSI)] == SENT + 999 // 8
    assert target.core.counters.sessions_evicted >= 900
