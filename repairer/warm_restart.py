"""Warm restart: the cache of an earlier process of the node, and what a later process will need.

The packets that an earlier process saved wait in the cache, by TSI. They are not served yet. The first SPM of a session
tells whether the source's session is still the same. Then the packets join the session, and the packets that were sent
meanwhile are requested. Packets of other sessions are dropped.

A session is the same if the data port and the epoch are equal. A source without an epoch must have the newest saved
packet in its window. From the first SPM on, all packets of a session are saved in turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice, Save
from pgm.core.repair.cache import RepairCache, SessionCache
from pgm.core.session.state import NO_EPOCH, SessionState
from pgm.core.session.table import HasState, SessionTable
from pgm.wire.formats import Tsi, tsi_text
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Run
from repairer.intake import PacketIntake


class HasIntake(HasState, Protocol):
    """Session whose cached packets can be saved."""

    intake: PacketIntake


H = TypeVar("H", bound=HasIntake)


@attrs.frozen(eq=False)
class EarlierSession:
    """Packets of one session that an earlier process saved, under the sqns of `Save`."""

    data_port: int
    epoch_ns: int
    cache: SessionCache

    def shift_to(self, state: SessionState) -> int | None:
        """Return what to add to sqns for a session of this process; None if it is another session, or nothing is left."""
        newest = self.cache.store.newest
        if newest is None or (self.data_port, self.epoch_ns) != (state.data_port, state.epoch.started_ns):
            return None
        if state.epoch is not NO_EPOCH:
            return -state.epoch.shift
        last = state.unwrap(wrap(newest.end - 1))
        return last - (newest.end - 1) if state.trail <= last <= state.lead else None


class ColdRestart:
    """Restart of a repairer without a cache file."""

    def restore(self, saved: Iterable[tuple[int, Save]]) -> None:
        """Do nothing."""

    def advance(self, sessions: SessionTable[H], tsis: Iterable[Tsi], now_ns: int) -> Effects:
        """Return nothing."""
        return NOTHING


class WarmRestart:
    """Saved packets of all sessions of a repairer, of the earlier process and of this one."""

    def __init__(self, cache: RepairCache, most_sessions: int, counters: Counters) -> None:
        self._cache = cache
        self._most_sessions = most_sessions
        self._counters = counters
        self._earlier: dict[Tsi, EarlierSession] = {}

    def restore(self, saved: Iterable[tuple[int, Save]]) -> None:
        """Cache what an earlier process saved, with times in ns. The newest session of a TSI counts."""
        in_order = sorted(saved, key=lambda entry: entry[0])
        newest: dict[Tsi, Save] = {}
        for _, save in reversed(in_order):
            if len(newest) < self._most_sessions:
                newest.setdefault(save.tsi, save)
        for tsi, save in newest.items():
            self._earlier[tsi] = EarlierSession(save.data_port, save.epoch_ns, self._cache.open_session())
        for at_ns, save in in_order:
            earlier = self._earlier.get(save.tsi)
            if earlier is None or (save.data_port, save.epoch_ns) != (earlier.data_port, earlier.epoch_ns):
                self._counters.cache_packets_discarded += save.run.count
                continue
            for first, end in earlier.cache.lacking([(save.run.first, save.run.end)]):
                earlier.cache.add(save.run.part(first, end), at_ns)

    def advance(self, sessions: SessionTable[H], tsis: Iterable[Tsi], now_ns: int) -> Effects:
        """Return the packets of sessions to save since the last call, after those of an earlier process were taken over."""
        effects: list[Effect] = []
        for tsi in tsis:
            session = sessions.get(tsi)
            if session is None:
                continue
            cache = session.intake.cache
            if not cache.is_saved:
                if session.state.spm is None or not session.state.has_edges:  # the SPM carries the session's epoch
                    continue
                cache.save()
                effects += self._take_over(session, now_ns)
            if cache.unsaved:
                state = session.state
                port, epoch_ns, shift = state.data_port, state.epoch.started_ns, state.epoch.shift
                effects += [Save(tsi, port, epoch_ns, _moved(run, shift)) for run in cache.take_unsaved()]
        return effects

    def _take_over(self, session: H, now_ns: int) -> Effects:
        earlier = self._earlier.pop(session.state.tsi, None)
        if earlier is None:
            return NOTHING
        shift = earlier.shift_to(session.state)
        if shift is None:
            self._counters.cache_packets_discarded += earlier.cache.store.packets
            self._cache.close_session(earlier.cache)
            return NOTHING
        packets = session.intake.take_over(earlier.cache, shift, now_ns)
        self._counters.cache_packets_restored += packets
        text = f"session {tsi_text(session.state.tsi)}: took over {packets} packets of the earlier process"
        return (Notice("cache-restored", text),)


def _moved(run: Run, shift: int) -> Run:
    return Run(run.first + shift, run.count, run.buffer, run.offset, run.stride, run.payload_at) if shift else run
