"""The short ways into a receiver: one plain packet that came alone, is next in order, and whose payload is taken at once; and
packets of one read between which some are missing, or which are repairs for some that were.

What `Session.on_data` does for whatever comes, in a fraction of its calls.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects
from pgm.core.parity_receiver import ParityReceiver
from pgm.core.session_state import SessionState
from pgm.core.session_view import SessionView
from pgm.wire.formats import Nla, PacketType
from pgm.wire.serial import HALF, MASK
from pgm.wire.train import Data, Scattered

_OPEN = SessionState.OPEN


class ShortReceive(SessionView):
    """The part of `pgm.core.session.Session` that takes such packets."""

    front: bytes  # what those of them begin with that may be taken, empty where none may
    gsi: bytes
    _parity: ParityReceiver | None
    _counters: Counters
    _local_repairers: frozenset[Nla]

    @property
    def _has_sequels(self) -> bool:
        """Whether more than a delivery may follow from data."""
        is_ending = self._state is not _OPEN or self.path.fin_lead is not None
        return is_ending or self._parity is not None or self.feedback.is_wanted

    def pass_alone(self, wire_sqn: int, wire_trail: int, octets: int, peer: Nla, now_ns: int) -> int | None:
        """Deliver a plain ODATA of so many octets, header included; returns its sqn. None, and nothing was taken, where it is not next."""
        path, window = self.path, self.window
        sqn, behind = path.lead + 1, (wire_sqn - wire_trail) & MASK
        if sqn & MASK != wire_sqn or behind >= HALF or self._has_sequels or not window.pass_alone(sqn, octets):
            return None
        path.heard_at_ns = now_ns
        self._asker.parents.heard(peer)
        path.saw_next(sqn - behind)
        return sqn

    def take_scattered(self, some: Scattered, peer: Nla, now_ns: int) -> Effects | None:
        """Take ODATA or RDATA in pieces that are all new, or all known, where nothing but deliveries comes of that; else None, and nothing was taken."""
        path, window, data = self.path, self.window, some.data
        if self._has_sequels or self._recovery.has_parked or self._counters.watch is not None or not some.is_ascending:
            return None
        first, trail = path.place(data.wire_sqn, data.wire_trail)
        last = first + some.spans[-1][1] - 1
        if path.is_jump(last) or max(trail, path.trail) > window.next_sqn:
            return None
        is_repair = data.type is PacketType.RDATA
        effects: list[Effect] | None
        if is_repair:
            filled = window.fill(some, first, now_ns)
            if filled is None:
                return None
            self._count_repairs(filled, data.type, peer)
            effects = window.advance()
        else:
            effects = window.take_behind(some, first, now_ns)
            if effects is None:
                return None
        path.heard_at_ns = now_ns
        parents = self._asker.parents
        (parents.answered if is_repair else parents.heard)(peer)
        path.saw(last, trail)
        return effects

    def take_repair(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> Effects | None:
        """Take RDATA, all of it known and not delivered, where nothing but deliveries comes of that; else None, and nothing was taken."""
        path, window = self.path, self.window
        if self._has_sequels or max(trail, path.trail) > window.next_sqn:
            return None
        taken = window.repair(data, first, now_ns)
        if taken is None:
            return None
        effects, filled = taken
        self._count_repairs(filled, data.type, peer)
        path.heard_at_ns = now_ns
        self._asker.parents.answered(peer)
        path.saw(first + data.count - 1, trail)
        return effects

    def _count_repairs(self, filled: int, kind: PacketType, peer: Nla) -> None:
        """Note how much that had been missing has come, and from whom."""
        if filled and self._counters.watch is not None:
            self._counters.watch.filled(kind, peer)
        if kind is PacketType.ODATA:
            self._counters.late_sqns += filled
            return
        self._counters.repaired_sqns += filled
        if peer in self._local_repairers:
            self._counters.repaired_locally += filled
