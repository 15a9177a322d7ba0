"""Data path of one session: ODATA, RDATA and parity from the parser to the window."""

from __future__ import annotations

from pgm.core.effects import Effect, Effects, LossCause
from pgm.core.receiver.delivery import Delivery
from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.session_parity import SessionParity
from pgm.core.receiver.session_start import SessionStart
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.session_context import SessionContext
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import Fin, find
from pgm.wire.train import Data, DataWithGaps, Run

_OPEN, _RDATA = SessionPhase.OPEN, PacketType.RDATA  # a look-up in an enum is slow


class DataPath:
    """Data path of one session."""

    def __init__(
        self,
        context: SessionContext,
        setup: ReceiverSetup,
        delivery: Delivery,
        start: SessionStart,
        feedback: Feedback,
        nak_sender: NakSender,
    ) -> None:
        self._counters = context.counters
        self._setup = setup
        self._state = nak_sender.state
        self._nak_sender = nak_sender
        self._parents = nak_sender.parents
        self._recovery = nak_sender.recovery
        self._delivery = delivery
        self._window = delivery.window
        self._start = start
        self._feedback = feedback
        self.parity = SessionParity(context, delivery.window, nak_sender)

    def take(self, data: Data | DataWithGaps, peer: Nla, now_ns: int) -> Effects:
        """Take ODATA or RDATA. Return the deliveries and other effects."""
        delivery, state, window, counters = self._delivery, self._state, self._window, self._counters
        pieces: DataWithGaps | None = None
        if isinstance(data, Data):
            head, length = data, data.count
        else:
            head, length, pieces = data.data, data.spans[-1][1], data
        first, trail = state.place(head.wire_sqn, head.wire_trail)
        end = first + length
        if pieces is not None and not self._is_plain(pieces, first, end, trail):
            return [effect for piece in pieces.pieces() for effect in self.take(piece, peer, now_ns)]
        is_open, is_repair = delivery.phase is _OPEN, head.type is _RDATA
        goes_on = not is_open and delivery.has_seen_end and not is_repair and end > window.next_sqn
        if not is_open and delivery.is_dropping and not goes_on:
            counters.duplicate_packets += data.count
            return ()
        if state.doubts(first, end, now_ns):
            return state.report_doubt(peer, now_ns)
        state.heard_at_ns = now_ns
        (self._parents.answered if is_repair else self._parents.heard)(peer)
        effects = [] if is_open else delivery.reopen(peer) if goes_on else delivery.heard(peer)
        if head.options:
            effects += delivery.note_syn(head, first)
        if not is_open and delivery.phase is SessionPhase.WAITING:
            if is_repair or (state.has_edges and end <= state.trail):
                # Another node's repair may be as old as a cache, and packets that left the window are older still. A
                # start there would request, or report lost, everything since.
                counters.foreign_packets += data.count
                self._start.want_spm(peer, now_ns)
                return effects
            effects += self._start.on_first_data(head, first, trail, peer, now_ns)
        if state.end.is_claimed:
            state.end.on_data(end - 1)
        state.saw(end - 1, trail)
        parity, reporter = self.parity, self._feedback.reporter
        if parity.is_offered:
            parity.sent(first, end, now_ns)
        if state.trail > window.next_sqn:
            self.follow_trail(now_ns)
        if end <= window.next_sqn:
            counters.duplicate_packets += data.count
            window.compare_delivered([head.view(first)] if pieces is None else pieces.views(first))
        else:
            filled = window.insert(head.run(first) if pieces is None else pieces, first, now_ns)
            if filled:
                self._count_repairs(filled, head.type, peer)
                if end <= state.trail:
                    self._recovery.old_repair_ns = now_ns
        if not is_open:
            window.reveal(state.lead + 1, now_ns)  # an SPM may have announced this before the first data came
        if parity.is_offered:
            self._insert_rebuilt(parity.on_data(head, first, now_ns), peer, now_ns)
        if reporter.is_wanted:
            effects += reporter.on_data(first, end, now_ns)
        if head.options and find(head.options, Fin) is not None:
            state.claim_end(end - 1, now_ns)
        return [*effects, *delivery.advance()] if effects else delivery.advance()

    def _is_plain(self, pieces: DataWithGaps, first: int, end: int, trail: int) -> bool:
        """Return whether pieces may be taken as one item: no piece has an effect on the next one."""
        has_effects = self.parity.is_offered or self._feedback.reporter.is_wanted
        if has_effects or not pieces.is_ascending or self._delivery.phase is not _OPEN:
            return False
        return max(trail, self._state.trail) <= first and not self._state.is_beyond_burst(end - 1)

    def take_parity(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Take parity packets, ODATA or RDATA. The packets that they rebuild arrive now."""
        state = self._state
        first, trail = state.place(data.wire_sqn, data.wire_trail)
        is_placed = self.parity.is_offered and self._delivery.is_receiving
        if not is_placed or state.is_jump(first + data.count - 1):
            self._counters.parity_packets_in += data.count
            self._counters.parity_packets_unused += data.count
            return ()
        effects = self.heard(peer, now_ns, answers=data.type is PacketType.RDATA)
        state.saw(state.lead, trail)
        self.follow_trail(now_ns)
        self._insert_rebuilt(self.parity.on_parity(data, first, now_ns), peer, now_ns)
        if data.options and find(data.options, Fin) is not None:
            # parity follows all packets of its group, and nothing follows this packet (FEC-13)
            state.claim_end(state.lead, now_ns)
        return [*effects, *self._delivery.advance()]

    def _insert_rebuilt(self, runs: list[Run], peer: Nla, now_ns: int) -> None:
        for run in runs:
            self._count_repairs(self._window.insert_rebuilt(run, now_ns), PacketType.RDATA, peer)

    def heard(self, peer: Nla, now_ns: int, *, answers: bool) -> list[Effect]:
        """Note a packet of the session; `answers` if the packet shows that `peer` answers NAKs."""
        self._state.heard_at_ns = now_ns
        (self._parents.answered if answers else self._parents.heard)(peer)
        return [] if self._delivery.phase is _OPEN else self._delivery.heard(peer)

    def follow_trail(self, now_ns: int) -> None:
        """End the recovery of packets that left the source's window (RCV-11)."""
        trail = self._state.trail
        if trail <= self._window.next_sqn:
            return
        self._window.reveal(trail, now_ns)
        if not self._setup.asks_below_trail and not self._nak_sender.keeper:
            self._window.give_up_before(trail, LossCause.WINDOW)

    def _count_repairs(self, filled: int, kind: PacketType, peer: Nla) -> None:
        """Count missing packets that came, and the node that sent them."""
        if filled:
            self._counters.watch.filled(kind, peer)
        if kind is PacketType.ODATA:
            self._counters.late_sqns += filled
            return
        self._counters.repaired_sqns += filled
        if peer in self._setup.local_repairers or peer in self._setup.local_relays:
            self._counters.repaired_locally += filled
