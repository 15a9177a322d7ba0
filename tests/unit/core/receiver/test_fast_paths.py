"""The short ways through the cores do what the long ones do: a message that goes out alone, and what comes next in order."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgm.core.effects import Deliver, Send, alone
from pgm.core.receiver.data_path import DataPath
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import SECOND
from pgm.wire.options import Fin
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, data_packet, sealed, without_checksum
from tests.unit.core.makers import (
    BY_GROUP,
    MS,
    REPAIRER,
    SEGMENT,
    SOURCE,
    deadlines,
    spm_packet,
    spmr_packet,
    train_of,
)
from tests.unit.core.reader import Reader, joined
from tests.unit.core.receiver.test_receiver_model import Network, happen, payload, steps
from tests.unit.core.source.sources import QUIET, START, nak, octets_of, receive, source


def sent_the_long_way(core, message, now):
    core.submit([message])
    effects = []
    while core.window.has_unsent and core.deadline_ns <= now:
        effects += core.handle_deadline(now)
    return effects


def taken_alone(core, message, now):
    packet = core.single.begin(message, now)
    if packet is not None:
        core.single.commit(packet, now)
    return packet


def sent_the_short_way(core, message, now):
    packet = taken_alone(core, message, now)
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
    fec=st.sampled_from([0, 0, 4]),
    ambient=st.sampled_from([500 * MS, MS // 50]),
    seed=st.integers(0, 1 << 30),
)
def test_a_message_sent_alone_is_sent_as_any_other(sizes, mode, mark_ends, txw_sqns, first, fec, ambient, seed):
    """Also while repairs are owed, the window is full, the rate says wait, or SPMs and parity have their turn."""
    rng = random.Random(seed)
    changes = {"txw_max_rte": 20_000_000, "txw_adv_mode": mode, "mark_ends": mark_ends, "txw_secs": SECOND}
    changes |= {"txw_sqns": txw_sqns, "rdata_hold_ivl": 0, "fec_group": fec, "fec_proactive": 1 if fec else 0}
    changes |= {"txw_adv_secs": 100 * MS, "ambient_spm_ivl": ambient}
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
        assert short.single.next_event_ns <= short.deadline_ns, "a driver would sleep too long"


things = st.one_of(
    st.tuples(st.just("rows"), st.sampled_from([1, 1, 3, 40, 200, 700]), st.sampled_from([20, 1400])),
    st.tuples(st.sampled_from(["nak", "spmr", "alone", "advance", "rate"]), st.integers(0, 1 << 16), st.just(0)),
)

ROWS = ("rows", 200, 1400)


@given(
    happening=st.lists(
        st.tuples(things, st.sampled_from([0, 0, MS // 50, MS, 60 * MS, 2 * SECOND])), min_size=5, max_size=30
    ),
    mode=st.sampled_from(["time", "data", "application"]),
    more=st.sampled_from(
        [{}, {"fec_group": 4, "fec_proactive": 1}, {"txw_min_rte": 1_000_000}, {"poll_ivl": 40 * MS}, {"txw_sqns": 50}]
    ),
    spms=st.sampled_from([{}, QUIET]),  # each SPM makes a source look at all deadlines
)
@example(happening=[(ROWS, 2 * SECOND), (ROWS, 2 * SECOND)], mode="time", more={}, spms=QUIET)  # empty meanwhile
def test_a_source_that_sends_only_data_misses_no_deadline(happening, mode, more, spms):
    """Remembering when all else is due is the same as looking each time, but that it may look once too often."""
    changes = {"txw_max_rte": 50_000_000, "txw_adv_mode": mode, "txw_secs": SECOND, "txw_adv_secs": 100 * MS}
    changes |= more | spms
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=1)
    cores = [SourceCore(setup, source(**changes).parameters, START) for _ in range(2)]
    now = START
    for (what, number, size), wait in [*happening, (("close", 0, 0), 60 * SECOND)]:
        forget_deadlines(cores[1], now)
        said = [happened_to(core, what, number, size, now) for core in cores]
        assert said[0] == said[1]
        serve(*cores, now, now + wait)
        now += wait
        stand_alike(cores, now)
        forget_deadlines(cores[1], now)
        assert cores[0].deadline_ns <= cores[1].deadline_ns
        assert cores[0].rate == cores[1].rate


def happened_to(core, what, number, size, now):
    """What a source says to something from outside."""
    lead, trail = core.window.lead, core.window.trail
    if what == "rows":
        core.submit_rows(np.full((number, size), number & 0xFF, np.uint8))
    elif what == "nak" and lead >= trail:
        return plain(receive(core, nak(trail + number % (lead + 1 - trail)), now), now)
    elif what == "spmr":
        return plain(receive(core, spmr_packet(), now), now)
    elif what == "alone":
        return plain(sent_the_short_way(core, bytes(100), now), now)
    elif what == "advance":
        core.advance_trail(trail + number % (lead + 2 - trail))
    elif what == "rate":
        core.set_rate(1_000_000 + 1000 * number, now)
    elif what == "close":
        core.close()
    return []


def forget_deadlines(core, now):
    """Make a source look at all of its deadlines again: the release of an unknown child does that."""
    assert not core.release("10.0.0.250", now)


def serve(core, looking, now, until):
    """Serve two equal sources until an instant, at each deadline that the first tells.

    The second remembers no deadline, and says nothing when it is also asked just before each.
    """
    for at in deadlines(core, now, until):
        due = core.deadline_ns
        if at > now:
            say_nothing(core, looking, now, at - 1)
        now = at
        forget_deadlines(looking, at)
        effects = core.handle_deadline(at)
        assert plain(effects, at) == plain(looking.handle_deadline(at), at)
        assert effects or core.deadline_ns != due, "it was served, says nothing, and is due as before"
    say_nothing(core, looking, now, until)


def say_nothing(core, looking, served, now):
    """Ask the second source before the first is due: nothing leaves, the window stays, and the end does not come."""
    forget_deadlines(looking, now)
    assert looking.handle_deadline(now) == []
    assert looking.window.trail == core.window.trail
    assert looking.is_finished(now) == core.is_finished(served)


def plain(effects, now):
    return [(now, bytes(one.octets), one.stride, one.to) if isinstance(one, Send) else (now, one) for one in effects]


def test_the_short_way_is_taken():
    """A first message, where it marks no beginning, and all that follow within the rate."""
    core = source(txw_max_rte=1_000_000_000, **QUIET)
    core.handle_deadline(START)
    for number in range(10):
        packet = taken_alone(core, bytes(100), START + number * MS)
        assert packet is not None
        assert len(packet) == 124
    assert (core.window.lead, core.window.end, core.counters.odata_packets) == (9, 10, 10)
    assert core.single.begin(bytes(70_000), START + SECOND) is None
    assert core.single.begin(memoryview(bytes(100)), START + SECOND) is None
    assert core.window.end == 10
    core.close()
    assert core.single.begin(bytes(100), START + SECOND) is None


def test_an_acknowledged_stream_takes_the_long_way():
    """Its members' acks decide what may leave."""
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, started_at_ns=1, flow="acked")
    core = type(source())(setup, source().parameters, START)
    core.handle_deadline(START)
    assert core.single.begin(bytes(100), START + MS) is None


class Waiting(Reader):
    """An application that waits: what comes alone it takes at once, if that may be."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.alone = 0

    def hear(self, what, *, after=0, peer=SOURCE, channel=BY_GROUP):
        if after:
            self.until(self.now + after)
        train = what if isinstance(what, Train) else train_of(what)
        if self.takes and train.length == train.stride:
            packet = next(train.packets())
            found = self.core.single.begin(packet, peer, self.now)
            if found is not None:
                tsi, sqn = found
                assert packet[24:] == self._payload(sqn)
                self._told(tsi, sqn, packet[24:])
                self.alone += 1
                return []
        return super().hear(train, peer=peer, channel=channel)


one_by_one = st.tuples(st.just("single"), st.just(0), st.just(0))


@given(
    history=st.lists(st.one_of(one_by_one, one_by_one, steps), min_size=20, max_size=80),
    first=st.sampled_from([0, 1000, (1 << 32) - 9]),
    has_epoch=st.booleans(),
    takes=st.booleans(),
    small=st.sampled_from([{}, {"rxw_bytes": 1200, "rxw_gaps": 4, "inbox_bytes": 400}, {"inbox_bytes": 120}]),
    at_once=st.sampled_from([2, 5, 1008]),
)
def test_single_packets_and_pieces_are_delivered_like_any_other(history, first, has_epoch, takes, small, at_once):
    limits = {**small, "nak_max_outstanding": at_once}  # more may be missing than may be asked for at a time
    told = []
    for kind, is_whole in ((Waiting, True), (Reader, True), (Reader, False)):
        with pytest.MonkeyPatch.context() as patch:
            if not is_whole:
                patch.setattr(DataPath, "_is_plain", lambda *_: False)  # each piece is an item of its own
            reader = kind(ReceiverSetup(SEGMENT, parents=(REPAIRER,)), payload=payload, takes=takes, **limits)
            network = Network(reader, first, has_epoch=has_epoch, joins=True)
            reader.hear(network.spm())
            for what, one, other in history:
                if what == "single":
                    network.send(1)
                    network.leave(-1, 0, again=False)
                else:
                    happen(network, what, one, other)
            sent = [(now, bytes(send.octets), send.to) for now, send in reader.sent]
            status = reader.core.status(reader.now)
            told.append((reader.fates, reader.marks, sent, reader.untaken, status, attrs.asdict(reader.core.counters)))
    assert told[0] == told[1] == told[2]


def said(core, packet, now, *, is_alone, stride=0):
    """What a packet made a core say; one that was taken alone is a delivery as any other."""
    if is_alone and (found := core.single.begin(packet, SOURCE, now)) is not None:
        return [(*found, packet[24:])]
    effects, told = list(core.receive(Train.of(packet, stride), BY_GROUP, SOURCE, now)), []
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, Deliver):
            run = effect.run
            told += [(effect.tsi, run.first + at, row.tobytes()) for at, row in enumerate(run.payloads)]
            effects += core.grant(run.octets)
        else:
            told.append(effect)
    return told


def agree(cores, now):
    """Two cores stand alike, and want to be called at the same time."""
    stand_alike(cores, now)
    assert cores[0].deadline_ns == cores[1].deadline_ns


def stand_alike(cores, now):
    """They tell the same, and counted the same."""
    one, other = cores
    assert one.status(now) == other.status(now)
    assert attrs.asdict(one.counters) == attrs.asdict(other.counters)


@given(
    first=st.sampled_from([1000, (1 << 32) - 5]),
    arriving=st.lists(
        st.tuples(
            st.sampled_from([0] * 15 + [-1, 1, 2, 5_000_000]),  # from what comes next
            st.sampled_from([0, 0, 0, 1, 1, 5, 5, 90, -1, -(1 << 31), (1 << 31) - 1, 1 << 31]),  # the trail behind that
            st.sampled_from(
                [None] * 7 + [(at, by) for at in (1, 3, 4, 5, 7, 13, 15, 19, 23, 24) for by in (1, 0x80)][::3]
            ),
            st.sampled_from([sealed] * 6 + [bytes, without_checksum]),
            st.sampled_from([0, 1, 7, 7, 70, 70, 5000]),
            st.sampled_from(["look", "note", "nothing", "nothing"]),
        ),
        min_size=5,
        max_size=25,
    ),
    inbox=st.sampled_from([200, 1 << 20]),
    ends=st.booleans(),
)
def test_fast_path_of_single_packets_equals_general_path(first, arriving, inbox, ends):
    """Damaged, foreign, out of order, with any trail, at the end, too large for the queue; also where nobody looks between."""
    cores = [joined(first, trail=first - 100, inbox_bytes=inbox).core for _ in range(2)]
    sqn, now = first + 10, 1001 * SECOND
    if ends:
        for core in cores:
            core.receive(train_of(spm_packet(2, first - 100, sqn + 3, Fin())), BY_GROUP, SOURCE, now)
    for ahead, behind, change, seal, size, behind_it in arriving:
        octets = bytearray(
            data_packet((sqn + ahead) % (1 << 32), bytes(size), trail=(sqn + ahead - behind) % (1 << 32))
        )
        if change is not None and change[0] < len(octets):
            octets[change[0]] = octets[change[0]] + change[1] & 0xFF
        packet = seal(bytes(octets))
        assert said(cores[0], packet, now, is_alone=True) == said(cores[1], packet, now, is_alone=False)
        if behind_it == "look":
            agree(cores, now)
        elif behind_it == "note":
            cores[0].single.commit()
        sqn = cores[1].status(now)[0].lead + 1
        now += MS
    agree(cores, now)


def test_a_packet_that_comes_alone_takes_the_short_way():
    """Otherwise the tests above would compare the long way with itself."""
    reader = Waiting(ReceiverSetup(SEGMENT, parents=(REPAIRER,)), payload=payload)
    network = Network(reader, (1 << 32) - 3, has_epoch=True, joins=True)
    reader.hear(network.spm())
    for _ in range(6):
        network.send(1)
        network.leave(0, 0, again=False)
    assert reader.alone == 6
    assert reader.core.counters.delivered_packets == 6
