"""A bounded table of sessions by TSI (SEC-01): one more than allowed evicts by rule, and is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

from pgm.core.counters import Counters
from pgm.core.session.counts import SessionCounts
from pgm.core.session.state import SessionState
from pgm.core.status import SessionStatus
from pgm.wire.formats import Tsi


class HasState(Protocol):
    """What the table needs of a session."""

    state: SessionState

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""

    def status(self, now_ns: int) -> SessionStatus:
        """What operators see of it."""


S = TypeVar("S", bound=HasState)


class SessionTable(Generic[S]):
    """At most `limit` sessions. Ended ones go first, then the one that was silent for longest.

    Whoever is looked up, or has its turn, is the one for whom the core counts from then on.
    """

    def __init__(self, limit: int, counters: Counters) -> None:
        self._limit = limit
        self._counters = counters
        self._by_tsi: dict[Tsi, S] = {}
        self._shares: SessionCounts[Tsi] = SessionCounts(counters)
        self.turn: S | None = None  # whose turn it is

    def __iter__(self) -> Iterator[S]:
        return iter(self._by_tsi.values())

    def __len__(self) -> int:
        return len(self._by_tsi)

    def get(self, tsi: Tsi) -> S | None:
        """The session of a TSI."""
        session = self._by_tsi.get(tsi)
        if session is not self.turn and session is not None:
            self._give_turn(tsi, session)
        return session

    def _give_turn(self, tsi: Tsi, session: S) -> None:
        self.turn = session
        self._shares.turn(tsi)

    def in_turn(self, sessions: Iterable[S] | None = None) -> Iterator[S]:
        """All sessions, or these, each when it has its turn."""
        for session in tuple(self._by_tsi.values()) if sessions is None else sessions:
            if session is not self.turn:
                self._give_turn(session.state.tsi, session)
            yield session

    def status(self, now_ns: int) -> list[SessionStatus]:
        """A row for each session, with what it has counted."""
        return [
            attrs.evolve(session.status(now_ns), counts=self._shares.counts(tsi))
            for tsi, session in self._by_tsi.items()
        ]

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """What is known of the session of a TSI."""
        session = self._by_tsi.get(tsi)
        return None if session is None else session.state

    def add(self, tsi: Tsi, session: S) -> S | None:
        """Take a session in; returns the one that had to go for it."""
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
