"""NAKs that are confirmed and repaired in one call, because data is about to be sent."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from deploy.bench.peers.repair_watch import SourceWatch
from pgm.core.named_children import NamedChildren
from pgm.core.segment import Channel, Segment
from pgm.core.source.multi_line import MultiLineSource
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import PacketType
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_UNICAST,
    MS,
    PEER,
    SEGMENT,
    parameters,
    sent_control,
    sent_sqns,
)
from tests.unit.core.source.sources import QUIET, START, nak, receive, run, source, with_data

T = PacketType
# Whole nanoseconds an octet: what trains cost does not depend on how they are cut.
RATE = {"txw_max_rte": SECOND // 100, "rdata_share": 0.5}


def read_of(*packets: bytes) -> Train:
    """Packets as the kernel gives them together: as long as the first one, but for the last."""
    return Train.of(b"".join(packets), len(packets[0]))


def naks_of(*lists):
    return [encode(nak(*sqns)) for sqns in lists]


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
    assert [(one.segment.index, one.is_data) for one in effects] == [(1, False), (0, False), (0, True), (1, True)]
    assert core.deadline_ns <= now
    effects = core.receive(read_of(*naks_of((7, 9))), BY_UNICAST, "10.0.0.9", now)
    assert {one.segment.index for one in effects} == {0, 1}


def test_it_is_not_taken_while_something_comes_before_repairs():
    core, now = streaming(ihb_min=15 * MS)
    assert core.deadline_ns <= now
    effects = core.receive(read_of(*naks_of((1, 5))), BY_UNICAST, "10.0.0.9", now)
    assert sent_sqns(effects, T.RDATA) == []
    assert [T(bytes(one.octets)[4]) for one in core.handle_deadline(now)] == [T.SPM, T.RDATA]


def test_single_packets_keep_what_is_owed_to_one_child_alone():
    """A full window waits for repairs by unicast too, whichever path the next message takes."""
    children = NamedChildren(frozenset({PEER}))
    limits = {"txw_sqns": 100, "txw_adv_ivl": 20 * MS, "rdata_hold_ivl": SECOND, "unicast_repair_min_sqns": 20}
    core = SourceCore(SourceSetup(TSI, SEGMENT, DATA_PORT, children=children), parameters(**QUIET | limits), START)
    core.submit([bytes(100)] * 100)
    run(core, START + SECOND)
    at_ns = START + SECOND
    receive(core, nak(*range(30)), at_ns)
    assert core.counters.unicast_repair_sqns == 30
    assert core.single.begin(bytes(100), at_ns + 30 * MS) is None
    assert core.window.trail == 0
