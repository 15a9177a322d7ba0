"""Forged packets far ahead of a stream, and real outages that look like them.

An attacker needs no more than a UDP sender of its own. Nothing may be requested or lost for its packets, and all true
packets are delivered. A real gap of any size is found all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest

from pgm.core.counters import Counters
from pgm.core.effects import Deliver, Effect, Lost, Notice
from pgm.units import MILLISECOND as MS
from pgm.units import SECOND
from pgm.wire.control_packets import Spm
from pgm.wire.formats import PacketType
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Train
from tests.reference import data_packet
from tests.rfc.test_attacks import ATTACKER, SENT, Target
from tests.unit.core.makers import data_train, payload_of, spm_packet

ROLES = ("receiver", "aggregator", "repairer")
MILLION = 1_000_000
FAR = 1 << 30
PACKET_IVL = SECOND // 300  # the stream of the attacks in the field
SPM_IVL = 500 * MS


@attrs.define
class Stream:
    """True source of 300 packets a second, with an SPM each half second, and one node that hears it."""

    target: Target
    next_sqn: int = SENT
    spm_sqn: int = 2
    spm_at: int = 0
    effects: list[Effect] = attrs.field(factory=list)

    def hear(self, what: Train | Spm, peer: str) -> None:
        """Hand over a packet, and keep what the node does."""
        self.effects += self.target.hear(what, peer)

    def spm(self) -> None:
        """Send the source's next SPM."""
        self.effects += self.target.hear(spm_packet(self.spm_sqn, 0, self.next_sqn - 1))
        self.spm_sqn += 1
        self.spm_at = self.target.now + SPM_IVL

    def send(self, count: int, *, is_deaf: bool = False) -> None:
        """Send packets at the stream's rate; with `is_deaf` the node hears none of them."""
        for _ in range(count):
            if is_deaf:
                self.target.now += PACKET_IVL
            else:
                if self.target.now >= self.spm_at:
                    self.spm()
                self.effects += self.target.hear(data_train([self.next_sqn]))
                self.effects += self.target.wait(PACKET_IVL)
            self.next_sqn += 1

    def idle(self, ivl: int, heartbeat_ivl: int = 2 * SECOND) -> None:
        """Send heartbeats only."""
        for _ in range(ivl // heartbeat_ivl):
            self.effects += self.target.wait(heartbeat_ivl)
            self.spm()

    @property
    def counters(self) -> Counters:
        """Counters of the node."""
        return self.target.core.counters

    def delivered(self) -> int:
        """Return how many packets the application got since the stream began."""
        return sum(effect.run.count for effect in self.effects if isinstance(effect, Deliver))

    def assert_untouched(self) -> None:
        """Assert that no phantom gap, NAK or loss came of the attack, and that every true packet was taken."""
        counters = self.counters
        assert (counters.missing_sqns, counters.nak_packets, counters.lost_sqns) == (0, 0, 0)
        assert not [effect for effect in self.effects if isinstance(effect, Lost)]
        assert self.target.core.status(self.target.now)[0].lead == self.next_sqn - 1
        if self.target.role == "receiver":
            assert self.delivered() == self.next_sqn - SENT

    def notices(self) -> list[str]:
        """Return the codes of the notices about claims."""
        return [one.code for one in self.effects if isinstance(one, Notice) and one.code == "jump-unproved"]


def stream(role: str, **changes: object) -> Stream:
    made = Stream(Target.of(role, **changes))
    made.send(600)
    return made


def odata(sqn: int, kind: PacketType = PacketType.ODATA) -> Train:
    return Train.of(data_packet(wrap(sqn), payload_of(sqn), kind=kind, trail=0))


def forged_spms(made: Stream, ahead: int, count: int) -> Iterable[Spm]:
    lead = made.next_sqn + ahead
    return [spm_packet(made.spm_sqn + 100 + number, 0, lead) for number in range(count)]


@pytest.mark.rfc("SEC-07")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ahead", [10_000, MILLION, FAR])
@pytest.mark.parametrize("kind", [PacketType.ODATA, PacketType.RDATA])
@pytest.mark.parametrize("count", [1, 5])
def test_attack_data_far_ahead_are_never_asked_for(role, ahead, kind, count):
    """Old code: 999,999 phantom gaps and thousands of NAKs for one ODATA a million ahead."""
    made = stream(role)
    for number in range(count):
        made.hear(odata(made.next_sqn + ahead + number, kind), ATTACKER)
    made.send(900)
    made.assert_untouched()
    assert made.counters.jumps_rejected == count
    assert made.notices() == ["jump-unproved"]


@pytest.mark.rfc("SEC-07")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ahead", [10_000, MILLION, FAR])
def test_attack_data_far_ahead_in_one_read_with_true_data(role, ahead):
    """The sender's address is forged too, so one read holds true and false packets."""
    made = stream(role)
    sqn = made.next_sqn
    made.effects += made.target.hear(data_train([sqn, sqn + 1, wrap(sqn + 1 + ahead)]))
    made.next_sqn += 2
    made.send(900)
    made.assert_untouched()
    assert made.counters.jumps_rejected == 1


@pytest.mark.rfc("SEC-07")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ahead", [10_000, MILLION, FAR])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_attack_agreeing_spms_far_ahead_are_not_followed(role, ahead, count):
    """Old code: two SPMs with a lead of 2^30 more end the session; all true packets count as duplicates."""
    made = stream(role)
    for spm in forged_spms(made, ahead, count):
        made.hear(spm, ATTACKER)
    made.send(900)
    made.assert_untouched()
    assert made.counters.jumps_rejected == count
    assert made.counters.jumps_refuted == 1, "an SPM of the source, not out of sequence"
    assert made.notices() == ["jump-unproved"]


@pytest.mark.rfc("SEC-07")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ahead", [10_000, MILLION, FAR])
def test_attack_spms_and_data_that_agree_lose_against_the_stream(role, ahead):
    """Both kinds of witnesses, several of each, while the true source sends."""
    made = stream(role)
    for number, spm in enumerate(forged_spms(made, ahead, 5)):
        made.hear(odata(made.next_sqn + ahead + 20 * number), ATTACKER)
        made.hear(spm, ATTACKER)
        made.send(3)
    made.send(900)
    made.assert_untouched()


@pytest.mark.rfc("SEC-07")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ahead", [MILLION, FAR])
def test_attack_an_idle_source_contradicts_by_its_heartbeats(role, ahead):
    """Both kinds of witnesses between two heartbeats, on a stream that sends no data."""
    made = stream(role)
    made.idle(10 * SECOND)
    for number, spm in enumerate(forged_spms(made, ahead, 3)):
        made.hear(odata(made.next_sqn + ahead + number), ATTACKER)
        made.hear(spm, ATTACKER)
        made.effects += made.target.wait(500 * MS)
    made.idle(4 * SECOND)
    made.send(30)
    made.assert_untouched()


@pytest.mark.parametrize("role", ROLES)
def test_an_episode_is_reported_once(role):
    made = stream(role)
    for _ in range(10):
        made.hear(odata(made.next_sqn + MILLION), ATTACKER)
        made.send(100)
    assert len(made.notices()) == 1
    made.send(300 * 11)
    made.hear(odata(made.next_sqn + MILLION), ATTACKER)
    assert len(made.notices()) == 2


# Real outages


def assert_gap_found(made: Stream, gap: int) -> None:
    """Assert that the node knows the newest packet of the source, and asks for a gap."""
    [row] = made.target.core.status(made.target.now)
    assert row.lead == made.next_sqn - 1
    made.effects += made.target.wait(100 * MS)
    assert made.counters.missing_sqns >= gap
    assert made.counters.nak_packets > 0


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("seconds", [3, 30])
def test_outage_ends_with_the_first_data_packet(role, seconds):
    """More was sent than a burst, but no more than the rate allows."""
    made = stream(role, jump_burst_sqns=100)
    made.send(300 * seconds, is_deaf=True)
    made.effects += made.target.hear(data_train([made.next_sqn]))
    made.next_sqn += 1
    assert_gap_found(made, 300 * seconds)
    assert made.counters.jumps_rejected == 0


@pytest.mark.parametrize("role", ROLES)
def test_outage_ends_with_the_first_spm(role):
    made = stream(role, jump_burst_sqns=100)
    made.send(300 * 3, is_deaf=True)
    made.spm()
    assert_gap_found(made, 900)


@pytest.mark.parametrize("role", ROLES)
def test_stop_whose_socket_kept_old_packets_ends_at_once(role):
    """The process stood still for 3 s. Its socket holds packets from before the gap, with an SPM among them."""
    made = stream(role, jump_burst_sqns=100)
    made.target.now += 3 * SECOND
    made.spm()
    made.effects += made.target.hear(data_train(range(made.next_sqn, made.next_sqn + 20)))
    made.next_sqn += 900
    made.effects += made.target.hear(data_train([made.next_sqn - 1]))
    assert_gap_found(made, 800)
    assert made.counters.jumps_rejected == 0


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("ivl", [100 * MS, 3 * SECOND])
def test_source_that_was_idle_and_sends_a_burst_in_an_outage(role, ivl):
    """A gap beyond every bound is followed with a few packets, or after jump_ivl."""
    made = stream(role)
    made.idle(20 * SECOND)
    made.target.now += ivl
    made.next_sqn += 500_000
    for _ in range(30):  # 44 packets each ms
        sqns = range(made.next_sqn, made.next_sqn + 44)
        made.effects += made.target.hear(data_train(sqns))
        made.next_sqn += 44
        made.effects += made.target.wait(MS)
    assert_gap_found(made, 500_000)
    assert made.counters.jumps_followed == 1
    assert made.counters.jumps_rejected <= 44 * 21


@pytest.mark.parametrize("role", ROLES)
def test_burst_whose_end_only_heartbeats_announce_is_found(role):
    """No data follow the outage."""
    made = stream(role)
    made.idle(20 * SECOND)
    made.next_sqn += 500_000
    made.target.now += 3 * SECOND
    made.spm()
    made.effects += made.target.wait(50 * MS)
    made.spm()
    assert_gap_found(made, 500_000)


@pytest.mark.rfc("SEC-07", "W-17")
@pytest.mark.parametrize("role", ROLES)
def test_stream_that_restarts_beyond_the_window_is_reported(role):
    """A jump beyond rxw_sqns, after an outage: SPMs and data prove it, and what lies between is one loss."""
    made = stream(role, peer_expiry=60 * SECOND)
    made.target.now += 5 * SECOND
    made.next_sqn += FAR
    trail = made.next_sqn - 100
    for _ in range(3):
        made.effects += made.target.hear(data_train([made.next_sqn]))
        made.next_sqn += 1
        made.effects += made.target.hear(spm_packet(made.spm_sqn, trail, made.next_sqn - 1))
        made.spm_sqn += 1
    assert made.target.core.status(made.target.now)[0].lead == made.next_sqn - 1
    assert made.counters.jumps_followed == 1
    if role == "receiver":
        assert [one.cause.value for one in made.effects if isinstance(one, Lost)] == ["jump"]
