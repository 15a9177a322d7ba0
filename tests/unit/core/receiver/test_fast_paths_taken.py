"""The short ways into a receive window are taken: otherwise the tests that compare them with the long ones would compare those with themselves."""

from __future__ import annotations

import pytest

from pgm.core.effects import LossCause
from pgm.core.receiver.data_path import ShortReceive
from pgm.core.window.receive_window import ReceiveWindow
from pgm.wire.formats import PacketType
from tests.reference import TSI, data_packet
from tests.unit.core.makers import data_train
from tests.unit.core.reader import Reader, joined
from tests.unit.core.receiver.test_receiver_model import Network, payload


def answers_of(monkeypatch, name, reader, trains):
    """What a short way of the receive window says to trains of so many packets, of which those of a mask are lost."""
    taken = []
    short = getattr(ReceiveWindow, name)
    monkeypatch.setattr(ReceiveWindow, name, lambda *what: taken.append(short(*what)) or taken[-1])
    network = Network(reader, 0, has_epoch=True, joins=True)
    reader.hear(network.spm())
    for count, lost in trains:
        network.send(count)
        network.leave(0, lost, again=False)
    return taken


def test_a_whole_train_in_order_takes_the_short_way(monkeypatch):
    """Of one size, and each next in order."""
    taken = answers_of(monkeypatch, "pass_on", Reader(), [(5, 0), (1, 0), (9, 0)])
    assert [deliver.run.count for deliver in taken] == [5, 1, 9]


def test_data_after_gap_takes_fast_path(monkeypatch):
    """A train of which nothing is missing."""
    reader = Reader()
    taken = answers_of(monkeypatch, "hold_on", reader, [(5, 0), (5, 0b1), (5, 0), (5, 0)])
    assert taken == [[], [], []], "also the first one behind a gap"
    assert reader.core.counters.missing_sqns == 1


@pytest.mark.parametrize("way", ["hold_on", "take_behind"])
def test_data_with_slow_application_takes_fast_path(monkeypatch, way):
    """What is next in order waits for room alone: as much as there is room for is delivered, and the rest is held."""
    octets = len(data_packet(0, payload(0)))
    reader = Reader(takes=False, inbox_bytes=5 * octets)
    lost = 0b1000 if way == "take_behind" else 0
    taken = answers_of(monkeypatch, way, reader, [(3, 0), (6, lost), (6, lost)])
    assert [[deliver.run.count for deliver in found] for found in taken] == [[2], []]
    assert reader.next_sqn() == 5
    reader.grant()
    assert reader.next_sqn() == (6 if lost else 10), "the first hole, or as much as there is room for"


def test_trail_without_missing_packets_keeps_fast_path(monkeypatch):
    """An application that is far behind has what the source has no more; what is missing there is given up."""
    taken = []
    short = ShortReceive.take_scattered
    monkeypatch.setattr(ShortReceive, "take_scattered", lambda *what: taken.append(short(*what)) or taken[-1])
    reader = joined(takes=False, inbox_bytes=10 * len(data_packet(0, payload(0))))
    first = reader.next_sqn()
    reader.hear(data_train(range(first, first + 9), trail=first))
    for trail, begin in ((first + 5, first + 10), (first + 9, first + 20), (first + 12, first + 30)):
        reader.hear(data_train([begin, begin + 2], trail=trail))
    assert [found is None for found in taken] == [False, False, True]
    reader.grant(1 << 20)
    fates = [reader.fates[TSI][sqn] for sqn in range(first + 8, first + 13)]
    assert fates == [payload(first + 8), LossCause.WINDOW, payload(first + 10), LossCause.WINDOW, payload(first + 12)]


def test_a_train_with_holes_takes_the_short_way(monkeypatch):
    """Whether the first hole is in it or one before it, and whether it begins with what comes next."""
    reader = Reader()
    trains = [(5, 0), (6, 0b10), (6, 0b10100), (6, 0b1001)]
    taken = answers_of(monkeypatch, "take_behind", reader, trains)
    assert [[deliver.run.count for deliver in found] for found in taken] == [[1], [], []]
    assert reader.core.counters.missing_sqns == 5
    assert reader.core.counters.received_packets == 5 + 5 + 4 + 4


def test_repairs_for_holes_take_the_short_way(monkeypatch):
    """Some of them came already."""
    filled = []
    short = ReceiveWindow.fill
    monkeypatch.setattr(ReceiveWindow, "fill", lambda *what: filled.append(short(*what)) or filled[-1])
    reader = joined()
    reader.hear(data_train([1010, 1012, 1014, 1015, 1018, 1019], trail=100))
    reader.hear(data_train([1013], kind=PacketType.RDATA, trail=100))
    reader.hear(data_train([1011, 1013, 1014, 1016, 1017], kind=PacketType.RDATA, trail=100))
    assert filled == [3]
    assert reader.delivered()[-10:] == list(range(1010, 1020))
    assert (reader.core.counters.repaired_sqns, reader.core.counters.duplicate_packets) == (4, 2)


def test_repairs_that_follow_each_other_take_the_short_way(monkeypatch):
    """Whether they are next in order, or some of them came already; not where they reach further than what is known."""
    taken = []
    short = ReceiveWindow.repair
    monkeypatch.setattr(ReceiveWindow, "repair", lambda *what: taken.append(short(*what)) or taken[-1])
    reader = joined()
    reader.hear(data_train([1010, *range(1020, 1024), 1030], trail=100))
    for sqns in (range(1011, 1015), range(1017, 1019), range(1015, 1019), range(1019, 1026), range(1028, 1032)):
        reader.hear(data_train(sqns, kind=PacketType.RDATA, trail=100))
    assert [found and found[1] for found in taken] == [4, 2, 2, 3, None]
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
        assert session.missing_ranges <= 16
    assert reader.core.counters.repaired_sqns == 200
