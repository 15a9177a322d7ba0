"""Index of an archive in memory: the batches of every session by ascending sqn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import attrs

from pgm.archive.requests import SessionExtent
from pgm.archive.session import ReachedSession, RecordedSession
from pgm.archive.store.segment import BatchEntry

Key = tuple[str, int | None]


@attrs.define(eq=False)
class SessionEntries:
    """Batches of one session. The batches follow each other without a gap, unless a segment is damaged."""

    session: RecordedSession
    next_sqn: int
    entries: list[BatchEntry] = attrs.field(factory=list)
    firsts: list[int] = attrs.field(factory=list)
    closed: bool = False

    def add(self, entry: BatchEntry) -> None:
        """Add the batch that follows all others."""
        self.session = entry.session
        self.closed = entry.closes
        self.next_sqn = max(self.next_sqn, entry.end)
        if entry.rows:
            self.entries.append(entry)
            self.firsts.append(entry.first)

    def drop_segment(self, number: int) -> None:
        """Remove the batches of the oldest segment."""
        count = 0
        while count < len(self.entries) and self.entries[count].segment <= number:
            count += 1
        del self.entries[:count], self.firsts[:count]

    @property
    def received_us(self) -> int:
        """Time of the newest row, microseconds since 1970."""
        return self.entries[-1].received_us[1] if self.entries else 0

    @property
    def oldest(self) -> int:
        """First sqn held."""
        return self.firsts[0] if self.firsts else self.next_sqn

    def reaching(self, first: int) -> Iterator[BatchEntry]:
        """Yield the batches from the one that holds `first`, or from the next one. The list may grow meanwhile."""
        at = max(0, bisect_right(self.firsts, first) - 1)
        while at < len(self.entries):
            if self.entries[at].end > first:
                yield self.entries[at]
            at += 1

    def holding(self) -> SessionExtent:
        """Return the extent that clients are given."""
        return SessionExtent(
            **attrs.asdict(self.session),
            oldest=self.oldest,
            next_sqn=self.next_sqn,
            rows=sum(entry.rows for entry in self.entries),
            octets=sum(entry.octets for entry in self.entries),
            first_received_us=self.entries[0].received_us[0],
            last_received_us=self.entries[-1].received_us[1],
            closed=self.closed,
        )


class Index:
    """Sessions of an archive by TSI and epoch."""

    def __init__(self) -> None:
        self.sessions: dict[Key, SessionEntries] = {}

    def add(self, entry: BatchEntry) -> None:
        """Add the next batch of the archive."""
        entries = self.sessions.get(entry.session.key)
        if entries is None:
            entries = self.sessions[entry.session.key] = SessionEntries(entry.session, entry.first)
        entries.add(entry)

    def drop_segment(self, number: int) -> None:
        """Remove the oldest segment, and the sessions without any batch left."""
        for key, session in list(self.sessions.items()):
            session.drop_segment(number)
            if not session.entries:
                del self.sessions[key]

    def reached(self, most: int) -> list[ReachedSession]:
        """Return how far the rows of at most `most` sessions reach: the last is that with the newest row."""
        by_age = sorted(self.sessions.values(), key=lambda one: one.received_us)
        return [
            ReachedSession(one.session.tsi, one.session.epoch_us, one.next_sqn, one.closed) for one in by_age[-most:]
        ]

    def holdings(self) -> list[SessionExtent]:
        """Return the extents of all sessions, by TSI and epoch."""
        ordered = sorted(self.sessions, key=lambda key: (key[0], key[1] or 0))
        return [self.sessions[key].holding() for key in ordered if self.sessions[key].entries]
