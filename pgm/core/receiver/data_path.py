"""Fast paths of a receiver's session.

One fast path takes a single plain packet that is next in order and whose payload is taken at once. Others take trains
in order, trains with gaps, and repairs. Each has the effect of `ReceiverSession.on_data` in a fraction of its calls.
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


@attrs.define  # not frozen: one object is made per packet, and making a frozen object takes three times as long
class PredictedPacket:
    """A plain ODATA that may be delivered at once: its header and its bookkeeping."""

    session: ShortReceive
    packet: tuple[Tsi, int]  # and its sqn
    trail: int
    octets: int  # with its header
    head: int  # the packet's `header_as_int`


class ShortReceive(SessionView):
    """The fast paths of `pgm.core.receiver.session.ReceiverSession`."""

    front: bytes  # the first octets of packets that the fast path takes; empty if there is no fast path
    gsi: bytes
    _parity: ParityRecovery | None
    _counters: Counters
    _local_repairers: frozenset[Nla]

    @property
    def _has_sequels(self) -> bool:
        """Whether data may cause more than a delivery."""
        is_ending = self._phase is not _OPEN or self.state.fin_lead is not None
        return is_ending or self._parity is not None or self.feedback.is_wanted

    def _passes_missing(self, trail: int) -> bool:
        """Return whether the source's window would leave missing packets behind.

        The window's trail is the larger of `trail` and the known trail. Packets before it would be given up.
        """
        trail, window = max(trail, self.state.trail), self.window
        if trail <= window.next_sqn:
            return False
        oldest = self._recovery.missing.oldest
        return trail > window.gap_detector.end or (oldest is not None and oldest.first < trail)

    def predict(self, wire_sqn: int, wire_trail: int, octets: int) -> PredictedPacket | None:
        """Predict a plain ODATA packet that may be delivered at once.

        `octets` includes the header. Return None if the packet is not next, or would cause more than its delivery.
        """
        state = self.state
        sqn, trail_distance = state.lead + 1, (wire_sqn - wire_trail) & MASK
        if (
            sqn & MASK != wire_sqn
            or trail_distance >= HALF
            or self._has_sequels
            or not self.window.may_pass(sqn, octets)
        ):
            return None
        head = header_as_int(self.front, self.gsi, octets - DATA_HEADER_OCTETS, wire_sqn, wire_trail)
        return PredictedPacket(self, (state.tsi, sqn), sqn - trail_distance, octets, head)

    def note_passed(self, passed: PredictedPacket, peer: Nla, now_ns: int) -> PredictedPacket | None:
        """Note that a packet was delivered, and predict the next packet.

        Return None if no packet can be predicted. The prediction equals the last packet except for its sqn.
        """
        state, octets, trail = self.state, passed.octets, passed.trail
        self.window.note_passed(octets)
        state.heard_at_ns = now_ns
        self._nak_sender.parents.heard(peer)
        state.saw_next(trail)
        sqn = state.lead + 1
        if not sqn % NEXT_HEADS or sqn - trail >= HALF:
            return self.predict(sqn & MASK, trail & MASK, octets)
        if self._has_sequels or not self.window.may_pass(sqn, octets):
            return None
        passed.packet = state.tsi, sqn
        passed.head += NEXT_HEAD
        return passed

    def take_scattered(self, pieces: DataWithGaps, peer: Nla, now_ns: int) -> Effects | None:
        """Take pieces of ODATA or RDATA that are all new or all known.

        Return None and take nothing if the data would cause more than deliveries.
        """
        state, window, data = self.state, self.window, pieces.data
        if self._has_sequels or self._counters.watch is not None or not pieces.is_ascending:
            return None
        first, trail = state.place(data.wire_sqn, data.wire_trail)
        last = first + pieces.spans[-1][1] - 1
        if state.is_jump(last) or self._passes_missing(trail):
            return None
        is_repair = data.type is PacketType.RDATA
        effects: list[Effect] | None
        if is_repair:
            filled = window.fill(pieces, first, now_ns)
            if filled is None:
                return None
            self._count_repairs(filled, data.type, peer)
            effects = window.advance()
        else:
            effects = window.take_behind(pieces, first, now_ns)
            if effects is None:
                return None
        state.heard_at_ns = now_ns
        parents = self._nak_sender.parents
        (parents.answered if is_repair else parents.heard)(peer)
        state.saw(last, trail)
        return effects

    def take_train(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> Effects | None:
        """Take ODATA that is next in order, or beyond all known sqns.

        Return None and take nothing if the data would cause more than a delivery.
        """
        if trail > first or self._has_sequels:
            return None
        window, state = self.window, self.state
        delivered = window.pass_on(data, first)
        if delivered is None:
            held = None if self._passes_missing(trail) else window.hold_on(data, first, now_ns)
            if held is None:
                return None
        state.heard_at_ns = now_ns
        self._nak_sender.parents.heard(peer)
        state.saw(first + data.count - 1, trail)
        return held if delivered is None else (delivered,)

    def take_repair(self, data: Data, first: int, trail: int, peer: Nla, now_ns: int) -> Effects | None:
        """Take RDATA of known sqns of which none was delivered.

        Return None and take nothing if the data would cause more than deliveries.
        """
        state, window = self.state, self.window
        if self._has_sequels or self._passes_missing(trail):
            return None
        repaired = window.repair(data, first, now_ns)
        if repaired is None:
            return None
        effects, filled = repaired
        self._count_repairs(filled, data.type, peer)
        state.heard_at_ns = now_ns
        self._nak_sender.parents.answered(peer)
        state.saw(first + data.count - 1, trail)
        return effects

    def _count_repairs(self, filled: int, kind: PacketType, peer: Nla) -> None:
        """Count missing packets that came, and the node that sent them."""
        if filled and self._counters.watch is not None:
            self._counters.watch.filled(kind, peer)
        if kind is PacketType.ODATA:
            self._counters.late_sqns += filled
            return
        self._counters.repaired_sqns += filled
        if peer in self._local_repairers:
            self._counters.repaired_locally += filled
