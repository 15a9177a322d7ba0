"""What a repairer keeps: runs per session, bounded in octets and in time for all sessions together.

The bound counts pinned memory, whole chunks. When it is reached, the session that holds most gives up its
oldest packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.parameters import Parameters
from pgm.wire.train import Octets, Run

_ROOM_SHARE = 0.875  # of the octets: beyond that nothing old is fetched, since it would have to go at once
_MARK_IVL_DIVISOR = 64  # ages are kept in steps of cache_secs / 64


class SessionCache:
    """The cached packets of one session."""

    def __init__(self, cache: RepairCache) -> None:
        self._cache = cache
        self.store = RunStore()
        self.ages: deque[tuple[int, int]] = deque()  # (when, newest sqn + 1 by then)
        self.dropped_before = 0  # what was held below this sqn had to go
        self._promised_from = 0  # late joiners were told that it is held from here on, ...
        self._promised_until_ns = 0  # ... and that they have time to take it

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """What is held of `first` to `end - 1`, in order."""
        return self.store.parts(first, end)

    def stride_of(self, first: int, end: int) -> int:
        """The size of the packets `first` to `end - 1` if all are held and of one size, in a few runs; else 0."""
        return self.store.stride_of(first, end)

    def copy_of(self, spans: Sequence[Span], stride: int) -> Octets:
        """Copies of packets of spans in order, of which `stride_of` has said that they are there."""
        return self.store.copy_of(spans, stride)

    def add(self, run: Run, now_ns: int) -> None:
        """Keep a run; makes room if need be."""
        self.store.add(run)
        if not self.ages or now_ns - self.ages[-1][0] >= self._cache.mark_ivl:
            self.ages.append((now_ns, run.end))
        elif run.end > self.ages[-1][1]:
            self.ages[-1] = (self.ages[-1][0], run.end)
        self._cache.keep_bounds(now_ns)

    @property
    def has_room(self) -> bool:
        """Whether more can be kept without giving up what is."""
        return self._cache.has_room

    def promise(self, first: int, now_ns: int) -> None:
        """A late joiner was told that history begins here: keep it as long again, as far as the octets allow."""
        is_kept = now_ns < self._promised_until_ns
        self._promised_from = min(first, self._promised_from) if is_kept else first
        self._promised_until_ns = now_ns + self._cache.keeps_ivl

    def drop_old(self, before_ns: int, now_ns: int) -> None:
        """Forget what came before an instant."""
        while self.ages and self.ages[0][0] < before_ns:
            if now_ns < self._promised_until_ns and self.ages[0][1] > self._promised_from:
                break
            self.dropped_before = self.ages.popleft()[1]
            self.store.drop_before(self.dropped_before)


class RepairCache:
    """The caches of all sessions of one repairer."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._sessions: list[SessionCache] = []
        self.keeps_ivl = parameters.cache_secs
        self.mark_ivl = parameters.cache_secs // _MARK_IVL_DIVISOR

    def open_session(self) -> SessionCache:
        """A cache for one more session."""
        session = SessionCache(self)
        self._sessions.append(session)
        return session

    def close_session(self, session: SessionCache) -> None:
        """Forget a session."""
        self._sessions.remove(session)

    @property
    def pinned_octets(self) -> int:
        """Memory held, whole chunks."""
        return sum(one.store.pinned_octets for one in self._sessions)

    @property
    def packets(self) -> int:
        """Packets held."""
        return sum(one.store.packets for one in self._sessions)

    @property
    def has_room(self) -> bool:
        """Whether more than the room that is kept free for what comes anew is left."""
        return self.pinned_octets < self._parameters.cache_bytes * _ROOM_SHARE

    def keep_bounds(self, now_ns: int) -> None:
        """Forget what is too old or too much."""
        for session in self._sessions:
            if session.ages and session.ages[0][0] < now_ns - self._parameters.cache_secs:
                session.drop_old(now_ns - self._parameters.cache_secs, now_ns)
        while self.pinned_octets > self._parameters.cache_bytes:
            largest = max(self._sessions, key=lambda one: one.store.pinned_octets)
            assert largest.store.oldest is not None
            largest.dropped_before = largest.store.cut_oldest(largest.store.oldest.count).end
