"""The short ways through the cores do what the long ones do: a message that goes out alone, and what comes next in order."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import alone
from pgm.core.receive_window import ReceiveWindow
from pgm.core.session import ReceiverSetup
from pgm.core.source import SourceSetup
from pgm.units import SECOND
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, REPAIRER, SEGMENT
from tests.unit.core.reader import Reader
from tests.unit.core.sources import QUIET, START, nak, octets_of, receive, source
from tests.unit.core.test_receiver_model import Network, happen, payload, steps


def sent_the_long_way(core, message, now):
    core.submit([message])
    effects = []
    while core.window.has_unsent and core.deadline_ns <= now:
        effects += core.handle_deadline(now)
    return effects


def sent_the_short_way(core, message, now):
    packet = core.send_alone(message, now)
    return sent_the_long_way(core, message, now) if packet is None else [alone(SEGMENT, packet)]


def but_for_the_trail(octets):
    """The short way makes room first: a packet that pushes others out of a full window may already say so."""
    octets = bytes(octets)
    return octets[:6], octets[8:20], octets[24:]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 100, 100, 101, 1448, 1449, 3000]), min_size=1, max_size=60),
    mode=st.sampled_from(["time", "data"]),
    mark_ends=st.booleans(),
    txw_sqns=st.sampled_from([0, 7]),
    first=st.sampled_from([0, (1 << 32) - 5]),
    fec=st.sampled_from([0, 4]),
    seed=st.integers(0, 1 << 30),
)
def test_a_message_sent_alone_is_sent_as_any_other(sizes, mode, mark_ends, txw_sqns, first, fec, seed):
    """Also while repairs are owed, the window is full, the rate says wait, or SPMs and parity have their turn."""
    rng = random.Random(seed)
    changes = {"txw_max_rte": 20_000_000, "txw_adv_mode": mode, "mark_ends": mark_ends, "txw_secs": SECOND}
    changes |= {"txw_sqns": txw_sqns, "rdata_hold_ivl": 0, "fec_group": fec, "fec_proactive": 1 if fec else 0}
    changes |= {"txw_adv_secs": 100 * MS}
    cores = short, long = source(first, **changes), source(first, **changes)
    now = START
    for size in sizes:
        message = rng.randbytes(size)
        now += rng.choice([0, 0, MS, 20 * MS, 700 * MS])
        for core in cores:
            if core.deadline_ns <= now and not core.window.has_unsent:
                core.handle_deadline(now)
        if rng.random() < 0.2 and long.window.lead >= first:
            for core in cores:
                receive(core, nak(long.window.lead), now)
        said = [
            [
                (octets_of(one), but_for_the_trail(one.octets), one.stride, one.to, one.is_data)
                for one in send(core, message, now)
            ]
            for send, core in ((sent_the_short_way, short), (sent_the_long_way, long))
        ]
        data = [[one for one in each if one[-1]] for each in said]
        assert data[0] == data[1]
        assert short.status(now) == long.status(now)
        assert attrs.asdict(short.counters) == attrs.asdict(long.counters)
        assert short.deadline_ns == long.deadline_ns


def test_the_short_way_is_taken():
    """A first message, where it marks no beginning, and all that follow within the rate."""
    core = source(txw_max_rte=1_000_000_000, **QUIET)
    core.handle_deadline(START)
    for number in range(10):
        packet = core.send_alone(bytes(100), START + number * MS)
        assert packet is not None
        assert len(packet) == 124
    assert (core.window.lead, core.window.end, core.counters.odata_packets) == (9, 10, 10)
    assert core.send_alone(bytes(70_000), START + SECOND) is None
    assert core.send_alone(memoryview(bytes(100)), START + SECOND) is None
    assert core.window.end == 10


def test_an_acknowledged_stream_takes_the_long_way():
    """Its members' acks decide what may leave."""
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=1, flow="acked")
    core = type(source())(setup, source()._parameters, START)
    core.handle_deadline(START)
    assert core.send_alone(bytes(100), START + MS) is None


@given(
    history=st.lists(steps, min_size=20, max_size=80),
    first=st.sampled_from([0, 1000, (1 << 32) - 9]),
    has_epoch=st.booleans(),
    takes=st.booleans(),
    small=st.booleans(),
)
def test_what_comes_in_order_is_delivered_as_anything_else(history, first, has_epoch, takes, small):
    limits = {"rxw_bytes": 1200, "rxw_gaps": 4, "inbox_bytes": 400} if small else {}
    told = []
    for is_short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_short:
                patch.setattr(ReceiveWindow, "pass_on", lambda *_: None)
            reader = Reader(ReceiverSetup(SEGMENT, parents=(REPAIRER,)), payload=payload, takes=takes, **limits)
            network = Network(reader, first, has_epoch=has_epoch, joins=True)
            reader.hear(network.spm())
            for what, one, other in history:
                happen(network, what, one, other)
            sent = [(now, bytes(send.octets), send.to) for now, send in reader.sent]
            status = reader.core.status(reader.now)
            told.append((reader.fates, reader.marks, sent, reader.untaken, status, attrs.asdict(reader.core.counters)))
    assert told[0] == told[1]


def test_a_whole_train_in_order_takes_the_short_way(monkeypatch):
    """Otherwise the test above would compare the long way with itself."""
    taken = []
    passed = ReceiveWindow.pass_on
    monkeypatch.setattr(ReceiveWindow, "pass_on", lambda *what: taken.append(passed(*what)) or taken[-1])
    reader = Reader()
    network = Network(reader, 0, has_epoch=True, joins=True)
    reader.hear(network.spm())
    for count in (5, 1, 9):
        network.send(count)
        network.leave(0, 0, again=False)
    assert [deliver.run.count for deliver in taken] == [5, 1, 9]
