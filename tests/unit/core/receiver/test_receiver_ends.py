"""How sessions of the receiver core end: silence, expiry, FIN, reset, eviction."""

from __future__ import annotations

import pytest

from pgm.core.effects import CloseCause, Closed, LossCause, Send
from pgm.core.receiver.setup import ReceiverSetup
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, Join, Rst
from tests.reference import DATA_PORT, OTHER_TSI, TSI
from tests.unit.core.makers import (
    MS,
    PARENT,
    REPAIRER,
    SEGMENT,
    data_train,
    ncf_packet,
    payload_of,
    sent_control,
    spm_packet,
)
from tests.unit.core.reader import Reader, joined, slow_reader

T = PacketType
STRANGER = "10.0.0.66"
L = LossCause
CONFIRM = Parameters().end_confirm_ivl


def test_silence_is_reported_and_so_is_the_end_of_it():
    """Covers design section 1: visible."""
    reader = joined(peer_expiry=10 * SECOND)
    heard_at = reader.now
    reader.wait(10 * SECOND - 1)
    assert reader.closed() is None
    reader.wait(1)
    assert reader.closed() is CloseCause.SILENT
    assert reader.now == heard_at + 10 * SECOND
    reader.hear(data_train([1010]), after=SECOND)
    assert reader.opened() == [(1000, False), (1010, True)]
    assert reader.next_sqn() == 1011
    reader.wait(10 * SECOND)
    reader.hear(spm_packet(2, 100, 1012))
    assert reader.opened() == [(1000, False), (1010, True), (1011, True)]


@pytest.mark.parametrize("is_last", [True, False])
def test_sqns_announced_before_first_data_are_reported_lost(is_last):
    """The data overtaken by that SPM began the session, and nobody tells again of what came after it."""
    reader = Reader(peer_expiry=10 * SECOND, session_expiry=60 * SECOND, nak_ncf_retries=3)
    reader.hear(spm_packet(1, 1000, 1009, *[Fin()] * is_last))
    reader.hear(data_train([1005, 1006], trail=1000))
    reader.wait(60 * SECOND)
    assert reader.naks()[0] == [1007, 1008, 1009]
    assert reader.delivered() == [1005, 1006]
    assert list(reader.lost()) == [1007, 1008, 1009]
    assert reader.closed() is (CloseCause.UNPROVEN if is_last else CloseCause.EXPIRED)


@pytest.mark.rfc("RCV-10")
def test_a_session_that_stays_silent_expires():
    """What is missing is lost with it, and said before the end."""
    reader = joined(peer_expiry=10 * SECOND, session_expiry=60 * SECOND, nak_ncf_retries=1000)
    reader.hear(data_train([1012]))
    reader.wait(60 * SECOND)
    assert reader.closed() is CloseCause.EXPIRED
    assert reader.lost() == {1010: L.SOURCE_GONE, 1011: L.SOURCE_GONE}
    assert reader.next_sqn() == 1013
    assert len(reader.core.sessions) == 0
    assert reader.core.deadline_ns == NEVER
    assert reader.core.counters.sessions_expired == 1


def test_ncfs_of_a_cache_do_not_delay_the_end_of_the_session():
    """A cache confirms NAKs without a source. Its NCFs still count as answers of a parent, also in silence."""
    reader = Reader(
        ReceiverSetup(SEGMENT, parents=(REPAIRER, PARENT)),
        peer_expiry=10 * SECOND,
        session_expiry=60 * SECOND,
        stall_ivl=SECOND,
        nak_data_retries=20,
    )
    reader.hear(spm_packet(1, 100, 1009, path_nla=PARENT), peer=PARENT)
    reader.hear(data_train([1009, 1011]))
    heard_at, answered = reader.now, 0
    while reader.closed() is not CloseCause.EXPIRED and reader.now < heard_at + 90 * SECOND:
        reader.wait(10 * MS)
        if len(reader.naks()) > answered:
            answered = len(reader.naks())
            reader.hear(ncf_packet(1010), peer=REPAIRER)
        assert (reader.closed() is not None) == (reader.now >= heard_at + 10 * SECOND)
    assert reader.now == heard_at + 60 * SECOND
    assert reader.lost() == {1010: L.SOURCE_GONE}
    assert (reader.core.counters.parent_changes, answered > 20) == (0, True)


def test_a_source_that_comes_back_after_expiry_is_a_new_session():
    reader = joined(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.wait(100 * SECOND)
    reader.hear(spm_packet(5, 100, 1100))
    reader.hear(data_train([1101], trail=100))
    assert reader.opened() == [(1000, False), (1101, False)]


@pytest.mark.rfc("RCV-10")
@pytest.mark.parametrize("is_dawdling", [False, True])
def test_returning_source_with_slow_application_is_followed_again(is_dawdling):
    """An expired session that is still being delivered must not swallow the stream for ever."""
    reader = slow_reader(peer_expiry=10 * SECOND, session_expiry=60 * SECOND)
    reader.hear(data_train(range(1047, 1060), size=1376))
    reader.wait(100 * SECOND)
    for number in range(2, 100):
        reader.hear(spm_packet(number, 100, 1099), after=SECOND)
        if number == (50 if is_dawdling else 2):
            while reader.untaken:
                reader.grant()
    assert reader.closed() is CloseCause.EXPIRED
    reader.takes = True
    reader.hear(data_train(range(1100, 1110), size=1376))
    assert reader.opened()[-1] == (1100, False)
    assert reader.next_sqn() == 1110


@pytest.mark.rfc("RCV-25")
def test_fin_closes_when_all_is_delivered():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    reader.wait(CONFIRM - 1)
    assert reader.closed() is None
    reader.wait(1)
    assert reader.closed() is CloseCause.FIN
    assert reader.next_sqn() == 1010


@pytest.mark.rfc("RCV-25", "RCV-30")
def test_fin_reveals_the_tail_and_waits_for_it():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1012, Fin()))
    assert reader.closed() is None
    reader.wait(300 * MS)
    assert reader.asked() == {1010, 1011, 1012}
    reader.hear(data_train([1010, 1012], kind=T.RDATA))
    assert reader.closed() is None
    reader.hear(data_train([1011], kind=T.RDATA))
    reader.wait(CONFIRM)
    assert reader.closed() is CloseCause.FIN


ENDS = [Fin(), Rst(), Rst(no_naks=True, error=1)]


@pytest.mark.rfc("RCV-25", "RCV-26")
@pytest.mark.parametrize("mark", ENDS)
@pytest.mark.parametrize("kind", ["data", "spm"])
def test_a_false_end_is_void_when_the_source_goes_on(mark, kind):
    """Its SPM_SQN is far ahead. Data behind the end, or the source's next SPM, contradict it."""
    reader = joined()
    reader.hear(data_train([1011]))
    reader.hear(spm_packet(5000, 100, 1011, mark), peer=STRANGER)
    reader.wait(CONFIRM // 2)
    reader.hear(data_train([1012]) if kind == "data" else spm_packet(2, 100, 1011))
    reader.hear(data_train([1010], kind=T.RDATA))
    reader.wait(5 * CONFIRM)
    assert reader.closed() is None
    assert reader.lost() == {}
    assert reader.core.counters.ends_refuted == 1
    reader.hear(data_train(range(1012, 1020)))
    assert reader.next_sqn() == 1020


@pytest.mark.rfc("RCV-25", "RCV-26")
@pytest.mark.parametrize("mark", ENDS)
def test_an_end_before_the_newest_data_is_false(mark):
    """The source would not have sent the data behind it."""
    reader = joined()
    reader.hear(spm_packet(2, 100, 1008, mark), peer=STRANGER)
    reader.wait(5 * CONFIRM)
    assert reader.closed() is None
    assert reader.core.counters.ends_refuted == 1


@pytest.mark.rfc("RCV-25", "SPMR-01")
def test_a_receiver_asks_an_idle_source_whether_its_end_is_true():
    """A source in silence has nothing else to say, and its answer has no FIN."""
    reader = joined()
    reader.hear(spm_packet(5000, 100, 1009, Fin()), peer=STRANGER)
    reader.wait(CONFIRM - 1)
    assert (
        len(sent_control([send for _, send in reader.sent], T.SPMR)) == 2
    )  # to the group and to the sender of the data
    reader.hear(spm_packet(2, 100, 1009))
    reader.wait(5 * CONFIRM)
    assert reader.closed() is None


@pytest.mark.rfc("RCV-25", "RCV-26")
@pytest.mark.parametrize("mark", ENDS)
def test_a_session_goes_on_when_data_come_from_behind_its_end(mark):
    """In an outage nothing contradicts a false end. The stream continues at the sqn where it stopped."""
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, mark), peer=STRANGER)
    reader.wait(10 * CONFIRM)
    assert reader.closed() in (CloseCause.FIN, CloseCause.RESET)
    reader.hear(data_train([1009]))
    assert len(reader.opened()) == 1
    reader.hear(data_train([1010, 1011]))
    assert reader.opened()[-1] == (1010, False)
    assert reader.next_sqn() == 1012
    assert reader.lost() == {}


@pytest.mark.rfc("RCV-10", "RCV-25")
def test_fin_whose_tail_is_lost():
    reader = joined(nak_ncf_retries=1)
    for number in range(2, 12):
        reader.hear(spm_packet(number, 100, 1012, Fin()), after=50 * MS)
    assert reader.lost() == dict.fromkeys((1010, 1011, 1012), L.RETRIES)
    reader.wait(CONFIRM)
    assert reader.closed() is CloseCause.UNPROVEN


@pytest.mark.rfc("RCV-10", "RCV-25")
def test_a_source_that_said_fin_and_is_silent_has_gone():
    """It is no outage: what is missing is lost after peer_expiry, however many retries are left."""
    reader = joined(peer_expiry=10 * SECOND, session_expiry=60 * SECOND, nak_ncf_retries=1000)
    reader.hear(spm_packet(2, 100, 1012, Fin()))
    reader.hear(data_train([1012]))
    reader.wait(10 * SECOND - 1)
    assert (reader.closed(), reader.lost()) == (None, {})
    reader.wait(1)
    assert reader.lost() == dict.fromkeys((1010, 1011), L.SOURCE_GONE)
    assert reader.closed() is CloseCause.FIN
    assert reader.next_sqn() == 1013


@pytest.mark.rfc("RCV-10")
def test_aborted_source_that_falls_silent_has_not_ended_stream():
    reader = joined(peer_expiry=10 * SECOND, nak_ncf_retries=1000)
    reader.hear(data_train([1012]))
    reader.hear(spm_packet(2, 100, 1012, Rst(error=5)))
    reader.wait(10 * SECOND)
    assert reader.lost() == dict.fromkeys((1010, 1011), L.SOURCE_GONE)
    assert reader.closed() is CloseCause.RESET


@pytest.mark.rfc("SRC-28")
def test_fin_on_data():
    reader = joined()
    reader.hear(data_train([1011, 1012], options=(Fin(),)))
    assert reader.closed() is None
    reader.hear(data_train([1010]))
    reader.wait(CONFIRM)
    assert reader.closed() is CloseCause.FIN
    assert reader.next_sqn() == 1013


def test_a_closed_session_says_nothing_more():
    reader = joined()
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    reader.wait(CONFIRM)
    marks = list(reader.marks)
    for number in range(3, 20):
        reader.hear(spm_packet(number, 100, 1009, Fin()), after=SECOND)
        reader.hear(data_train([1009], kind=T.RDATA))
    assert reader.marks == marks
    reader.wait(300 * SECOND)
    assert reader.marks == marks
    assert len(reader.core.sessions) == 0


@pytest.mark.rfc("RCV-25")
def test_a_closed_session_is_remembered_while_its_source_is_heard():
    """FIN is said many times, and other sessions go on meanwhile."""
    reader = joined(session_expiry=20 * SECOND)
    reader.hear(spm_packet(2, 100, 1009, Fin()))
    reader.wait(CONFIRM)
    marks = len(reader.marks)
    for number in range(100):
        reader.hear(data_train([5 + 2 * number], tsi=OTHER_TSI), after=SECOND)
        reader.hear(spm_packet(1 + number, 0, 6 + 2 * number, tsi=OTHER_TSI))
        reader.hear(spm_packet(3 + number, 100, 1009, Fin()))
    assert [mark for mark in reader.marks[marks:] if mark.tsi == TSI] == []


def test_a_receiver_that_only_hears_the_fin():
    """It was there, and there was nothing more to hear."""
    reader = Reader()
    reader.hear(spm_packet(9, 100, 199, Join(200), Fin()))
    assert reader.opened() == [(200, False)]
    reader.wait(CONFIRM)
    assert reader.closed() is CloseCause.FIN


@pytest.mark.rfc("RCV-26")
def test_reset_without_naks_gives_up_when_it_is_believed():
    """With N set nothing more is asked for."""
    reader = joined()
    reader.hear(data_train([1012]))
    reader.hear(spm_packet(2, 100, 1012, Rst(no_naks=True, error=1)))
    reader.wait(CONFIRM)
    assert reader.lost() == dict.fromkeys((1010, 1011), L.SOURCE_GONE)
    assert reader.closed() is CloseCause.RESET
    naks = len(reader.naks())
    reader.wait(SECOND)
    assert len(reader.naks()) == naks


@pytest.mark.rfc("RCV-26")
def test_reset_with_naks_recovers_what_it_can():
    reader = joined()
    reader.hear(data_train([1012]))
    reader.hear(spm_packet(2, 100, 1012, Rst()))
    reader.wait(20 * MS)
    assert reader.asked() == {1010, 1011}
    assert reader.closed() is None
    reader.hear(data_train([1010, 1011], kind=T.RDATA))
    reader.wait(CONFIRM)
    assert reader.closed() is CloseCause.RESET


@pytest.mark.rfc("SEC-01")
def test_sessions_are_bounded():
    """The 65th evicts the one that was silent for longest, with all it holds."""
    reader = Reader(max_sessions=64)
    tsis = [bytes([number]) * 8 for number in range(65)]
    for tsi in tsis[:64]:
        reader.hear(data_train([5], tsi=tsi), after=MS)
        reader.hear(spm_packet(1, 0, 5, tsi=tsi))
        reader.hear(data_train([7], tsi=tsi))
    reader.hear(data_train([8], tsi=tsis[0]), after=MS)
    assert reader.marks[-1].tsi == tsis[63]
    reader.hear(data_train([5], tsi=tsis[64]), after=MS)
    assert len(reader.core.sessions) == 64
    assert reader.closed(tsis[1]) is CloseCause.EVICTED
    assert reader.fates[tsis[1]] == {5: payload_of(5), 6: L.SOURCE_GONE, 7: payload_of(7)}
    assert reader.core.counters.sessions_evicted == 1
    assert all(reader.closed(tsi) is None for tsi in (tsis[0], *tsis[2:]))


def test_an_ended_session_goes_before_a_living_one():
    reader = Reader(max_sessions=2)
    reader.hear(spm_packet(1, 0, 5, Join(6)))
    reader.hear(spm_packet(1, 0, 5, Join(6), Fin(), tsi=OTHER_TSI), after=SECOND)
    reader.hear(spm_packet(1, 0, 5, Join(6), tsi=b"3" * 8), after=SECOND)
    assert reader.closed() is None
    assert reader.core.counters.sessions_evicted == 0


def test_late_deadline_with_the_end_and_a_loss_behind_it_closes_once():
    """An NCF reveals a packet behind a FIN; the end and the loss are due at one late deadline of an unreliable stream."""
    port = frozenset({DATA_PORT})
    reader = Reader(ReceiverSetup(SEGMENT, unordered_ports=port, unreliable_ports=port))
    reader.hear(spm_packet(1, 1000, 999))
    reader.hear(data_train(range(1000, 1004), trail=1000))
    reader.hear(ncf_packet(1004))
    reader.hear(spm_packet(2, 1000, 1003, Fin()))
    reader.now += 10 * SECOND
    effects = reader.core.handle_deadline(reader.now)
    assert [type(effect) for effect in effects if not isinstance(effect, Send)] == [Closed]
