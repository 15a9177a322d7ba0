"""Least progress of members that hold up their source."""

from __future__ import annotations

import itertools

from pgm.core.acked.ack_collector import AckCollector, AckReport
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.acked.least_progress import LeastProgress
from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.named_children import NamedChildren
from pgm.units import MILLISECOND, SECOND
from pgm.wire.options import Members
from tests.unit.core.makers import SEGMENT, parameters, session_context

TERMS = AckTerms.of_parameters(parameters(ack_window=1000, ack_stall_ivl=10 * SECOND))
RATE = 1000  # packets a second
MEMBERS = NamedChildren(frozenset({"good", "bad"}), are_all=True)


def test_least_progress_is_a_share_of_the_free_rate_or_a_window():
    progress = LeastProgress(0.2)
    for second in range(5):
        progress.note(100 * second, 100 * second, TERMS, second * SECOND)
    assert progress.least(10 * SECOND, TERMS) == 200  # a fifth of 100 packets a second
    for second in range(5, 10):
        progress.note(10_000 * second, 10_000 * second, TERMS, second * SECOND)
    assert progress.least(10 * SECOND, TERMS) == 1000  # the window


def test_least_progress_does_not_fall_while_the_source_is_held():
    progress = LeastProgress(0.2)
    for second in range(5):
        progress.note(100 * second, 100 * second, TERMS, second * SECOND)
    for second in range(5, 100):
        progress.note(-600, 400, TERMS, second * SECOND)
    assert progress.least(10 * SECOND, TERMS) == 200


class Stream:
    """Source held to a window ahead of its members, a good one and a bad one."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.collector = AckCollector(session_context(parameters(), counters=self.counters), [SEGMENT], MEMBERS)
        self.lead = self.now = 0
        self.notices: list[tuple[int, Notice]] = []

    def step(self, bad: int) -> int:
        """Send packets of 50 ms, and acknowledge them. Return the number of packets sent."""
        low = self.collector.table.low_or(self.lead)
        sent = max(0, min(RATE // 20, low + TERMS.window - self.lead))
        self.lead, self.now = self.lead + sent, self.now + 50 * MILLISECOND
        for peer, acked in (("good", self.lead), ("bad", bad)):
            report = AckReport(acked, Members(members=1, holder=peer), self.lead)
            self.note(self.collector.on_ack(report, SEGMENT, peer, TERMS, self.now))
        self.note(self.collector.handle_deadline(TERMS, self.lead, self.now))
        return sent

    def note(self, effects: object) -> None:
        """Keep the notices."""
        assert isinstance(effects, (list, tuple))
        self.notices += [(self.now, one) for one in effects if isinstance(one, Notice)]


def test_member_that_creeps_again_and_again_counts_ever_later():
    stream, bad, sent = Stream(), 0, 0
    for _ in range(20 * 1000):
        refused = stream.counters.acks_refused
        sent += stream.step(bad)
        bad = stream.lead + RATE // 20 if stream.counters.acks_refused > refused else bad + 1
    assert sent >= 0.9 * 1000 * RATE
    assert {one.code for _, one in stream.notices} == {"member-slow"}
    times = [at for at, _ in stream.notices]
    assert 4 <= len(times) <= 8
    assert all(later - earlier > 20 * SECOND for earlier, later in itertools.pairwise(times[1:]))


def test_member_stuck_once_counts_again_when_it_has_caught_up():
    stream = Stream()
    for _ in range(20 * 13):
        stream.step(0)
    assert [one.code for _, one in stream.notices] == ["member-stuck"]
    assert stream.collector.table.members == 1
    stream.step(stream.lead + RATE // 20)
    assert stream.collector.table.members == 2


def test_unlisted_member_is_refused_and_reported_once():
    stream = Stream()
    report = AckReport(0, Members(members=1, holder="10.9.9.9"), 0)
    for now in range(0, 9 * SECOND, SECOND):
        stream.note(stream.collector.on_ack(report, SEGMENT, "10.9.9.9", TERMS, now))
    [(_, told)] = stream.notices
    assert told.code == "member-unlisted"
    assert "10.9.9.9" in told.text
    assert stream.counters.acks_unlisted == 9
    assert not stream.collector.table.members
