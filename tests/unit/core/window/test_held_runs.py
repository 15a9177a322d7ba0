"""Room in memory for what is missing: a receiver that has it tells its application the same as one that has not."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pgm.core.effects import CloseCause, Deliver
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.window import receive_window
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Train
from tests.reference import TSI
from tests.unit.core.makers import MS, REPAIRER, SEGMENT, data_train, spm_packet
from tests.unit.core.reader import Reader
from tests.unit.core.receiver.test_receiver_model import Network, happen, payload, steps

ROOM = 4096
CANARY = 0xA5


def in_a_chunk(train: Train, *, has_room: bool) -> Train:
    """The same packets somewhere in a chunk, as a link reads them."""
    chunk = np.full(ROOM, CANARY, np.uint8)
    chunk[64 : 64 + train.length] = train.buffer[train.offset : train.offset + train.length]
    found = Train(chunk, 64, train.length, train.stride)
    if has_room:
        found.has_room_behind()
    return found


class Keeping(Reader):
    """An application that looks again at what it got: nobody may have written to it since. Trains come in chunks."""

    def __init__(self, *args, has_room, **more):
        super().__init__(*args, **more)
        self.has_room = has_room
        self.given = []
        self.heard = []

    def hear(self, what, **more):
        if isinstance(what, Train):
            what = in_a_chunk(what, has_room=self.has_room)
            self.heard.append(what)
        return super().hear(what, **more)

    def _take(self, effects):
        effects = list(effects)
        self.given += [(one.run, one.run.rows.tobytes()) for one in effects if isinstance(one, Deliver)]
        return super()._take(effects)

    def look_again(self):
        for run, octets in self.given:
            assert run.rows.tobytes() == octets
        for train in self.heard:
            assert (train.buffer[:64] == CANARY).all()
            assert (train.buffer[64 + train.octets_to_keep :] == CANARY).all()


@pytest.fixture(autouse=True)
def much_room(monkeypatch):
    """For as many packets as came, so that short trains have some."""
    monkeypatch.setattr(receive_window, "_ROOM_SHARE", 1)


bursts = st.one_of(
    steps,
    steps,
    st.tuples(st.just("send"), st.integers(4, 30), st.just(0)),
    st.tuples(st.just("arrive"), st.just(0), st.sampled_from([0x02, 0x14, 0x44, 0x22, 0x7E, 0xAA])),
    st.tuples(st.just("answer"), st.integers(1, 4), st.just(0)),
)


@given(
    history=st.lists(bursts, min_size=20, max_size=100),
    first=st.sampled_from([0, 1000, (1 << 32) - 40]),
    has_epoch=st.booleans(),
    takes=st.booleans(),
    below_trail=st.booleans(),
    inbox=st.sampled_from([400, 1 << 20]),
)
@settings(max_examples=settings.default.max_examples * 3)
def test_room_for_what_is_missing_changes_nothing_but_memory(history, first, has_epoch, takes, below_trail, inbox):
    told, grown = [], 0
    for has_room in (True, False):
        reader = Keeping(
            ReceiverSetup(SEGMENT, parents=(REPAIRER,), asks_below_trail=below_trail),
            payload=payload,
            takes=takes,
            has_room=has_room,
            nak_ncf_retries=5,
            nak_data_retries=5,
            inbox_bytes=inbox,
        )
        network = Network(reader, first, has_epoch=has_epoch, joins=True)
        reader.hear(network.spm())
        for what, one, other in history:
            happen(network, what, one, other)
        reader.look_again()
        grown += sum(train.keeping.grown for train in reader.heard)
        sent = [(now, bytes(send.octets), send.to) for now, send in reader.sent]
        status = [attrs.evolve(one, held_octets=0) for one in reader.core.status(reader.now)]
        told.append((reader.fates, reader.marks, sent, reader.untaken, status, attrs.asdict(reader.core.counters)))
    event(f"made room {grown > 0}")
    assert told[0] == told[1]


@given(
    history=st.lists(bursts, min_size=30, max_size=100),
    first=st.sampled_from([0, (1 << 32) - 40]),
    takes=st.booleans(),
    resyncs=st.booleans(),
)
def test_delivered_and_lost_are_what_was_sent_where_memory_is_scarce(history, first, takes, resyncs):
    reader = Keeping(
        ReceiverSetup(SEGMENT, parents=(REPAIRER,)),
        payload=payload,
        takes=takes,
        has_room=True,
        nak_ncf_retries=5,
        nak_data_retries=5,
        rxw_bytes=4 * ROOM,
        rxw_gaps=6,
        inbox_bytes=400,
    )
    network = Network(reader, first, has_epoch=True, joins=True)
    reader.hear(network.spm())
    for number, (what, one, other) in enumerate(history):
        happen(network, what, one, other)
        if resyncs and number % 20 == 19:
            reader._take(reader.core.resync(TSI))
        for session in reader.core.sessions:
            assert len(session.recovery.missing) <= 6
            assert session.window.held_octets <= 4 * ROOM
    reader.look_again()
    reader.hear(network.spm(is_last=True))
    while reader.core.sessions and any(not session.is_over for session in reader.core.sessions):
        while reader.untaken:
            reader.grant()
        reader.wait(10 * SECOND)
    fates = reader.fates.get(TSI, {})
    if fates:
        assert list(fates) == list(range(min(fates), reader.next_sqn()))


def test_a_lost_packet_costs_no_delivery_of_its_own():
    """A read with two of its packets missing is one delivery once both have come, and until then ends before the first of them."""
    reader = Keeping(has_room=True)
    reader.hear(spm_packet(1, 1000, 999))
    reader.hear(data_train([1000], trail=1000))
    reader.hear(data_train([1001, 1003, 1004, 1006, 1007], trail=1000))
    assert [(run.first, run.count) for run, _ in reader.given] == [(1000, 1), (1001, 1)]
    reader.hear(data_train([1005], trail=1000, kind=PacketType.RDATA))
    assert len(reader.given) == 2
    reader.hear(data_train([1002], trail=1000, kind=PacketType.RDATA))
    assert [(run.first, run.count) for run, _ in reader.given[2:]] == [(1002, 6)]


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize("seed", range(1, 9))
def test_session_with_excessive_naks_reports_losses_at_close(seed, has_room):
    """What was asked for in vain and given up by the ask that closes the session is told, not delivered from an empty place."""
    limits = {
        "excess_nak_window_ivl": 100 * MS,
        "excess_nak_check_ivl": 300 * MS,
        "excess_nak_min_sqns": 1,
        "excess_nak_share": 0.001,
    }
    retries = {"nak_ncf_retries": 2, "nak_data_retries": 2}
    setup = ReceiverSetup(SEGMENT, parents=(REPAIRER,))
    reader = Reader(setup, seed=seed, excess_nak_policy="close", **limits, **retries)
    reader.hear(spm_packet(1, 1000, 999))
    reader.hear(data_train([1000], trail=1000))
    first = 1001
    while not reader.closed():
        sqns = [sqn for sqn in range(first, first + 20) if sqn != first + 5]
        reader.hear(in_a_chunk(data_train(sqns, trail=1000), has_room=has_room))
        first += 20
        reader.now += 10 * MS  # a driver that is late
        reader._take(reader.core.handle_deadline(reader.now))
        assert first < 5000
    assert reader.closed() is CloseCause.EXCESS_NAKS
    assert reader.marks[-1].next_sqn == first
