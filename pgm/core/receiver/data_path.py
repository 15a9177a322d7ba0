"""The short ways into a receiver: one plain packet that came alone, is next in order, and whose payload is taken at once; and
packets of one read between which some are missing, or which are repairs for some that were.

What `Session.on_data` does for whatever comes, in a fraction of its calls.
"""

from __future__ import annotations

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects
from pgm.core.parity.recovery import ParityRecovery
from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.session_view import SessionView
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla, PacketType, Tsi
from pgm.wire.sequence_numbers import HALF, MASK
from pgm.wire.single_odata import NEXT_HEAD, NEXT_HEADS, header_as_int
from pgm.wire.train import Data, DataWithGaps

_OPEN = SessionPhase.OPEN


@attrs.define  # not frozen: one is made for each packet, and making a frozen one takes three times as long
class PredictedPacket:
    """A plain ODATA of a session that may be delivered at once: what comes before its payload, and what is to be noted of it."""

    session: ShortReceive
    found: tuple[Tsi, int]  # and its sqn
    trail: int
    octets: int  # with its header
    head: int  # `header_as_int` of it


class ShortReceive(SessionView):
    """The part of `pgm.core.receiver.session.ReceiverSession` that takes such packets."""

    front: bytes  # what those of them begin with that may be taken, empty where none may
    gsi: bytes
    _parity: ParityRecovery | None
    _counters: Counters
    _local_repairers: frozenset[Nla]

    @property
    def _has_sequels(self) -> bool:
        """Whether more than a delivery may follow from data."""
        is_ending = self._phase is not _OPEN or self.state.fin_lead is not None
        return is_ending or self._parity is not None or self.feedback.is_wanted

    def _leaves_behind(self, trail: int) -> bool:
        """Whether the source's window ends, or would by this trail, behind something that has not come: that is given up then."""
        trail, window = max(trail, self.state.trail), self.window
        if trail <= window.next_sqn:
            return False
        oldest = self._recovery.missing.oldest
        return trail > window.gap_detector.end or (oldest is not None and oldest.first < trail)

    def passable(self, wire_sqn: int, wire_trail: int, octets: int) -> PredictedPacket | None:
        """A plain ODATA of so many octets, header included, where it is next and nothing but its delivery comes of it; else None."""
        state = self.state
        sqn, behind = state.lead + 1, (wire_sqn - wire_trail) & MASK
        if sqn & MASK != wire_sqn or behind >= HALF or self._has_sequels or not self.window.may_pass(sqn, octets):
            return None
        head = header_as_int(self.front, self.gsi, octets - DATA_HEADER_OCTETS, wire_sqn, wire_trail)
        return PredictedPacket(self, (state.tsi, sqn), sqn - behind, octets, head)

    def note_passed(self, passed: PredictedPacket, peer: Nla, now_ns: int) -> PredictedPacket | None:
        """Note that it came and was delivered; returns the next one, if it may be like it but for its sqn."""
        state, octets, trail = self.state, passed.octets, passed.trail
        self.window.note_passed(octets)
        state.heard_at_ns = now_ns
        self._nak_sender.parents.heard(peer)
        state.saw_next(trail)
        sqn = state.lead + 1
        if not sqn % NEXT_HEADS or sqn - trail >= HALF:
            return self.passable(sqn & MASK, trail & MASK, octets)
        if self._has_sequels or not self.window.may_pass(sqn, octets):
            return None
        passed.found = state.tsi, sqn
        passed.head += NEXT_HEAD
        return passed

    def take_scattered(self, some: DataWithGaps, peer: Nla, now_ns: int) -> Effects | None:
        """Take ODATA or RDATA in pieces that are all new, or all known, where nothing but deliveries comes of that; else None, and nothing was taken."""
        state, window, data = self.state, self.window, some.data
        if self._has_sequels or self._counters.watch is not None or not some.is_ascending:
            return None
        first, trail = state.place(data.wire_sqn, data.wire_trail)
        last = first + some.spans[-1][1] - 1
        if state.is_jump(last) or self._leaves_behind(trail):
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
        state.heard_at_ns = now_ns
        parents = self._nak_sender.parents
        (parents.answered if is_repair else parents.heard)(peer)
        state.saw(last, trail)
        return effects

    def take_train(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> Effects | None:
        """Take ODATA that are next, or behind all that is known, where nothing but their delivery comes of that; else None, and nothing was taken."""
        if trail > first or self._has_sequels:
            return None
        window, state = self.window, self.state
        delivered = window.pass_on(data, first)
        if delivered is None:
            held = None if self._leaves_behind(trail) else window.hold_on(data, first, now_ns)
            if held is None:
                return None
        state.heard_at_ns = now_ns
        self._nak_sender.parents.heard(peer)
        state.saw(first + data.count - 1, trail)
        return held if delivered is None else (delivered,)

    def take_repair(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> Effects | None:
        """Take RDATA, all of it known and not delivered, where nothing but deliveries comes of that; else None, and nothing was taken."""
        state, window = self.state, self.window
        if self._has_sequels or self._leaves_behind(trail):
            return None
        taken = window.repair(data, first, now_ns)
        if taken is None:
            return None
        effects, filled = taken
        self._count_repairs(filled, data.type, peer)
        state.heard_at_ns = now_ns
        self._nak_sender.parents.answered(peer)
        state.saw(first + data.count - 1, trail)
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
