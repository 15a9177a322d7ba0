"""A relaying repairer with two segments below: what it owes to one is no business of the other."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Effect, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours
from pgm.core.segment import Channel, Segment
from pgm.core.structures.ranges import merged
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from repairer.core import RepairerCore
from tests.unit.core.makers import (
    GROUP,
    MS,
    PEER,
    SOURCE,
    data_train,
    nak_packet,
    parameters,
    sends,
    sent_control,
    sent_sqns,
    spm_packet,
    train_of,
)

UP = Segment(0, "up", "10.0.0.2", GROUP, upstream=True, downstream=False)
LEFT = Segment(1, "left", "10.0.1.1", GROUP, upstream=False, downstream=True)
RIGHT = Segment(2, "right", "10.0.2.1", GROUP, upstream=False, downstream=True)
SIZE = 1000
RATE = 1_000_000
SHARE = 0.25
SETTINGS = parameters(txw_max_rte=RATE, rdata_share=SHARE)
PACKETS = 640


@pytest.fixture
def repairer() -> RepairerCore:
    """One that holds the sqns from 0 on and owes nothing."""
    setup = ElementSetup(UP, (LEFT, RIGHT), parents=(SOURCE,))
    made = RepairerCore(setup, attrs.evolve(SETTINGS), random.Random(1))
    for first in range(0, PACKETS, 64):
        made.receive(data_train(range(first, first + 64), size=SIZE), Channel(UP, True), SOURCE, SECOND)
    made.receive(train_of(spm_packet(1, 0, PACKETS - 1)), Channel(UP, True), SOURCE, SECOND)
    return made


def repairer_that_lacks(first: int, end: int) -> RepairerCore:
    """One that knows of what it lacks, and has not asked for it yet."""
    made = RepairerCore(ElementSetup(UP, (LEFT, RIGHT), parents=(SOURCE,)), SETTINGS, random.Random(1))
    made.receive(train_of(spm_packet(1, 0, 0)), Channel(UP, True), SOURCE, SECOND)
    for held in (range(first), range(end, PACKETS)):
        made.receive(data_train(held, size=20), Channel(UP, True), SOURCE, SECOND)
    return made


def test_rate_of_history_follows_a_changed_file(repairer: RepairerCore) -> None:
    (session,) = repairer.sessions
    pacer = session.history.pacer(LEFT)
    faster = parameters(txw_max_rte=4 * RATE, rdata_share=SHARE)
    repairer.change(Neighbours(), faster, SECOND)
    assert (pacer.rate, pacer.repairs.rate) == (4 * RATE, round(4 * RATE * faster.join_share))


def ask(repairer: RepairerCore, segment: Segment, first: int, count: int, now_ns: int) -> None:
    for at in range(first, first + count, 60):
        nak = nak_packet(*range(at, min(at + 60, first + count)), source_nla=segment.address)
        repairer.receive(train_of(nak), Channel(segment, False), PEER, now_ns)


def run(repairer: RepairerCore, now_ns: int, until_ns: int) -> list[tuple[int, Send]]:
    """Everything that leaves by a time, with when it does."""
    sent: list[tuple[int, Send]] = []
    while repairer.deadline_ns < until_ns:
        now_ns = max(now_ns, repairer.deadline_ns)
        effects: list[Effect] = list(repairer.handle_deadline(now_ns))
        sent += [(now_ns, send) for send in sends(effects)]
    return sent


def repairs_on(segment: Segment, sent: list[tuple[int, Send]]) -> list[Send]:
    return [send for _, send in sent if send.segment == segment and sent_sqns([send], PacketType.RDATA)]


@pytest.mark.rfc("NE-30")
def test_a_repair_goes_where_it_was_asked_for(repairer: RepairerCore) -> None:
    """Each segment has its own repairs and its own echoes."""
    ask(repairer, LEFT, 12, 1, 2 * SECOND)
    sent = run(repairer, 2 * SECOND, 2 * SECOND + 10 * MS)
    assert (sent_sqns(repairs_on(LEFT, sent), PacketType.RDATA), repairs_on(RIGHT, sent)) == ([12], [])
    ask(repairer, RIGHT, 12, 3, 2 * SECOND + 10 * MS)
    sent = run(repairer, 2 * SECOND + 10 * MS, 2 * SECOND + 50 * MS)
    assert (repairs_on(LEFT, sent), sent_sqns(repairs_on(RIGHT, sent), PacketType.RDATA)) == ([], [12, 13, 14])


@given(st.lists(st.lists(st.integers(0, PACKETS + 40), min_size=5, max_size=5, unique=True), min_size=1, max_size=8))
def test_a_train_of_naks_is_answered_as_its_packets_are(lists: list[list[int]]) -> None:
    """What the cache has is sent, what it lacks is asked for above; what a train asks for twice it lacks once.

    A list that goes beyond what a late repairer has heard of is foreign to it, and the others of its train are not.
    """
    naks = [nak_packet(*sqns, source_nla=LEFT.address) for sqns in lists]
    told = []
    for trains in ([train_of(*naks)], [train_of(nak) for nak in naks]):
        made = repairer_that_lacks(100, 200)
        effects = [one for train in trains for one in made.receive(train, Channel(LEFT, False), PEER, SECOND + MS)]
        effects += [send for _, send in run(made, SECOND + MS, SECOND + 100 * MS)]
        ncfs = [nak.sqns for nak in sent_control(effects, PacketType.NCF)]
        asked = sorted({sqn for nak in sent_control(effects, PacketType.NAK) for sqn in nak.sqns})
        counts = made.counters.snapshot() | {"cache_misses": 0}
        told.append((ncfs, asked, sorted(sent_sqns(effects, PacketType.RDATA)), counts))
    assert told[0] == told[1]


def test_every_segment_has_its_own_share_of_the_rate(repairer: RepairerCore) -> None:
    """One line's flood takes nothing from the repairs of another."""
    begun_ns, lasts_ns = 2 * SECOND, SECOND
    for segment in (LEFT, RIGHT):
        ask(repairer, segment, 0, PACKETS, begun_ns)
    sent = run(repairer, begun_ns, begun_ns + lasts_ns)
    for segment in (LEFT, RIGHT):
        octets = sum(len(send.octets) for send in repairs_on(segment, sent))
        share = RATE * SHARE * lasts_ns / SECOND
        assert 0.9 * share < octets < 1.1 * share, segment.name


def test_session_without_source_lives_while_naks_come(repairer: RepairerCore) -> None:
    """Also where its cache lasts longer than sessions do."""
    expiry, now = SETTINGS.session_expiry, SECOND
    for _ in range(5):
        run(repairer, now, now + expiry // 2)
        now += expiry // 2
        ask(repairer, LEFT, 0, 1, now)
    run(repairer, now, now + expiry)
    assert (len(list(repairer.sessions)), repairer.counters.sessions_expired) == (1, 0)
    run(repairer, now + expiry, now + expiry + 1)
    assert (len(list(repairer.sessions)), repairer.counters.sessions_expired) == (0, 1)


def test_repairer_after_outage_resumes_if_source_has_all_packets() -> None:
    """More was sent meanwhile than `rxw_sqns`, which SPMs and data confirm; what is kept is not asked for, nor taken in again."""
    settings = parameters(rxw_sqns=64, jump_confirmations=2)
    made = RepairerCore(ElementSetup(UP, (LEFT,), parents=(SOURCE,)), settings, random.Random(1))
    made.receive(data_train(range(20)), Channel(UP, True), SOURCE, SECOND)
    made.receive(train_of(spm_packet(0, 0, 19)), Channel(UP, True), SOURCE, SECOND)
    after = SECOND + settings.jump_silence_ivl
    made.receive(data_train([200]), Channel(UP, True), SOURCE, after)
    for number, (trail, lead) in enumerate(((5, 200), (5, 210)), 1):
        made.receive(train_of(spm_packet(number, trail, lead)), Channel(UP, True), SOURCE, after)
    assert made.counters.jumps_followed == 1
    assert made.counters.missing_sqns == 191
    for first in (5, 15, 25):
        made.receive(data_train(range(first, first + 10), kind=PacketType.RDATA), Channel(UP, True), SOURCE, after)
    assert (made.counters.repaired_sqns, made.counters.duplicate_packets) == (15, 15)
    assert made.cache.packets == 35


@pytest.mark.parametrize("first", [8, 9, 10, 11])
def test_packets_requested_before_first_data_are_cached_once(first: int) -> None:
    made = RepairerCore(ElementSetup(UP, (LEFT,), parents=(SOURCE,)), SETTINGS, random.Random(1))
    made.receive(train_of(spm_packet(1, 0, 10)), Channel(UP, True), SOURCE, SECOND)
    ask(made, LEFT, 8, 3, SECOND)
    made.receive(data_train([first]), Channel(UP, True), SOURCE, SECOND)
    for kind in (PacketType.RDATA, PacketType.ODATA):
        made.receive(data_train(range(8, 14), kind=kind), Channel(UP, True), SOURCE, SECOND)
    [session] = made.sessions
    assert merged((run.first, run.end) for run in session.intake.cache.store) == [(8, 14)]
    assert made.counters.received_packets == 6


@pytest.mark.rfc("SEC-01")
def test_gaps_of_full_table_are_requested_within_the_bound():
    """Of sixteen gaps that are too large to be asked for whole one goes, and the others are asked for to their ends."""
    settings = parameters(rxw_gaps=16, nak_max_outstanding=63)
    made = RepairerCore(ElementSetup(UP, (LEFT,), parents=(SOURCE,)), settings, random.Random(1))
    made.receive(train_of(spm_packet(1, 0, 0)), Channel(UP, True), SOURCE, SECOND)
    ends = range(200, 3400, 200)
    made.receive(data_train([0, *(end - 1 for end in ends)], size=20), Channel(UP, True), SOURCE, SECOND)
    [session] = made.sessions
    missing = session.upstream.recovery.missing
    assert len(missing) == 16
    wanted = set(range(1, 3200)) - {end - 1 for end in ends}
    now, asked = SECOND, set()
    while missing and now < 60 * SECOND:
        now = made.deadline_ns
        for nak in sent_control(made.handle_deadline(now), PacketType.NAK):
            asked |= set(nak.sqns)
            made.receive(data_train(nak.sqns, size=20, kind=PacketType.RDATA), Channel(UP, True), SOURCE, now)
        assert len(missing) <= 16
    assert wanted - asked == set(range(200, 399))


@pytest.mark.rfc("SEC-01")
def test_plain_spm_adds_no_gap_beyond_the_bound():
    """An SPM without options reveals a seventeenth gap; the oldest gap makes room."""
    made = RepairerCore(ElementSetup(UP, (LEFT,), parents=(SOURCE,)), parameters(rxw_gaps=16), random.Random(1))
    made.receive(train_of(spm_packet(1, 0, 0)), Channel(UP, True), SOURCE, SECOND)
    made.receive(data_train(range(0, 34, 2), size=20), Channel(UP, True), SOURCE, SECOND)
    [session] = made.sessions
    assert len(session.upstream.recovery.missing) == 16
    made.receive(train_of(spm_packet(2, 0, 40)), Channel(UP, True), SOURCE, SECOND)
    assert [(gap.first, gap.end) for gap in session.upstream.recovery.missing][-1] == (33, 41)
    assert len(session.upstream.recovery.missing) == 16
