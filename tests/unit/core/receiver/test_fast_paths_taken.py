"""The receive window takes the packets of one read at once: in order, beyond a gap, with gaps, and as repairs."""

from __future__ import annotations

import pytest

from pgm.core.effects import LossCause
from pgm.wire.formats import PacketType
from tests.reference import TSI, data_packet
from tests.unit.core.makers import data_train
from tests.unit.core.reader import Reader, joined
from tests.unit.core.receiver.test_receiver_model import Network, payload


def runs_of(reader, trains):
    """Return the runs delivered for each train of `count` packets, of which those of a mask are lost."""
    network = Network(reader, 0, has_epoch=True, joins=True)
    reader.hear(network.spm())
    told = []
    for count, lost in trains:
        before = len(reader.runs)
        network.send(count)
        network.leave(0, lost, again=False)
        told.append(reader.runs[before:])
    return told


def test_window_train_in_order_is_one_delivery():
    assert runs_of(Reader(), [(5, 0), (1, 0), (9, 0)]) == [[5], [1], [9]]


def test_window_train_beyond_a_gap_is_held():
    reader = Reader()
    assert runs_of(reader, [(5, 0), (5, 0b1), (5, 0), (5, 0)]) == [[5], [], [], []]
    assert reader.core.counters.missing_sqns == 1


@pytest.mark.parametrize("lost", [0, 0b1000])
def test_window_with_slow_application_delivers_what_has_room(lost):
    """The rest waits for room alone."""
    octets = len(data_packet(0, payload(0)))
    reader = Reader(takes=False, inbox_bytes=5 * octets)
    assert runs_of(reader, [(3, 0), (6, lost), (6, lost)]) == [[3], [2], []]
    assert reader.next_sqn() == 5
    reader.grant()
    assert reader.next_sqn() == (6 if lost else 10), "the first hole, or as much as there is room for"


def test_trail_beyond_missing_packets_gives_them_up():
    """An application that is far behind gets packets that the source no longer has."""
    reader = joined(takes=False, inbox_bytes=10 * len(data_packet(0, payload(0))))
    first = reader.next_sqn()
    reader.hear(data_train(range(first, first + 9), trail=first))
    for trail, begin in ((first + 5, first + 10), (first + 9, first + 20), (first + 12, first + 30)):
        reader.hear(data_train([begin, begin + 2], trail=trail))
    reader.grant(1 << 20)
    fates = [reader.fates[TSI][sqn] for sqn in range(first + 8, first + 13)]
    assert fates == [payload(first + 8), LossCause.WINDOW, payload(first + 10), LossCause.WINDOW, payload(first + 12)]


def test_window_train_with_gaps_is_delivered_up_to_the_first():
    reader = Reader()
    assert runs_of(reader, [(5, 0), (6, 0b10), (6, 0b10100), (6, 0b1001)]) == [[5], [1], [], []]
    assert reader.core.counters.missing_sqns == 5
    assert reader.core.counters.received_packets == 5 + 5 + 4 + 4


def test_window_repairs_with_gaps_fill_holes_once():
    """Some of the repairs came before."""
    reader = joined()
    reader.hear(data_train([1010, 1012, 1014, 1015, 1018, 1019], trail=100))
    reader.hear(data_train([1013], kind=PacketType.RDATA, trail=100))
    reader.hear(data_train([1011, 1013, 1014, 1016, 1017], kind=PacketType.RDATA, trail=100))
    assert reader.delivered()[-10:] == list(range(1010, 1020))
    assert (reader.core.counters.repaired_sqns, reader.core.counters.duplicate_packets) == (4, 2)


def test_window_repairs_in_order_fill_gaps_once():
    """Some of the repairs came before, and some reach beyond all known sqns."""
    reader = joined()
    reader.hear(data_train([1010, *range(1020, 1024), 1030], trail=100))
    for sqns in (range(1011, 1015), range(1017, 1019), range(1015, 1019), range(1019, 1026), range(1028, 1032)):
        reader.hear(data_train(sqns, kind=PacketType.RDATA, trail=100))
    assert reader.delivered()[-16:] == list(range(1010, 1026))
    assert (reader.core.counters.repaired_sqns, reader.core.counters.duplicate_packets) == (13, 7)


def test_repairs_of_alternate_packets_keep_the_range_bound():
    """Each cuts what is missing in two, and nothing but the bound ends that."""
    reader = joined(rxw_gaps=16)
    reader.hear(data_train([3000], trail=100))
    [session] = reader.core.sessions
    first = session.window.next_sqn
    for begin in range(first + 1, first + 401, 100):
        reader.hear(data_train(range(begin, begin + 100, 2), kind=PacketType.RDATA, trail=100))
        assert len(session.recovery.missing) <= 16
    assert reader.core.counters.repaired_sqns == 200
