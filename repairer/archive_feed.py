"""Feed of one session's cached packets to an archive, in order.

Each packet is fed once, and packets that will never come are fed as losses. A repairer caches packets in arrival order.
The feed follows up to the oldest packet that is still missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from pgm.core.effects import NOTHING, CloseCause, Closed, Deliver, Effect, Effects, LossCause, Lost
from pgm.core.repair.cache import SessionCache
from pgm.core.repair.conflicts import CacheConflicts
from pgm.core.session.table import HasState, SessionTable
from pgm.wire.formats import Tsi
from repairer.resume import Resume
from repairer.upstream import Upstream


class ArchiveFeed:
    """Position up to which a session was fed to the archive."""

    def __init__(self, upstream: Upstream, cache: SessionCache, conflicts: CacheConflicts, resume: Resume) -> None:
        self._state = upstream.state
        self._gap_detector = upstream.gap_detector
        self._recovery = upstream.recovery
        self._cache = cache
        self._conflicts = conflicts
        self._resume = resume
        self._at: int | None = None
        self._begun = 0  # first sqn of this process
        self._is_closed = False

    def advance(self, now_ns: int) -> Effects:
        """Return the deliveries and losses that became certain since the last call."""
        if self._at is None:
            if self._state.spm is None or not self._state.has_edges:  # the SPM carries the session's epoch
                return NOTHING
            self._at = self._resume.first(now_ns)
            if self._at is None or not self._gap_detector.has_begun:
                self._at = None
                return NOTHING
            self._begun = self._gap_detector.first
        missing = next(self._recovery.missing.reaching(self._at), None)
        end = self._gap_detector.end if missing is None else max(self._at, missing.first)
        effects = self._up_to(self._at, end) if end > self._at else []
        self._at = self._cache.kept_from = max(self._at, end)
        fin = self._state.end.lead
        if fin is not None and end > fin and not self._is_closed:
            self._is_closed = True
            effects.append(Closed(self._state.tsi, end, CloseCause.FIN))
        return effects

    def end(self, cause: CloseCause) -> Effects:
        """Return the rest of a session that is dropped, and its end."""
        if self._at is None or self._is_closed:
            return NOTHING
        self._is_closed = True
        end = max(self._at, self._gap_detector.end)
        return [*self._up_to(self._at, end), Closed(self._state.tsi, end, cause)]

    def _up_to(self, at: int, end: int) -> list[Effect]:
        effects: list[Effect] = []
        for part in self._cache.parts(at, end):
            if part.first > at:
                effects.append(self._lost(at, part.first))
            effects.append(Deliver(self._state.tsi, part))
            at = part.end
        if at < end:
            effects.append(self._lost(at, end))
        return effects

    def _lost(self, first: int, end: int) -> Lost:
        """Return a loss whose cause follows from its position."""
        if self._conflicts.is_barred(first):
            cause = LossCause.CONFLICT
        elif end <= max(self._cache.dropped_before, self._begun):
            # The cache dropped the packets before everything older was certain, or the node did not run.
            cause = LossCause.RECORDER
        elif end <= self._gap_detector.first:
            cause = LossCause.JUMP
        else:
            cause = LossCause.WINDOW if end <= self._state.trail else LossCause.RETRIES
        return Lost(self._state.tsi, first, end - first, cause)


class HasFeed(HasState, Protocol):
    """Session whose cached packets can be fed."""

    def open_feed(self) -> ArchiveFeed:
        """Return a feed of all cached packets in order."""


F = TypeVar("F", bound=HasFeed)


class NoFeeds:
    """Feeds of a repairer without an archive."""

    def advance(self, sessions: SessionTable[F], tsis: Iterable[Tsi], now_ns: int) -> Effects:
        """Return nothing."""
        return NOTHING

    def end(self, tsi: Tsi, cause: CloseCause) -> Effects:
        """Return nothing."""
        return NOTHING


class ArchiveFeeds:
    """Feeds of all sessions of a repairer."""

    def __init__(self) -> None:
        self._feeds: dict[Tsi, ArchiveFeed] = {}

    def advance(self, sessions: SessionTable[F], tsis: Iterable[Tsi], now_ns: int) -> Effects:
        """Return the deliveries and losses of sessions that became certain since the last call."""
        effects: list[Effect] = []
        for tsi in tsis:
            if tsi not in self._feeds and (session := sessions.get(tsi)):
                self._feeds[tsi] = session.open_feed()
            if tsi in self._feeds:
                effects += self._feeds[tsi].advance(now_ns)
        return effects

    def end(self, tsi: Tsi, cause: CloseCause) -> Effects:
        """Return the rest of a session that is dropped, and its end."""
        return self._feeds.pop(tsi).end(cause) if tsi in self._feeds else NOTHING
