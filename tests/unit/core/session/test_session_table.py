"""Table of sessions: its earliest deadline, for which a session without news is asked once."""

from __future__ import annotations

import random
from collections import Counter

import attrs

from pgm.core.counters import Counters
from pgm.core.session.state import SessionState
from pgm.core.session.table import SessionTable
from pgm.core.session_context import SessionContext
from pgm.parameters import Parameters
from pgm.units import NEVER


@attrs.define(eq=False)
class FakeSession:
    """Session with a deadline that the test sets."""

    state: SessionState
    deadline_ns: int
    is_over: bool = False


class Asked:
    """Table of three sessions, and how often each was asked for its deadline."""

    def __init__(self) -> None:
        parameters, counters = Parameters(max_sessions=3), Counters()
        self.table: SessionTable[FakeSession] = SessionTable(parameters, counters)
        self.times: Counter[bytes] = Counter()
        for number in range(3):
            tsi = b"session%d" % number
            state = SessionState(SessionContext(tsi, 7500, parameters, counters, random.Random(1)))
            self.table.add(tsi, FakeSession(state, 100 * (1 + number)), "10.0.0.1", 0)

    def earliest_ns(self) -> int:
        """Return the earliest deadline, and count the questions."""

        def deadline_of(session: FakeSession) -> int:
            self.times[bytes(session.state.tsi)] += 1
            return session.deadline_ns

        return self.table.earliest_ns(deadline_of)

    def change(self, number: int, deadline_ns: int) -> None:
        """Change the deadline of a session, which has the turn then."""
        session = self.table.get(b"session%d" % number)
        assert session is not None
        session.deadline_ns = deadline_ns


def test_table_without_sessions_has_no_deadline() -> None:
    table: SessionTable[FakeSession] = SessionTable(Parameters(), Counters())
    assert table.earliest_ns(lambda session: session.deadline_ns) == NEVER


def test_reads_of_one_session_ask_the_others_once() -> None:
    asked = Asked()
    for read in range(10):
        asked.change(0, 200 - read)
        assert asked.earliest_ns() == 200 - read
    assert asked.times == {b"session0": 10, b"session1": 1, b"session2": 1}


def test_earliest_deadline_follows_every_change() -> None:
    asked = Asked()
    assert asked.earliest_ns() == 100
    asked.change(2, 50)
    assert asked.earliest_ns() == 50
    asked.change(0, 70)
    assert asked.earliest_ns() == 50
    for session in asked.table:
        session.deadline_ns += 1000
    assert asked.earliest_ns() == 1050
    asked.table.forget(lambda session: session.deadline_ns == 1050)
    assert asked.earliest_ns() == 1070
    for session in asked.table.in_turn():
        session.deadline_ns = 5
    assert asked.earliest_ns() == 5
