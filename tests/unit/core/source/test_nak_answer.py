"""The short way through a source for a NAK does what the long one does, packet for packet."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deploy.bench.peers.repair_watch import SourceWatch
from pgm.core.effects import Send
from pgm.core.segment import Channel, Segment
from pgm.core.source.multi_line import MultiLineSource
from pgm.core.source.setup import SourceSetup
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import PacketType
from pgm.wire.options import HeldHistory
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_GROUP,
    BY_UNICAST,
    MS,
    SEGMENT,
    deadlines,
    parameters,
    sent_control,
    sent_sqns,
)
from tests.unit.core.receiver.test_fast_paths import stand_alike
from tests.unit.core.source.sources import QUIET, START, nak, source, with_data

T = PacketType
# Whole nanoseconds an octet: what trains cost does not depend on how they are cut.
RATE = {"txw_max_rte": SECOND // 100, "rdata_share": 0.5}


def read_of(*packets: bytes) -> Train:
    """Packets as the kernel gives them together: as long as the first one, but for the last."""
    return Train.of(b"".join(packets), len(packets[0]))


def naks_of(*lists):
    return [encode(nak(*sqns)) for sqns in lists]


def packets_of(effects, now):
    """What leaves, packet by packet; of a train of data the packets are what counts, not how many go together."""
    said = []
    for one in effects:
        if isinstance(one, Send):
            octets = bytes(one.octets)
            cut = range(0, len(octets), one.stride)
            said += [(now, octets[at : at + one.stride], one.to, one.is_data) for at in cut]
        else:
            said.append((now, one))
    return said


def happened(core, read, channel, peer, now, until):
    said = packets_of(core.receive(read, channel, peer, now), now)
    for at in deadlines(core, now, until):
        said += packets_of(core.handle_deadline(at), at)
    return said


def streaming(first=0, **changes):
    """A source that has sent 300 packets, and has as many to send."""
    return begun(source(first, **RATE | QUIET | changes))


def begun(core):
    core.submit_rows(np.full((300, 400), 7, np.uint8))
    now = START
    while core.window.has_unsent:
        now = max(now, core.deadline_ns)
        core.handle_deadline(now)
    now += 20 * MS
    core.submit_rows(np.full((300, 400), 8, np.uint8))
    assert core.deadline_ns <= now
    return core, now


@pytest.mark.rfc("SRC-05", "SRC-42", "SRC-44")
def test_it_is_confirmed_and_repaired_in_one_call():
    core, now = streaming(txw_max_rte=SECOND // 10)
    [first, second] = naks_of(range(0, 126, 2), (150, 160))
    effects = core.receive(read_of(first, second), BY_UNICAST, "10.0.0.9", now)
    assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [tuple(range(0, 126, 2)), (150, 160)]
    assert sent_sqns(effects, T.RDATA) == [*range(0, 126, 2), 150, 160]
    assert [one.is_data for one in effects] == [False, False, True], "NCFs come first (RFC 5.1.3)"
    assert (core.counters.nak_packets_in, core.counters.nak_sqns_in, core.counters.rdata_packets) == (2, 65, 65)
    assert core.status(now)[0].pending_sqns == 0


def test_repairs_that_cannot_go_at_once_are_confirmed_and_owed(monkeypatch):
    core = with_data(300)
    now = START + 2 * SECOND
    read = read_of(*naks_of((1, 5, 9), (2, 5)))
    with monkeypatch.context() as patched:
        patched.setattr(Train, "parse_runs_untrusted", None)
        effects = core.receive(read, BY_UNICAST, "10.0.0.9", now)
    assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [(1, 5, 9), (2, 5)]
    assert len(effects) == 2
    assert core.status(now)[0].pending_sqns == 4
    assert sent_sqns(core.handle_deadline(now + MS), T.RDATA) == [1, 2, 5, 9]


def test_a_benchmark_that_takes_the_time_of_repairs_sees_it():
    core, now = streaming()
    watch = SourceWatch(core)
    watch.receive(read_of(*naks_of((1, 5, 9))), BY_UNICAST, "10.0.0.9", now)
    assert watch.result()["rdata_packets"] == 3


def test_nak_after_recent_repair_is_ignored_as_echo():
    core, now = streaming()
    core.receive(read_of(*naks_of((1, 5, 9))), BY_UNICAST, "10.0.0.9", now)
    core.deadline_ns  # noqa: B018 - a driver asks, and so what is due is known again
    effects = core.receive(read_of(*naks_of((1, 5, 9, 11))), BY_UNICAST, "10.0.0.8", now)
    assert sent_sqns(effects, T.RDATA) == []
    assert core.counters.repairs_ignored == 3
    assert core.status(now)[0].pending_sqns == 1


def test_one_answer_at_most_goes_ahead_of_data():
    """A driver whose link takes nothing asks for no data: what it holds must not grow by each NAK."""
    core, now = streaming()
    for at in range(0, 60, 6):
        assert core.deadline_ns <= now
        effects = core.receive(read_of(*naks_of((at, at + 3))), BY_UNICAST, "10.0.0.9", now)
        assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [(at, at + 3)]
        assert sent_sqns(effects, T.RDATA) == ([] if at else [0, 3])
    assert core.status(now)[0].pending_sqns == 18
    assert sent_sqns(core.handle_deadline(now), T.RDATA) == list(range(6, 60, 3))


def test_a_nak_that_names_another_line_than_it_came_by_is_foreign():
    line = Segment(1, "line-b", "10.0.1.1", "239.1.1.2", upstream=False, downstream=True)
    setup = SourceSetup(TSI, SEGMENT, DATA_PORT, lines=(line,))
    core, now = begun(MultiLineSource(setup, parameters(**RATE | QUIET), START))
    assert core.receive(read_of(*naks_of((1, 5))), Channel(line, False), "10.0.1.9", now) == []
    assert core.counters.nak_packets_foreign == 1
    assert core.deadline_ns <= now
    theirs = encode(attrs.evolve(nak(1, 5), source_nla=line.address, group_nla=line.group))
    effects = core.receive(read_of(theirs), Channel(line, False), "10.0.1.9", now)
    assert [one.segment.index for one in effects] == [1, 0]
    assert core.deadline_ns <= now
    effects = core.receive(read_of(*naks_of((7, 9))), BY_UNICAST, "10.0.0.9", now)
    assert {one.segment.index for one in effects} == {0, 1}


@pytest.mark.parametrize(
    ("lists", "changes"),
    [
        ([(1, 5), (10, 20)], {"child_nak_rte": 1}),  # of one length: taken in or refused together
        ([tuple(range(0, 126, 2)), tuple(range(130, 164, 2))], {"brake_burst_ivl": 20 * MS}),  # half beyond a share
    ],
)
def test_two_lists_are_weighed_as_by_the_long_way(lists, changes):
    (short, now), (long, _) = (streaming(**changes) for _ in range(2))
    long._short_answer = None
    said = []
    for core in (short, long):
        effects = list(core.receive(read_of(*naks_of(*lists)), BY_UNICAST, "10.0.0.8", now))
        effects += core.receive(read_of(*naks_of((200, 202, 204))), BY_UNICAST, "10.0.0.9", now)
        for at in deadlines(core, now, now + 30 * MS):
            effects += core.handle_deadline(at)
        said.append((sent_control(effects, T.NCF), sent_sqns(effects, T.RDATA)))
    assert said[0] == said[1]
    stand_alike((short, long), now)


@pytest.mark.parametrize(
    "changes",
    [
        {"rdata_hold_ivl": 3 * MS},
        {"txw_max_pps": 100_000},
        {"dup_nak_max": 3},
        {"nak_bo_tuning": "duplicates"},
        {"fec_group": 4, "fec_on_demand": True},
    ],
)
def test_a_source_that_does_more_goes_the_long_way(changes):
    assert streaming(**changes)[0]._short_answer is None


def test_it_is_not_taken_while_something_comes_before_repairs():
    core, now = streaming(ihb_min=15 * MS)
    assert core._schedule.deadline_ns <= now
    effects = core.receive(read_of(*naks_of((1, 5))), BY_UNICAST, "10.0.0.9", now)
    assert sent_sqns(effects, T.RDATA) == []
    assert [T(bytes(one.octets)[4]) for one in core.handle_deadline(now)] == [T.SPM, T.RDATA]


# Sqns counted from some 300 before the newest; of one back-off they come in order, as a full list and the rest.
WAVES = st.lists(st.integers(0, 151), min_size=2, max_size=80, unique=True).map(
    lambda some: [sorted(2 * sqn for sqn in some)[at : at + 63] for at in range(0, len(some), 63)]
)
CLOSER = st.lists(st.integers(150, 303), min_size=2, max_size=80, unique=True).map(
    lambda some: [sorted(some)[at : at + 63] for at in range(0, len(some), 63)]
)
# Of two receivers, or of two back-offs: each in order, but not one behind the other.
MINGLED = st.tuples(*[st.lists(st.integers(0, 300), min_size=2, max_size=40, unique=True).map(sorted)] * 2).map(list)
ANY = st.lists(st.lists(st.integers(0, 320), min_size=1, max_size=63), min_size=1, max_size=3)


@settings(max_examples=300)
@given(
    happening=st.lists(
        st.tuples(
            st.one_of(WAVES, WAVES, CLOSER, ANY, MINGLED),
            st.sampled_from([""] * 12 + ["damaged", "unsealed", "group", "option", "other", "nnak"]),
            st.sampled_from(["10.0.0.8", "10.0.0.9"]),
            st.sampled_from([0, MS // 2, MS, 5 * MS, 15 * MS]),
            st.sampled_from([100, 100, 100, 5, 0]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    first=st.sampled_from([0, 1000, (1 << 32) - 100, 1 << 40]),
    changes=st.sampled_from(
        [
            {},
            {"child_nak_rte": 2},
            {"brake_burst_ivl": 20 * MS},
            {"session_ncf_rte": 3},
            {"nagging_window_ivl": 5 * MS, "nagging_check_ivl": 5 * MS, "nagging_max_sqns": 1, "nagging_share": 0.001},
            {"rdata_share": 0.01},
            {"txw_min_rte": 1_000_000, "txw_yield_ivl": 10 * MS},
            {"ihb_min": 4 * MS, "ihb_max": 8 * MS},
            {"txw_sqns": 400, "txw_adv_mode": "data"},
            {"txw_sqns": 400, "txw_adv_ivl": 3 * MS},
        ]
    ),
)
@example(happening=[([[10, 14], [16, 18]], "", "10.0.0.8", 0, 100, True)], first=0, changes={"child_nak_rte": 1})
@example(happening=[([[10, 14, 20], [16, 18]], "", "10.0.0.8", 0, 100, True)], first=0, changes={})
@example(happening=[([[10, 14, 20], [2, 10]], "", "10.0.0.8", 0, 100, True)], first=0, changes={})
def test_both_ways_say_the_same(happening, first, changes):
    """Whatever is asked for, however it is written, whoever asks, and whether or not data are about to leave."""
    (short, now), (long, _) = (streaming(first, **changes) for _ in range(2))
    assert short._short_answer is not None
    long._short_answer = None
    for lists, what, peer, wait, more, is_looked_at in happening:
        oldest = max(first, long.window.lead - 305)
        packets = [written([oldest + sqn for sqn in sqns], what) for sqns in sorted(lists, key=len, reverse=True)]
        packets = [one for one in packets[:-1] if len(one) == len(packets[0])] + packets[-1:]
        channel = BY_GROUP if what == "group" else BY_UNICAST
        said = []
        for core in (short, long):
            core.submit_rows(np.full((more, 400), 9, np.uint8))
            assert not is_looked_at or core.deadline_ns >= 0, "a driver asks"
            said.append(happened(core, read_of(*packets), channel, peer, now, now + wait))
        assert said[0] == said[1]
        now += wait
        stand_alike((short, long), now)
        assert short.deadline_ns == long.deadline_ns
        assert short.rate == long.rate


def written(sqns, what):
    """A NAK as octets."""
    packet = nak(*sqns, kind=T.NNAK if what == "nnak" else T.NAK)
    if what == "option":
        packet = attrs.evolve(packet, options=(*packet.options, HeldHistory(amount=5)))
    if what == "other":
        packet = attrs.evolve(packet, source_nla="10.9.9.9")
    octets = bytearray(encode(packet))
    if what == "damaged":
        octets[-1] ^= 1
    if what == "unsealed":
        octets[6:8] = bytes(2)
    return bytes(octets)
