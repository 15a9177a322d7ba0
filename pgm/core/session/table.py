"""Bounded table of sessions by TSI (SEC-01). A session beyond the limit evicts another, which is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

from pgm.core.counters import Counters
from pgm.core.session.session_counters import SessionCounts
from pgm.core.session.state import SessionState
from pgm.core.status import SessionStatus
from pgm.wire.formats import Tsi


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
    """Table of at most `limit` sessions.

    Ended sessions are evicted first, then the one silent for longest. A lookup gives the session the turn: the core's
    counters then count for that session.
    """

    def __init__(self, limit: int, counters: Counters) -> None:
        self._limit = limit
        self._counters = counters
        self._by_tsi: dict[Tsi, S] = {}
        self._shares: SessionCounts[Tsi] = SessionCounts(counters)
        self.turn: S | None = None  # the session that has the turn

    def __iter__(self) -> Iterator[S]:
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
        self._shares.turn(tsi)

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

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a TSI's session; None if it is unknown. The turn does not change."""
        session = self._by_tsi.get(tsi)
        return None if session is None else session.state

    def add(self, tsi: Tsi, session: S) -> S | None:
        """Add a session. Return the evicted session, or None."""
        evicted = None
        if len(self._by_tsi) >= self._limit:
            tsi_out, evicted = min(
                self._by_tsi.items(), key=lambda item: (not item[1].is_over, item[1].state.heard_at_ns, item[0])
            )
            del self._by_tsi[tsi_out]
            self._forget(tsi_out)
            if not evicted.is_over:
                self._counters.sessions_evicted += 1
        self._by_tsi[tsi] = session
        self._give_turn(tsi, session)
        return evicted

    def _forget(self, tsi: Tsi) -> None:
        self.turn = None
        self._shares.forget(tsi)

    def forget(self, is_done: Callable[[S], bool]) -> list[S]:
        """Drop and return the sessions that are done."""
        done = [tsi for tsi, session in self._by_tsi.items() if is_done(session)]
        for tsi in done:
            self._forget(tsi)
        return [self._by_tsi.pop(tsi) for tsi in done]
