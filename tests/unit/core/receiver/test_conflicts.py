"""Different copies of one packet: no silent replacement, each conflict reported in order, legal differences ignored."""

from __future__ import annotations

import pytest

from pgm.core.effects import Conflict, LossCause
from pgm.core.receiver.setup import ReceiverSetup
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, Fragment, Join
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, data_packet
from tests.unit.core.makers import (
    BY_GROUP,
    MS,
    SEGMENT,
    SOURCE,
    data_train,
    ncf_packet,
    payload_of,
    spm_packet,
    train_of,
)
from tests.unit.core.reader import Reader, joined

T = PacketType
FORGED = b"not what the source sent"


def forged(sqn, payload=FORGED[:12], **changes):
    return Train.of(data_packet(sqn, payload, **{"trail": 100} | changes))


def true(*sqns, **changes):
    return data_train(sqns, **{"trail": 100} | changes)


@pytest.mark.parametrize("at_once", [1, 25])
def test_attacker_20_ahead_replaces_no_message_silently(at_once):
    """The attack of one ODATA 20 ahead of the stream, ten times. It replaced ten of ten true payloads silently.

    The true packets come one by one, and the false one is then delivered before its true copy comes. Or they come in
    trains, and neither copy is delivered: a repair is.
    """
    ahead = range(1030, 1260, 25)
    replaced = set(ahead) if at_once == 1 else set()
    reader = joined(payload=lambda sqn: FORGED[:12] if sqn in replaced else payload_of(sqn))
    for sqn in ahead:
        reader.hear(forged(sqn))
        for first in range(sqn - 20, sqn + 5, at_once):
            reader.hear(true(*range(first, first + at_once)), after=MS)
        if at_once == 25:
            reader.wait(20 * MS)
            assert sqn in reader.asked()
            reader.hear(ncf_packet(sqn))
            reader.hear(true(sqn, kind=T.RDATA), after=MS)
    assert reader.delivered() == list(range(1000, 1260))  # with payloads that the reader compares
    assert reader.conflicts == [(sqn + (at_once == 1), sqn, 1, at_once == 1) for sqn in ahead]
    assert reader.core.counters.conflict_sqns == 10
    assert reader.core.counters.lost_sqns == 0


def test_next_packet_of_an_attacker_is_reported():
    """The attacker is one packet ahead: its copy is delivered at once, and the application is told with the true one."""
    reader = joined(payload=lambda sqn: FORGED[:12] if sqn == 1010 else payload_of(sqn))
    reader.hear(forged(1010))
    reader.hear(true(1010))
    reader.hear(true(1011, 1012))
    assert reader.conflicts == [(1011, 1010, 1, True)]
    assert reader.delivered() == list(range(1000, 1013))
    assert reader.core.counters.conflict_sqns == 1


def test_conflict_of_delivered_packet_is_reported_once():
    reader = joined()
    for _ in range(3):
        reader.hear(forged(1005))
        reader.hear(forged(1006, b"another forgery"))
    assert reader.conflicts == [(1010, 1005, 1, True), (1010, 1006, 1, True)]
    assert reader.core.counters.duplicate_packets == 6
    assert reader.core.counters.conflict_sqns == 2


def test_fast_lane_packets_are_compared_too():
    reader = joined()
    lane = reader.core.single
    packet = data_packet(1010, payload_of(1010), trail=100)
    assert lane.begin(packet, "10.0.0.1", reader.now) is not None
    for copy, conflicts in ((true(1010), []), (forged(1010), [Conflict(TSI, 1010, 1, True)]), (forged(1010), [])):
        assert list(reader.core.receive(copy, BY_GROUP, SOURCE, reader.now)) == conflicts


@pytest.mark.parametrize("size", [1, 7, 300])
def test_conflict_in_a_long_train(size):
    """One packet of a train that comes twice differs, in the last octet."""
    reader = joined(payload=lambda sqn: payload_of(sqn, 1000 if sqn >= 1010 else 12), conflict_keep_bytes=512 * KIB)
    train = data_train(range(1010, 1010 + size), trail=100, size=1000)
    reader.hear(train)
    again = [data_packet(sqn, payload_of(sqn, 1000), trail=100) for sqn in range(1010, 1010 + size)]
    at = size // 2
    again[at] = data_packet(1010 + at, payload_of(1010 + at, 999) + b"\0", trail=100)
    reader.hear(Train.of(b"".join(again), len(again[0])))
    assert reader.conflicts == [(1010 + size, 1010 + at, 1, True)]


def test_repair_that_differs_again_is_a_loss():
    """A third copy that differs from the repair: nothing can be delivered honestly, and nothing is."""
    reader = joined()
    reader.hear(forged(1015))
    reader.hear(true(1015))
    reader.wait(20 * MS)
    reader.hear(true(1015, kind=T.RDATA))
    reader.hear(forged(1015, b"a third copy"))
    reader.hear(true(*range(1010, 1015)))
    reader.hear(true(1016))
    assert reader.conflicts == [(1015, 1015, 1, False)]
    assert reader.lost() == {1015: LossCause.CONFLICT}
    assert reader.delivered() == [*range(1000, 1015), 1016]
    assert reader.core.counters.conflict_sqns == 2


def test_conflict_without_a_repair_is_a_loss():
    reader = joined(nak_data_retries=2, nak_ncf_retries=2)
    reader.hear(forged(1011))
    reader.hear(true(1010, 1011, 1012))
    for _ in range(60):
        reader.hear(spm_packet(len(reader.sent) + 2, 100, 1012), after=SECOND)
    assert reader.conflicts == [(1011, 1011, 1, False)]
    assert set(reader.lost()) == {1011}
    assert reader.delivered() == [*range(1000, 1011), 1012]


@pytest.mark.parametrize(
    "copy",
    [
        true(1012, kind=T.RDATA),
        true(1012, trail=700),
        true(1012, options=(Join(min_sqn=900),)),
        true(1012, options=(Fin(),)),
        true(1012, kind=T.RDATA, trail=1000, options=(Join(min_sqn=900),)),
    ],
    ids=["repair", "trail", "join", "fin", "all"],
)
@pytest.mark.parametrize("is_held", [True, False])
def test_legal_differences_are_no_conflict(copy, is_held):
    reader = joined()
    if not is_held:
        reader.hear(true(1010, 1011))
    reader.hear(true(1012))
    reader.hear(copy)
    assert reader.core.counters.duplicate_packets == 1
    reader.wait(10 * MS)
    reader.hear(true(1010, 1011))
    assert reader.conflicts == []
    assert reader.core.counters.conflict_sqns == 0
    assert set(reader.delivered()) == set(range(1000, 1013))


@pytest.mark.parametrize("is_held", [True, False])
def test_other_fragment_is_a_conflict(is_held):
    """The same payload at another place of a message, or as a message of its own, is another packet."""
    reader = joined()
    if not is_held:
        reader.hear(true(1010))
    part = Fragment(first_sqn=1011, offset=0, apdu_length=24)
    reader.hear(true(1011, options=(part,)))
    reader.hear(true(1011, options=(part,)))
    assert reader.core.counters.conflict_sqns == 0
    reader.hear(true(1011))
    assert reader.core.counters.conflict_sqns == 1


def test_longer_and_shorter_copies_are_conflicts():
    reader = joined()
    for sqn, payload in ((1003, payload_of(1003)[:11]), (1004, payload_of(1004) + b"\0"), (1005, b"")):
        reader.hear(forged(sqn, payload))
    assert [first for _, first, _, _ in reader.conflicts] == [1003, 1004, 1005]


def test_unordered_stream_reports_at_once():
    setup = ReceiverSetup(SEGMENT, unordered_ports=frozenset({DATA_PORT}))
    core = Reader(setup).core
    heard = (train_of(spm_packet(1, 100, 999)), true(1000), true(1005), true(1003), forged(1005), forged(1003))
    effects = [effect for train in heard for effect in core.receive(train, BY_GROUP, SOURCE, 1000 * SECOND)]
    conflicts = [effect for effect in effects if isinstance(effect, Conflict)]
    assert conflicts == [Conflict(TSI, 1005, 1, True), Conflict(TSI, 1003, 1, True)]


def test_kept_memory_of_delivered_packets_is_bounded():
    """A slow stream: the newest packets are compared, and the oldest are not."""
    reader = joined(conflict_keep_bytes=1 * KIB)
    for sqn in range(1010, 1100):
        reader.hear(true(sqn))
    for sqn in (1099, 1075, 1010):
        reader.hear(forged(sqn))
    assert [first for _, first, _, _ in reader.conflicts] == [1099, 1075]


def test_kept_memory_is_two_chunks_at_most():
    """Long reads, each in memory of its own: only the newest two stay."""
    reader = joined(payload=lambda sqn: payload_of(sqn, 1000 if sqn >= 1010 else 12))
    for first in range(1010, 1100, 30):
        reader.hear(data_train(range(first, first + 30), trail=100, size=1000))
    for sqn in (1010, 1040, 1099):
        reader.hear(forged(sqn))
    assert [first for _, first, _, _ in reader.conflicts] == [1040, 1099]


def test_nothing_delivered_is_kept_without_memory_for_it():
    reader = joined(conflict_keep_bytes=0)
    reader.hear(forged(1005))
    assert reader.conflicts == []
    reader.hear(forged(1012))
    reader.hear(true(1010, 1011, 1012))
    reader.hear(true(1012, kind=T.RDATA))
    assert reader.conflicts == [(1012, 1012, 1, False)]


def test_flood_of_conflicts_is_reported_and_accounted_for():
    """An attacker forges every held packet of a window with room for few gaps."""
    reader = joined(rxw_gaps=16)
    for sqn in range(1011, 1111, 2):
        reader.hear(true(sqn))
        reader.hear(forged(sqn))
    reader.hear(spm_packet(2, 100, 1110))
    reader.hear(true(*range(1010, 1111)), after=MS)
    assert set(reader.lost().values()) <= {LossCause.CONFLICT, LossCause.OVERLOAD}
    assert [first for _, first, _, _ in reader.conflicts] == list(range(1011, 1111, 2))
    assert reader.core.counters.conflict_sqns == 50


def test_attacker_with_another_address_replaces_nothing():
    """The topology knows the source: 20 ahead, next, and old packets of a stranger are dropped, on the fast lane too."""
    reader = Reader(ReceiverSetup(SEGMENT, allowed={DATA_PORT: frozenset({SOURCE})}))
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(true(1000, 1001))
    stranger, lane = "10.0.0.66", reader.core.single
    notices = [reader.hear(forged(sqn), peer=stranger) for sqn in (1000, 1002, 1021, *range(1002, 1020))]
    assert [[notice.code for notice in heard] for heard in notices if heard] == [["unlisted-sender"]] * 2
    assert lane.begin(data_packet(1002, FORGED[:12], trail=100), stranger, reader.now) is None
    assert lane.begin(data_packet(1002, payload_of(1002), trail=100), SOURCE, reader.now) is not None
    lane.commit()
    assert lane.begin(data_packet(1003, FORGED[:12], trail=100), stranger, reader.now) is None
    assert reader.core.counters.unlisted_packets == 21
    assert reader.core.counters.conflict_sqns == 0
    assert reader.core.counters.received_packets == 3
