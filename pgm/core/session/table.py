"""Bounded table of sessions by TSI (SEC-01).

Single packets with new TSIs are easy to forge. In a full table a new session therefore takes the place of an ended
session or of another newcomer, never that of a session in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

from pgm.core.counters import Counters
from pgm.core.session.session_counters import SessionCounts
from pgm.core.session.state import SessionState
from pgm.core.status import SessionEdges, SessionStatus
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi


class HasState(Protocol):
    """Session as the table needs it."""

    state: SessionState

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended."""

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's status for operators."""


S = TypeVar("S", bound=HasState)


class SessionTable(Generic[S]):
    """Table of at most `max_sessions` sessions.

    A lookup gives the session the turn: the core's counters then count for that session.
    """

    def __init__(self, parameters: Parameters, counters: Counters) -> None:
        self._parameters = parameters
        self._counters = counters
        self._by_tsi: dict[Tsi, S] = {}
        self._senders: dict[Tsi, Nla] = {}  # of the first packet
        self._shares: SessionCounts[Tsi] = SessionCounts(counters)
        self.turn: S | None = None  # the session that has the turn
        self._others_ns = 0  # earliest deadline of the sessions without the turn; 0: compute it again

    def __iter__(self) -> Iterator[S]:
        self._others_ns = 0  # the caller may change any session
        return iter(self._by_tsi.values())

    def __len__(self) -> int:
        return len(self._by_tsi)

    def get(self, tsi: Tsi) -> S | None:
        """Return the session of a TSI, and give it the turn; None if it is unknown."""
        session = self._by_tsi.get(tsi)
        if session is not self.turn and session is not None:
            self._give_turn(tsi, session)
        return session

    def _give_turn(self, tsi: Tsi, session: S) -> None:
        self.turn = session
        self._others_ns = 0
        self._shares.turn(tsi)

    def earliest_ns(self, deadline_of: Callable[[S], int]) -> int:
        """Return the earliest deadline of all sessions; NEVER without sessions.

        A driver asks after each read. A session changes only while it has the turn, so the others are asked once.
        """
        turn = self.turn
        if not self._others_ns:
            others = [deadline_of(session) for session in self._by_tsi.values() if session is not turn]
            self._others_ns = min(others, default=NEVER)
        return self._others_ns if turn is None else min(self._others_ns, deadline_of(turn))

    def in_turn(self, sessions: Iterable[S] | None = None) -> Iterator[S]:
        """Yield all sessions, or the given ones, and give each the turn."""
        for session in tuple(self._by_tsi.values()) if sessions is None else sessions:
            if session is not self.turn:
                self._give_turn(session.state.tsi, session)
            yield session

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return a row for each session, with its counts."""
        return [
            attrs.evolve(session.status(now_ns), counts=self._shares.counts(tsi))
            for tsi, session in self._by_tsi.items()
        ]

    def edges(self) -> list[SessionEdges]:
        """Return the edges of each session."""
        states = (session.state for session in self._by_tsi.values())
        return [SessionEdges(state.tsi, state.data_port, state.trail, state.lead) for state in states]

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a TSI's session; None if it is unknown. The turn does not change."""
        session = self._by_tsi.get(tsi)
        return None if session is None else session.state

    def has_room(self, now_ns: int) -> bool:
        """Return whether a new session may be added, and count the refusal otherwise."""
        if len(self._by_tsi) < self._parameters.max_sessions or self._replaceable(now_ns) is not None:
            return True
        self._counters.sessions_refused += 1
        return False

    def add(self, tsi: Tsi, session: S, sender: Nla, now_ns: int) -> S | None:
        """Add a session, whose first packet came from `sender`. Return the evicted session, or None.

        The caller has asked `has_room`.
        """
        evicted = None
        if len(self._by_tsi) >= self._parameters.max_sessions:
            tsi_out = self._replaceable(now_ns)
            assert tsi_out is not None
            evicted = self._by_tsi.pop(tsi_out)
            self._forget(tsi_out)
            if not evicted.is_over:
                self._counters.sessions_evicted += 1
        self._by_tsi[tsi] = session
        self._senders[tsi] = sender
        self._give_turn(tsi, session)
        return evicted

    def _replaceable(self, now_ns: int) -> Tsi | None:
        """Return the session to evict for a newcomer, or None.

        Ended sessions are evicted first. Then newcomers: first those of the sender that has most of them, first those
        with the fewest agreements. A session that has proved itself is evicted only after a silence of `peer_expiry`.
        """
        ended = [(session.state.heard_at_ns, tsi) for tsi, session in self._by_tsi.items() if session.is_over]
        if ended:
            return min(ended)[1]
        enough = self._parameters.session_confirmations
        newcomers = [tsi for tsi, session in self._by_tsi.items() if session.state.agreements < enough]
        if newcomers:
            crowds = Counter(self._senders[tsi] for tsi in newcomers)

            def rank(tsi: Tsi) -> tuple[int, int, int, Tsi]:
                state = self._by_tsi[tsi].state
                return -crowds[self._senders[tsi]], state.agreements, state.heard_at_ns, tsi

            return min(newcomers, key=rank)
        heard_at_ns, tsi = min((session.state.heard_at_ns, tsi) for tsi, session in self._by_tsi.items())
        return tsi if now_ns - heard_at_ns >= self._parameters.peer_expiry else None

    def _forget(self, tsi: Tsi) -> None:
        self.turn, self._others_ns = None, 0
        self._shares.forget(tsi)
        del self._senders[tsi]

    def forget(self, is_done: Callable[[S], bool]) -> list[S]:
        """Drop and return the sessions that are done."""
        done = [tsi for tsi, session in self._by_tsi.items() if is_done(session)]
        for tsi in done:
            self._forget(tsi)
        return [self._by_tsi.pop(tsi) for tsi in done]
