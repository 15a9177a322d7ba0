"""Cache of a repairer or relay: runs by session, bounded in octets and time.

The bounds are for all sessions together. The bound in octets counts pinned memory, in whole chunks. When the bound is
reached, the session with the largest share drops its oldest packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from pgm.core.structures.ranges import Span, without
from pgm.core.structures.run_store import RunStore
from pgm.units import NEVER
from pgm.wire.checksum import CHECKSUM_AT
from pgm.wire.train import Octets, Run

_ROOM_SHARE = 0.875  # Share of the octets above which no history is fetched: the cache would drop it at once.
_MARK_IVL_DIVISOR = 64  # ages are kept in steps of keeps_ivl / 64


class SessionCache:
    """The cached packets of one session."""

    def __init__(self, cache: RepairCache) -> None:
        self._cache = cache
        self.store = RunStore()
        self.ages: deque[tuple[int, int]] = deque()  # (time, newest sqn + 1 at that time)
        self.dropped_before = 0  # packets below this sqn were dropped
        self.kept_from = NEVER  # packets from this sqn on wait for an archive, and age no further
        self.is_saved = False  # whether new runs are noted in `unsaved`
        self.unsaved: list[Run] = []  # cached since the last call of `take_unsaved`
        self._promised_from = 0  # first sqn that was promised to late joiners
        self._promised_until_ns = 0  # end of the time in which late joiners can request the promised sqns

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """Yield the cached runs of `first` to `end - 1`, in order."""
        return self.store.parts(first, end)

    def lacking(self, spans: Sequence[Span]) -> list[Span]:
        """Return the parts of ordered `spans` that are not cached, in order."""
        lacking: list[Span] = []
        for first, end in spans:
            at = first
            for part in self.store.parts(first, end):
                if part.first > at:
                    lacking.append((at, part.first))
                at = part.end
            if at < end:
                lacking.append((at, end))
        return lacking

    def stride_of(self, first: int, end: int) -> int:
        """Return the size of packets `first` to `end - 1`; 0 unless all are cached, of one size, in few runs."""
        return self.store.stride_of(first, end)

    def copy_of(self, spans: Sequence[Span], stride: int) -> Octets:
        """Copy the packets of ordered spans that `stride_of` has confirmed."""
        return self.store.copy_of(spans, stride)

    def add(self, run: Run, now_ns: int) -> None:
        """Cache a run, and make room if necessary."""
        pinned_octets = self.store.pinned_octets
        self.store.add(run)
        if self.is_saved:
            self.unsaved.append(run)
        is_marked = not self.ages or now_ns - self.ages[-1][0] >= self._cache.mark_ivl
        if is_marked:
            self.ages.append((now_ns, run.end))
        elif run.end > self.ages[-1][1]:
            self.ages[-1] = (self.ages[-1][0], run.end)
        if is_marked or self.store.pinned_octets > pinned_octets:  # else no bound can be reached
            self._cache.keep_bounds(now_ns)

    def drop(self, first: int, end: int) -> None:
        """Drop packets, also from the next process of this node: a record with a damaged packet is not taken over."""
        if self.is_saved:
            for part in self.store.parts(first, end):  # in the memory of the cache file
                part.rows[:, CHECKSUM_AT] ^= 0xFF
            self.unsaved = [
                run.part(low, high)
                for run in self.unsaved
                for low, high in without([(run.first, run.end)], [(first, end)])
            ]
        self.store.cut_out(first, end)

    def save(self) -> None:
        """Note the cached runs, and from now on every new run, in `unsaved`."""
        self.is_saved = True
        self.unsaved = [run.part(run.first, run.end) for run in self.store]

    def take_unsaved(self) -> list[Run]:
        """Return the runs noted since the last call."""
        runs, self.unsaved = self.unsaved, []
        return runs

    def take_over(self, other: SessionCache, shift: int) -> list[Run]:
        """Take over the packets that only `other` has, with `shift` added to sqns, and close `other`. Return them."""
        taken: list[Run] = []
        for run in other.store:
            moved = Run(run.first + shift, run.count, run.buffer, run.offset, run.stride, run.payload_at)
            taken += [moved.part(first, end) for first, end in self.lacking([(moved.first, moved.end)])]
        for run in taken:
            self.store.add(run)
        self.ages = deque(sorted([*((at_ns, end + shift) for at_ns, end in other.ages), *self.ages]))
        self._cache.close_session(other)
        return taken

    @property
    def has_room(self) -> bool:
        """Whether more history can be cached without dropping packets."""
        return self._cache.has_room

    def promise(self, first: int, now_ns: int) -> None:
        """Keep packets from `first`, promised to a late joiner, for another `keeps_ivl` if the octets allow."""
        is_kept = now_ns < self._promised_until_ns
        self._promised_from = min(first, self._promised_from) if is_kept else first
        self._promised_until_ns = now_ns + self._cache.keeps_ivl

    def drop_old(self, before_ns: int, now_ns: int) -> None:
        """Drop packets that came before `before_ns`, except those promised, or awaited by an archive."""
        while self.ages and self.ages[0][0] < before_ns:
            if now_ns < self._promised_until_ns and self.ages[0][1] > self._promised_from:
                break
            if self.ages[0][1] > self.kept_from:
                break
            self.dropped_before = self.ages.popleft()[1]
            self.store.drop_before(self.dropped_before)


class RepairCache:
    """The caches of all sessions of one element: at most `most_octets`, each packet for `keeps_ivl` ns."""

    def __init__(self, most_octets: int, keeps_ivl: int) -> None:
        self._most_octets = most_octets
        self._sessions: list[SessionCache] = []
        self.keeps_ivl = keeps_ivl
        self.mark_ivl = keeps_ivl // _MARK_IVL_DIVISOR

    def grow(self, most_octets: int, keeps_ivl: int) -> None:
        """Take larger bounds. Smaller ones need a new cache."""
        self._most_octets = max(self._most_octets, most_octets)
        self.keeps_ivl = max(self.keeps_ivl, keeps_ivl)
        self.mark_ivl = self.keeps_ivl // _MARK_IVL_DIVISOR

    def open_session(self) -> SessionCache:
        """Add the cache of a session, and return it."""
        session = SessionCache(self)
        self._sessions.append(session)
        return session

    def close_session(self, session: SessionCache) -> None:
        """Remove the cache of a session."""
        self._sessions.remove(session)

    @property
    def pinned_octets(self) -> int:
        """Memory of all caches in octets, in whole chunks."""
        return sum(session.store.pinned_octets for session in self._sessions)

    @property
    def packets(self) -> int:
        """Number of cached packets."""
        return sum(session.store.packets for session in self._sessions)

    @property
    def has_room(self) -> bool:
        """Whether more memory is free than the reserve for new data."""
        return self.pinned_octets < self._most_octets * _ROOM_SHARE

    def keep_bounds(self, now_ns: int) -> None:
        """Drop packets that are too old or exceed the octets."""
        for session in self._sessions:
            if session.ages and session.ages[0][0] < now_ns - self.keeps_ivl:
                session.drop_old(now_ns - self.keeps_ivl, now_ns)
        while self.pinned_octets > self._most_octets:
            largest = max(self._sessions, key=lambda session: session.store.pinned_octets)
            assert largest.store.oldest is not None
            largest.dropped_before = largest.store.cut_oldest(largest.store.oldest.count).end
