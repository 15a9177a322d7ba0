"""The receiver core gives up: what the window left, what nobody answers, and what an application does not take."""

from __future__ import annotations

import pytest

from pgm.core.effects import CloseCause, LossCause
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.window.receive_window import LostSpan
from pgm.units import KIB, SECOND
from pgm.wire.formats import PacketType
from tests.memory import kept_by
from tests.reference import OTHER_TSI, TSI
from tests.unit.core.makers import MS, REPAIRER, SEGMENT, data_train, ncf_packet, payload_of, spm_packet
from tests.unit.core.reader import Reader, joined, slow_reader

T = PacketType
L = LossCause


# Loss


@pytest.mark.rfc("RCV-05", "RCV-10", "RCV-11", "SRC-15")
def test_packets_that_left_the_window_are_lost():
    reader = joined()
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1016], trail=1012))
    assert reader.lost() == {1010: L.WINDOW, 1011: L.WINDOW}
    assert reader.next_sqn() == 1012
    reader.hear(spm_packet(2, 1017, 1016))
    assert reader.lost() == dict.fromkeys((1010, 1011, 1012, 1014, 1015), L.WINDOW)
    assert reader.next_sqn() == 1017
    reader.wait(SECOND)
    assert reader.naks() == []
    assert reader.core.counters.lost_sqns == 5


@pytest.mark.rfc("RCV-04", "RCV-10")
def test_unannounced_packets_that_left_the_window_are_lost():
    """The trail alone reveals it."""
    reader = joined()
    reader.hear(spm_packet(2, 1020, 1030))
    assert reader.lost() == dict.fromkeys(range(1010, 1020), L.WINDOW)
    reader.wait(300 * MS)
    assert reader.asked() == set(range(1020, 1031))


@pytest.mark.rfc("RCV-10", "RCV-37", "RCV-40")
def test_unanswered_packets_are_lost():
    """NAKs are counted on the wire."""
    reader = joined(nak_ncf_retries=3, nak_max_ivl=MS)  # an interval that does not grow
    reader.hear(data_train([1012]))
    for number in range(2, 12):
        reader.hear(spm_packet(number, 100, 1012), after=100 * MS)
    assert len(reader.naks()) == 4
    assert reader.lost() == {1010: L.RETRIES, 1011: L.RETRIES}
    assert reader.delivered()[-1] == 1012


@pytest.mark.rfc("RCV-40")
def test_late_data_after_loss_is_not_delivered_twice():
    reader = joined()
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1014], trail=1011))
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA, trail=1011))
    assert reader.lost() == {1010: L.WINDOW}
    assert reader.next_sqn() == 1015


def test_repairs_below_trail_with_keeper_are_requested():
    """Covers design section 3: a repairer's cache outlives the source's window."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=True), nak_ncf_retries=2)
    reader.hear(data_train([1013], trail=100))
    reader.hear(data_train([1014], trail=1012))
    assert reader.lost() == {}
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011, 1012}
    reader.hear(data_train([1010], kind=T.RDATA, trail=1012))
    assert reader.next_sqn() == 1011
    for number in range(2, 12):
        reader.hear(spm_packet(number, 1012, 1014), after=100 * MS)
    assert reader.lost()[1011] is L.WINDOW
    assert reader.next_sqn() == 1015


def test_repairs_below_trail_are_awaited_while_any_come():
    """Covers design section 3: a cache that serves is not given up on, one that has nothing left is."""
    reader = joined(setup=ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=True), nak_ncf_retries=1000)
    reader.hear(data_train([1040], trail=100))
    reader.hear(spm_packet(2, 1040, 1040))
    for sqn in range(1010, 1030):
        reader.hear(data_train([sqn], kind=T.RDATA, trail=1040), after=100 * MS, peer=REPAIRER)
    assert reader.lost() == {}
    for number in range(3, 13):
        reader.hear(spm_packet(number, 1040, 1040), after=300 * MS)
    assert reader.lost() == dict.fromkeys(range(1030, 1040), L.WINDOW)


@pytest.mark.rfc("RCV-40")
def test_nothing_is_lost_while_the_source_is_silent():
    """Covers design section 1: an outage above is no loss, and uses up no retries."""
    reader = joined(nak_ncf_retries=30, peer_expiry=3600 * SECOND, stall_ivl=SECOND, session_expiry=7200 * SECOND)
    reader.hear(data_train([1013]))
    reader.wait(600 * SECOND)
    assert reader.lost() == {}
    assert len(reader.naks()) > 500
    reader.hear(spm_packet(2, 100, 1013))
    reader.wait(500 * MS)
    assert reader.lost() == {}
    reader.hear(data_train([1010, 1011, 1012], kind=T.RDATA))
    assert reader.next_sqn() == 1014


@pytest.mark.rfc("SEC-07")
def test_a_confirmed_jump_is_followed():
    """What lies between is lost, once."""
    reader = joined(rxw_sqns=1000)
    reader.wait(3 * SECOND)
    reader.hear(data_train([5000], trail=4000))
    assert reader.next_sqn() == 1010
    assert reader.core.counters.jumps_rejected == 1
    reader.hear(spm_packet(2, 4000, 5000))
    assert reader.next_sqn() == 1010
    reader.hear(spm_packet(3, 4000, 5002))
    assert reader.lost() == dict.fromkeys(range(1010, 4000), L.JUMP)
    reader.hear(data_train(range(4000, 5003), kind=T.RDATA, trail=4000))
    assert reader.next_sqn() == 5003


@pytest.mark.rfc("SEC-07")
def test_a_jump_whose_window_reaches_back_keeps_what_is_in_it():
    """The trail may lie where we have been; nothing that can be repaired is lost."""
    reader = joined(rxw_sqns=1000, jump_silence_ivl=100 * MS)
    reader.hear(data_train([1015]))
    reader.wait(100 * MS)
    reader.hear(data_train([5000]))
    reader.hear(spm_packet(2, 1012, 5000))
    reader.hear(spm_packet(3, 1012, 5000))
    assert reader.lost() == {1010: L.JUMP, 1011: L.JUMP}
    session = next(iter(reader.core.sessions))
    assert session.recovery.missing.sqns == 5000 - 1012  # all of the window but the packet that is held


# An application that does not keep up


def test_a_slow_application_loses_nothing_within_the_window():
    """Covers design section 3: NAKs and NCFs are handled all the same."""
    reader = slow_reader()
    reader.hear(data_train(range(1050, 1060), size=1376))
    reader.wait(20 * MS)
    assert reader.asked() == {1047, 1048, 1049}
    reader.hear(data_train(range(1047, 1050), size=1376, kind=T.RDATA))
    assert reader.next_sqn() == 1047
    reader.grant(10 * 1400)
    assert 1047 < reader.next_sqn() <= 1060
    while reader.untaken:
        reader.grant()
    assert reader.next_sqn() == 1060
    assert reader.lost() == {}
    reader.core.status(0)
    counters = reader.core.counters
    assert counters.queue_octets == 0
    assert counters.queue_most_octets >= 10 * 1400


def test_a_queue_that_is_exactly_full_goes_on_when_it_is_emptied():
    reader = Reader(takes=False, inbox_bytes=10 * 36)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train(range(1000, 1030)))
    assert reader.untaken == 360
    for delivered in (20, 30):
        reader.grant()
        assert reader.delivered() == list(range(1000, 1000 + delivered))


@pytest.mark.rfc("SEC-01", "RCV-10")
def test_a_session_that_is_evicted_says_all_it_has():
    """Room or not, for nobody will ask again."""
    reader = slow_reader(max_sessions=1)
    reader.hear(data_train(range(1050, 1060), size=1376))
    reader.hear(spm_packet(1, 0, 5, tsi=OTHER_TSI))
    assert reader.closed() is CloseCause.EVICTED
    assert reader.lost() == dict.fromkeys((1047, 1048, 1049), L.SOURCE_GONE)
    assert reader.delivered()[-10:] == list(range(1050, 1060))


def test_a_session_that_expires_waits_for_the_application():
    """Covers design section 3: the queue is bounded at the end too."""
    reader = slow_reader(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.hear(data_train(range(1047, 1060), size=1376))
    full = reader.untaken
    reader.wait(100 * SECOND)
    assert reader.untaken == full
    assert reader.closed() is CloseCause.SILENT
    reader.grant()
    assert reader.closed() is CloseCause.EXPIRED
    assert reader.next_sqn() == 1060


@pytest.mark.rfc("RCV-10")
def test_octets_beyond_the_window_are_an_overrun():
    """Covers design section 3: the oldest goes, and it is said."""
    reader = slow_reader(rxw_bytes=256 * KIB)
    for first in range(1047, 3000, 40):
        reader.hear(data_train(range(first, first + 40), size=1376))
    session = next(iter(reader.core.sessions))
    assert session.window.held_octets <= 256 * KIB
    while reader.untaken:
        reader.grant()
    assert reader.next_sqn() == 3007
    lost = reader.lost()
    assert set(lost.values()) == {L.OVERRUN}
    assert sorted(lost) == list(range(1047, 1047 + len(lost)))
    assert 3007 - 1047 - len(lost) >= 100


def test_a_fast_application_loses_nothing_to_a_small_window():
    """What can be delivered at once does not count against the window, however small that is."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=64 * KIB)
    reader.hear(spm_packet(1, 100, 999))
    for first in range(1000, 2000, 60):
        reader.hear(data_train(range(first, first + 60), size=1376))
    assert reader.lost() == {}
    assert reader.next_sqn() == 2020


def test_a_repaired_gap_lets_all_that_waited_out():
    """The packet that fills the gap may be the one that exceeds the bound."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=256 * KIB, inbox_bytes=64 << 20)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([1000], size=1376))
    for first in (1002, 1047, 1092, 1137):
        reader.hear(data_train(range(first, first + 45), size=1376))
    reader.hear(data_train([1001], size=1376, kind=T.RDATA))
    assert reader.lost() == {}
    assert reader.next_sqn() == 1182


@pytest.mark.rfc("SEC-01", "RCV-10")
def test_octets_that_wait_for_a_gap_are_bounded():
    """The gap is given up, and what waited behind it is delivered."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=256 * KIB)
    reader.hear(spm_packet(1, 100, 999))
    reader.hear(data_train([1000], size=1376))
    most = 0
    for first in range(1005, 2000, 40):
        reader.hear(data_train(range(first, first + 40), size=1376))
        most = max(most, next(iter(reader.core.sessions)).window.held_octets)
    assert most <= 256 * KIB
    assert reader.lost() == dict.fromkeys(range(1001, 1005), L.OVERLOAD)
    assert reader.next_sqn() == 2005


@pytest.mark.rfc("SEC-01", "SEC-03")
@pytest.mark.parametrize("how", ["data", "spm", "ncf"])
def test_gaps_are_bounded_however_they_are_revealed(how):
    """The oldest is given up, at once and in order."""
    reader = joined(rxw_gaps=16)
    for number in range(200):
        sqn = 1011 + 2 * number
        if how == "data":
            reader.hear(data_train([sqn]))
        elif how == "spm":
            reader.hear(spm_packet(2 + number, 100, sqn))
        else:
            reader.hear(ncf_packet(sqn))
        assert len(next(iter(reader.core.sessions)).recovery.missing) <= 16
    assert set(reader.lost().values()) == {L.OVERLOAD}
    assert reader.next_sqn() > 1300


@pytest.mark.rfc("SEC-01", "SEC-03")
def test_gaps_of_full_table_are_requested_within_the_bound():
    """Where nothing else makes a place for a part, one gap is lost, and said to be; the others are repaired."""
    reader = joined(rxw_gaps=16, nak_max_outstanding=63)
    first = reader.next_sqn()
    ends = [first + 200 * number for number in range(1, 17)]
    reader.hear(data_train([end - 1 for end in ends], trail=100))
    [session] = reader.core.sessions
    assert len(session.recovery.missing) == 16
    seen = len(reader.naks(first))
    while reader.next_sqn() < ends[-1]:
        reader.wait(10 * MS)
        assert len(session.recovery.missing) <= 16
        naks = reader.naks(first)
        for sqns in naks[seen:]:
            reader.hear(ncf_packet(*sqns))
            reader.hear(data_train(sqns, trail=100, kind=T.RDATA))
            assert len(session.recovery.missing) <= 16
        seen = len(naks)
    assert reader.lost() == dict.fromkeys(range(ends[0], ends[1] - 1), L.OVERLOAD)


@pytest.mark.rfc("SEC-01")
def test_octets_that_wait_for_the_first_spm_are_bounded():
    """Data may come at full rate before anything is known of the path."""
    reader = Reader(payload=lambda sqn: payload_of(sqn, 1376), rxw_bytes=64 * KIB, open_hold_ivl=SECOND)
    for first in range(1000, 1400, 40):
        reader.hear(data_train(range(first + 1, first + 40), size=1376))
        session = next(iter(reader.core.sessions))
        assert session.window.held_octets <= 64 * KIB
    reader.wait(SECOND)
    reader.hear(spm_packet(1, 1400, 1399))
    assert reader.next_sqn() == 1400
    assert reader.delivered()[-39:] == list(range(1361, 1400))
    assert set(reader.lost().values()) <= {L.OVERLOAD, L.OVERRUN, L.WINDOW}


@pytest.mark.rfc("SEC-01")
def test_account_of_a_stalled_application_is_bounded():
    """Losses of all kinds, one after the other, while nothing can be told."""
    reader = slow_reader(rxw_bytes=64 * KIB, rxw_gaps=16)
    for number in range(1000):
        first = 1050 + number * 4
        reader.hear(data_train([first, first + 1], size=1376, trail=first - 1 if number % 3 else 100))
    session = next(iter(reader.core.sessions))
    spans = sum(isinstance(one, LostSpan) for one in kept_by(session.window))
    assert spans <= 16 + 64 * KIB // 1400, "those of `rxw_gaps`, and one a held packet"
    end = 1050 + 999 * 4 + 2
    reader.hear(spm_packet(2, end, end - 1))
    while reader.untaken:
        reader.grant()
    assert sorted(reader.fates[TSI]) == list(range(1000, end))
