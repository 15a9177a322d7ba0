"""Polls: parents count their children, and children answer at random (RFC 14).

Section 14 of the checklist, test 21.
"""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from pgm.core.counters import Counters
from pgm.core.effects import Send
from pgm.core.element.setup import ElementSetup
from pgm.core.node_id import NodeId
from pgm.core.polling.children import Children
from pgm.core.polling.poll_responder import PollResponder
from pgm.core.receiver.setup import ReceiverSetup
from pgm.sim.applications import Traffic
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import tsi_of
from pgm.units import MICROSECOND, NEVER, SECOND
from pgm.wire.control_packets import Poll, Polr
from pgm.wire.formats import PacketType
from tests.memory import kept_by
from tests.reference import DATA_PORT, OTHER_TSI, TSI
from tests.rfc.bench import BELOW, LAN, SOURCE, UP, A, B, Bench
from tests.sim.support.worlds import Tap, is_a, make_world
from tests.sim.support.worlds import parameters as lan_parameters
from tests.unit.core.makers import (
    BY_GROUP,
    BY_UNICAST,
    MS,
    OWN,
    PARENT,
    PEER,
    SEGMENT,
    parameters,
    sent_control,
    sent_items,
    session_context,
    spm_packet,
)
from tests.unit.core.reader import Reader
from tests.unit.core.source.sources import START, receive, source

T = PacketType
BO = 400 * MS
EVERYBODY, HARDLY_ANYBODY = 0, 0xFFFFFFFF
SETTINGS = {"poll_ivl": 10 * SECOND, "poll_bo_ivl": BO, "poll_replies": 16, "poll_max_replies": 100}


def poll(sqn=1, number=0, *, kind=0, state=SOURCE, rand=0, mask=EVERYBODY, bo=BO, tsi=TSI):
    return Poll(
        tsi=tsi,
        data_port=DATA_PORT,
        poll_sqn=sqn,
        poll_round=number,
        sub_type=kind,
        path_nla=state,
        bo_ivl_us=bo // MICROSECOND,
        rand=rand,
        mask=mask,
    )


# The child


class Child:
    """Child that answers polls, and the times of its answers."""

    def __init__(self, seed=1, dlr_nla=None, now=START):
        self.now = now
        self.said = []
        context = session_context(rng=random.Random(seed))
        self.node_id = context.node_id
        self.answers = PollResponder(context, SEGMENT, dlr_nla)

    def hear(self, *polls, after=0):
        self.wait(after)
        for one in polls:
            self.answers.on_poll(one, self.now)
        return self

    def wait(self, ivl=2 * BO):
        until = self.now + ivl
        while self.answers.deadline_ns <= until:
            self.now = max(self.now, self.answers.deadline_ns)
            for send in self.answers.handle_deadline(self.now):
                [polr] = sent_items([send])
                self.said.append((self.now, send.to, polr.poll_sqn, polr.poll_round))
        self.now = until
        return self

    @property
    def replies(self):
        return [(sqn, number) for _, _, sqn, number in self.said]


@pytest.mark.rfc("POLL-11", "W-14")
def test_one_answer_within_the_back_off_to_the_path_of_the_poll():
    """The answer goes to POLL_PATH by unicast with the poll's sqn and round.

    Its delay has microseconds as its unit and is uniform over the interval.
    """
    delays = set()
    for seed in range(200):
        child = Child(seed).hear(poll(7, state=PARENT)).wait()
        [(at, to, sqn, number)] = child.said
        assert (to, sqn, number) == (PARENT, 7, 0)
        delays.add(at - START)
    assert 0 <= min(delays) < BO // 20
    assert BO - BO // 20 < max(delays) <= BO
    assert statistics.mean(delays) == pytest.approx(BO / 2, rel=0.15)
    assert all(delay % MICROSECOND == 0 for delay in delays)
    packet = Reader(poll_ivl=0)
    packet.hear(spm_packet(1, 0, -1))
    packet.hear(poll(7))
    packet.wait(BO)
    octets = bytes(packet.sent[-1][1].octets)
    assert octets[:6] == DATA_PORT.to_bytes(2, "big") + TSI[6:] + bytes([T.POLR, 0])


@pytest.mark.rfc("POLL-11")
def test_a_poll_that_comes_twice_is_answered_once():
    child = Child().hear(poll(1), poll(1)).wait()
    child.hear(poll(1)).wait()
    assert child.replies == [(1, 0)]


@pytest.mark.rfc("POLL-07")
def test_the_node_draws_its_id_once():
    """The id is the same for all polls and sessions.

    Every poll with the same string and mask therefore draws the same nodes.
    """
    node_id = NodeId(random.Random(5))
    assert len({node_id.draw() for _ in range(10)}) == 1
    assert len({NodeId(random.Random(seed)).draw() >> 16 for seed in range(50)}) > 45
    reader = Reader(seed=3)
    for tsi in (TSI, OTHER_TSI):
        reader.hear(spm_packet(1, 0, -1, tsi=tsi))
    own = 0
    for bit in range(32):  # each answer tells that the bit of the id is 0
        reader.sent.clear()
        reader.hear(poll(1 + bit, rand=0, mask=1 << bit))
        reader.wait(BO)
        own |= (not sent_control([send for _, send in reader.sent], T.POLR)) << bit
    reader.sent.clear()
    for sqn, tsi in enumerate((TSI, OTHER_TSI) * 3, 33):
        reader.hear(poll(sqn, rand=own, mask=HARDLY_ANYBODY, tsi=tsi))
        reader.wait(BO)
    assert len(sent_control([send for _, send in reader.sent], T.POLR)) == 6


@pytest.mark.rfc("POLL-08", "POLL-06")
def test_the_mask_halves_the_answers_bit_by_bit():
    """The masked id must equal the masked string; bits of POLL_RAND outside the mask are ignored."""
    children = [Child(seed) for seed in range(2000)]
    for bits in range(8):
        mask = ((1 << bits) - 1) << 5
        drawn = sum(bool(child.hear(poll(bits + 1, rand=0xDEADBEEF, mask=mask)).wait().said) for child in children)
        expected = sum((child.node_id.draw() ^ 0xDEADBEEF) & mask == 0 for child in children)
        assert drawn == expected
        assert drawn == pytest.approx(2000 >> bits, rel=0.5)
        for child in children:
            child.said.clear()


@pytest.mark.rfc("POLL-08", "POLL-09")
def test_polls_undrawn_child_answers_a_later_round():
    child = Child().hear(poll(1, 0, rand=~1 & HARDLY_ANYBODY, mask=HARDLY_ANYBODY)).wait()
    assert child.replies == []
    child.hear(poll(1, 1)).wait()
    assert child.replies == [(1, 1)]


@pytest.mark.rfc("POLL-09")
def test_polls_child_after_round_0_waits_for_the_next_poll():
    child = Child().hear(poll(1, 1)).wait().hear(poll(1, 2)).wait()
    assert child.replies == []
    child.hear(poll(2, 1)).wait().hear(poll(3, 0)).wait()
    assert child.replies == [(3, 0)]


@pytest.mark.rfc("POLL-10", "POLL-16")
def test_polls_sub_type_selects_the_children():
    """All children answer a general poll, and drawn repairers that offer themselves answer a DLR poll.

    No child answers an unknown sub-type.
    """
    receiver, repairer = Child(), Child(dlr_nla=OWN)
    for child in (receiver, repairer):
        for sqn, kind in enumerate((0, 1, 2, 0xFFFF), 1):
            child.hear(poll(sqn, kind=kind)).wait()
    assert receiver.replies == [(1, 0)]
    assert repairer.replies == [(1, 0), (2, 0)]
    repairer.said.clear()
    repairer.hear(poll(9, kind=1, rand=~repairer.node_id.draw() & HARDLY_ANYBODY, mask=1)).wait()
    assert repairer.replies == []


@pytest.mark.rfc("POLL-12", "POLL-15")
@pytest.mark.parametrize("mask", [EVERYBODY, HARDLY_ANYBODY])
def test_polls_another_poll_cancels_a_pending_answer(mask):
    """The other poll cancels the answer whether or not it draws the child.

    A further round of the same poll does not cancel it.
    """
    child = Child()
    child.hear(poll(1))
    child.hear(poll(2, rand=~child.node_id.draw() & HARDLY_ANYBODY, mask=mask)).wait()
    assert child.replies == ([(2, 0)] if mask == EVERYBODY else [])
    child.said.clear()
    child.hear(poll(3), poll(3, 1, rand=~child.node_id.draw() & HARDLY_ANYBODY, mask=HARDLY_ANYBODY)).wait()
    assert child.replies == [(3, 0)]


@pytest.mark.rfc("POLL-02")
def test_polls_of_different_parents_are_independent():
    child = Child().hear(poll(5, state=SOURCE), poll(2, state=PARENT)).wait()
    assert sorted(child.replies) == [(2, 0), (5, 0)]
    child.hear(poll(5, 1, state=PARENT)).wait()
    assert len(child.replies) == 2


@pytest.mark.rfc("SEC-01")
def test_polls_of_any_number_of_parents_take_bounded_memory():
    child = Child()
    for number in range(1000):
        child.hear(poll(1, state=f"10.9.{number >> 8}.{number & 255}"))
    assert sum(str(one).startswith("10.9.") for one in kept_by(child.answers)) <= 16


@pytest.mark.rfc("RCV-54", "SEC-03")
@pytest.mark.parametrize(
    ("state", "peer", "answers"),
    [(SOURCE, SOURCE, True), (PARENT, SOURCE, True), (PEER, PEER, True), (PEER, SOURCE, False)],
    ids=["the source's own", "of a parent", "of whoever sent it", "leads to a third"],
)
def test_polls_receiver_answers_only_its_parents(state, peer, answers):
    reader = Reader(ReceiverSetup(SEGMENT, parents=(PARENT,)))
    reader.hear(poll(), peer=SOURCE)  # of an unknown session
    reader.hear(spm_packet(1, 0, -1))
    reader.hear(poll(1, state=state), peer=peer)
    reader.wait(BO)
    polrs = [(send.to, item) for _, send in reader.sent for item in sent_items([send]) if item.type is T.POLR]
    assert [to for to, _ in polrs] == ([state] if answers else [])


# The parent


class Floor:
    """Parent and its children in virtual time, with every POLL to all children and every POLR to the parent."""

    def __init__(self, seed=1, searches=False, **changes):
        self.now = START
        self.counters = Counters()
        self.children: list[Child] = []
        self.polls: list[tuple[int, Poll]] = []
        self.polrs = 0
        settings = parameters(**SETTINGS | changes)
        self.parent = Children(
            session_context(settings, counters=self.counters, rng=random.Random(seed)),
            SEGMENT,
            lasts_ns=SECOND,
            searches=searches,
        )

    def join(self, count):
        base = len(self.children)
        for index in range(count):
            child = Child(1000 + base + index, now=self.now)
            self.children.append(child)
        return self

    def run(self, ivl):
        until = self.now + ivl
        while True:
            deadlines = [self.parent.deadline_ns, *(child.answers.deadline_ns for child in self.children)]
            at = min(deadlines)
            if at > until:
                self.now = until
                return self
            self.now = max(self.now, at)
            if self.parent.deadline_ns <= self.now:
                self._perform(self.parent.handle_deadline(self.now))
            for child in self.children:
                for send in child.answers.handle_deadline(self.now):
                    self.polrs += 1
                    [polr] = sent_items([send])
                    self._perform(self.parent.on_polr(polr, self.now)[0])

    def _perform(self, effects):
        for send in effects:
            assert isinstance(send, Send)
            assert (send.segment, send.to, send.hops, send.is_data) == (SEGMENT, None, None, False)
            [packet] = sent_items([send])
            self.polls.append((self.now, packet))
            for child in self.children:
                child.answers.on_poll(packet, self.now)

    def begin(self):
        self.parent.begin(self.now)
        return self

    def by_sqn(self):
        found = {}
        for at, one in self.polls:
            found.setdefault(one.poll_sqn, []).append((at, one))
        return found


@pytest.mark.rfc("POLL-02", "POLL-03", "POLL-04", "POLL-05", "POLL-06", "POLL-14")
def test_polls_unknown_population_starts_at_low_probability():
    """Rounds of one POLL_SQN count up with ever fewer mask bits.

    Each round has a new string, and the path is the parent's own address.
    """
    floor = Floor(poll_first_bits=12).join(300).begin().run(100 * SECOND)
    polls = floor.by_sqn()
    assert sorted(polls) == list(range(1, len(polls) + 1))
    first = [one for _, one in polls[1]]
    assert len(first) >= 3
    for rounds in polls.values():
        assert [one.poll_round for _, one in rounds] == list(range(len(rounds)))
        bits = [one.mask.bit_count() for _, one in rounds]
        assert bits == sorted(bits, reverse=True)
        assert len(set(bits)) == len(bits)
    assert first[0].mask.bit_count() == 12
    every = [one for _, one in floor.polls]
    assert len({one.rand for one in every}) == len(every)
    assert {(one.path_nla, one.sub_type, one.bo_ivl_us) for one in every} == {(OWN, 0, BO // MICROSECOND)}
    assert floor.counters.polls_aborted == 0


@pytest.mark.rfc("POLL-13")
@pytest.mark.parametrize("there", [0, 1, 20, 300, 3000])
def test_the_estimate_is_answers_over_probability_averaged(there):
    """The number of answers never exceeds a multiple of the target."""
    floor = Floor(poll_history=8).join(there).begin().run(120 * SECOND)
    assert floor.parent.population == pytest.approx(there, rel=0.35, abs=0.5)
    assert floor.polrs <= 5 * 16 * len(floor.polls)
    if there <= 16:
        assert floor.parent.population == there


@pytest.mark.rfc("POLL-13")
def test_polls_come_once_an_interval_without_overlap():
    floor = Floor(poll_ivl=SECOND).join(300).begin().run(60 * SECOND)
    times = [at for at, _ in floor.polls]
    assert all(later - sooner >= BO for sooner, later in itertools.pairwise(times))
    begun = [rounds[0][0] for rounds in floor.by_sqn().values()]
    assert all(later - sooner >= SECOND for sooner, later in itertools.pairwise(begun))


@pytest.mark.rfc("POLL-13")
def test_polls_only_answers_to_the_current_poll_count():
    floor = Floor().begin().run(11 * SECOND)
    [(_, asked), *_] = floor.polls
    for sqn, number in ((asked.poll_sqn + 1, 0), (asked.poll_sqn, 9), (0, 0)):
        polr = Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=sqn, poll_round=number)
        assert floor.parent.on_polr(polr, floor.now) == ((), None)
    assert floor.counters.polr_packets_foreign == 3
    assert floor.counters.polr_packets_in == 0


@pytest.mark.rfc("POLL-14", "POLL-09")
def test_polls_child_that_joins_during_rounds_counts_next_time():
    """Round 0 fixes the population.

    Children that join later cause no flood of answers and do not distort the estimate.
    """
    floor = Floor(poll_first_bits=8, poll_history=1).join(40).begin()
    while not floor.polls:
        floor.run(10 * MS)
    floor.join(2000).run(8 * BO)
    assert len(floor.by_sqn()) == 1
    assert floor.parent.population == pytest.approx(40, rel=0.6)
    assert floor.polrs < 100
    floor.run(60 * SECOND)
    assert floor.parent.population == pytest.approx(2040, rel=0.6)


@pytest.mark.rfc("POLL-15")
def test_polls_flood_of_answers_is_cancelled():
    """A poll with another POLL_SQN that hardly any child matches cancels the answers.

    Its own rounds then count all children.
    """
    floor = Floor(poll_history=1).join(10).begin().run(20 * SECOND)
    assert floor.parent.population == 10
    floor.polls.clear()
    floor.polrs = 0
    floor.join(4000).run(30 * SECOND)
    assert floor.counters.polls_aborted == 1
    flood, calm = list(floor.by_sqn().values())[:2]
    assert len(flood) == 1
    assert flood[0][1].mask == EVERYBODY
    assert calm[0][1].poll_sqn == flood[0][1].poll_sqn + 1
    assert calm[0][1].mask.bit_count() >= 8
    assert calm[0][0] - flood[0][0] < BO // 10  # at once, before the end of the interval
    assert floor.polrs < 1000
    assert floor.parent.population == pytest.approx(4010, rel=0.6)


def test_polls_without_an_interval_are_not_sent():
    """By default no poll is sent, so an unwanted count costs nothing."""
    floor = Floor(poll_ivl=0).join(5).begin().run(3600 * SECOND)
    assert floor.polls == []
    assert floor.parent.deadline_ns == NEVER
    assert floor.parent.population is None
    assert parameters().poll_ivl == parameters().poll_dlr_ivl == 0


# Sources and elements


@pytest.mark.rfc("POLL-01", "POLL-04")
def test_a_source_polls_its_segment_and_says_how_many_answered():
    core = source(**SETTINGS)
    now, found = START, []
    while now < START + 60 * SECOND:
        now = max(now, core.deadline_ns)
        for send in core.handle_deadline(now):
            for item in sent_items([send]):
                if item.type is T.POLL:
                    found.append((send.to, item))
                    polr = Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=item.poll_sqn, poll_round=item.poll_round)
                    for channel in (BY_UNICAST, BY_UNICAST, BY_GROUP):
                        receive(core, polr, now, channel)
    assert len(found) > 5
    assert {(to, item.path_nla) for to, item in found} == {(None, OWN)}
    last_round = found[-1][1]
    assert last_round.mask == EVERYBODY
    assert core.status(now)[0].children == {SEGMENT.name: 2}


@pytest.mark.rfc("NE-38", "POLL-01", "POLL-04")
@pytest.mark.parametrize("kind", ["aggregator", "repairer"])
def test_an_element_polls_each_segment_below_and_passes_no_poll_on(kind):
    """The element answers the poll from above as a child.

    Each segment below has its own polls, path and count.
    """
    node = Bench(kind, ElementSetup(UP, (A, B), parents=(SOURCE,)), **SETTINGS).begin()
    node.hear(poll(1, state=SOURCE), UP, SOURCE)
    assert node.sent(T.POLL) == []
    node.wait(BO)
    assert [(send.segment, send.to) for _, send, _ in node.sent(T.POLR)] == [(UP, SOURCE)]
    node.hear(poll(2, state=BELOW[A.index]), A, BELOW[A.index])  # a poll from a node below is ignored
    for step in range(600):
        node.wait(100 * MS)
        for _, send, item in node.sent(T.POLL):
            assert (send.to, item.path_nla) == (None, send.segment.address)
            answer = Polr(tsi=TSI, data_port=DATA_PORT, poll_sqn=item.poll_sqn, poll_round=item.poll_round)
            for _ in range(1 if send.segment is A else 3):
                node.hear(answer, send.segment, BELOW[send.segment.index], is_group=False)
        node.log.clear()
        if step % 10 == 0:
            node.hear(spm_packet(2 + step, 0, 19), UP, SOURCE)
    assert node.core.status(node.now)[0].children == {"a": 1, "b": 3}
    assert node.core.counters.polr_packets == 1


@pytest.mark.rfc("NE-38")
def test_polls_are_sent_by_the_active_relay_only():
    setup = ElementSetup(UP, (A,), parents=(SOURCE,), partners=frozenset({"10.1.0.2"}), is_standby=True)
    node = Bench("aggregator", setup, **SETTINGS)
    for number in range(1, 60):
        node.hear(spm_packet(number, 0, -1), UP, SOURCE)
        node.hear(spm_packet(number, 0, -1), A, "10.1.0.2")
        node.wait(SECOND)
    assert node.sent(T.POLL) == []


@pytest.mark.rfc("POLL-13", "NE-38", "RCV-54", "POLL-11")
def test_a_tree_counts_itself():
    """The tree has a source, two relays, a repairer on one floor, and 40 and 7 receivers.

    Every parent knows the number of nodes one hop below.
    """
    tree = TreeBuilder(lan_parameters(poll_ivl=5 * SECOND, poll_bo_ivl=200 * MS, poll_history=3))
    tree.source("source", "core")
    tree.aggregator("relay-a", "core", "floor-a", parents=("source",))
    tree.repairer("relay-b", "core", "floor-b", parents=("source",))
    tree.repairer("repairer", "floor-a", parents=("relay-a",))
    for index in range(40):
        tree.receiver(f"receiver-a-{index}", "floor-a", "repairer", "relay-a")
    for index in range(7):
        tree.receiver(f"receiver-b-{index}", "floor-b", "relay-b")
    polls = Tap(is_a(T.POLL, T.POLR))
    world = make_world(tree, Traffic(10, start_ns=SECOND, close_at_ns=NEVER), more=(polls,))
    world.run_until(60 * SECOND)

    def children(name):
        [row] = world.core_of(name).status(world.now_ns)
        assert row.tsi.startswith(str(tsi_of("source", 0)[0]))
        return row.children

    assert children("source") == {"core": 2}
    assert children("relay-b") == {"floor-b": 7}
    # The relay has 41 nodes below. 40 receivers and the relay hear the polls of the repairer.
    assert children("relay-a") == {"floor-a": pytest.approx(41, abs=12)}
    for _, name, segment, to, item in polls.seen:
        if item.type is T.POLL:
            assert item.path_nla == tree.address(name, segment)
            assert to is None
        else:
            assert to is not None


def test_polls_of_unknown_sessions_open_no_session():
    reader = Reader()
    reader.hear(poll())
    assert len(reader.core.sessions) == 0
    assert reader.core.counters.foreign_packets == 1
    node = Bench()
    node.hear(poll(), UP, SOURCE)
    assert len(node.core.sessions) == 0


def test_on_one_segment_an_element_is_parent_and_child():
    node = Bench("aggregator", ElementSetup(LAN, (LAN,), parents=(SOURCE,)), **SETTINGS).begin()
    node.hear(poll(1), LAN, SOURCE)
    node.wait(12 * SECOND)
    assert len(node.sent(T.POLR)) == 1
    assert len(node.sent(T.POLL)) >= 1
