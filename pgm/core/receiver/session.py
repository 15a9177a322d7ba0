"""One source as one receiver sees it: path, window and recovery together (RFC 6)."""

from __future__ import annotations

from pgm.core.effects import CloseCause, Closed, Effect, Effects, LossCause, Notice, Opened, control
from pgm.core.late_join.joiner import LateJoiner
from pgm.core.parity.recovery import ParityRecovery, offer_of
from pgm.core.receiver.data_path import ShortReceive
from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.phase import SessionPhase as _Phase
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.nak_control import NakControl, unreachable_neighbour
from pgm.core.recovery.nak_self_limit import NakSelfLimit
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.redirect import is_elsewhere, offered
from pgm.core.recovery.redundant_lines import LineSetup, RedundantLines, all_parents
from pgm.core.recovery.spm_request import SpmRequest
from pgm.core.segment import Channel, Segment
from pgm.core.session.state import SessionState, SpmVerdict
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.core.window.receive_window import DeliveryBudget, ReceiveWindow
from pgm.core.window.unordered_window import UnorderedWindow
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Polr, Spm
from pgm.wire.formats import Nla, PacketType, tsi_text
from pgm.wire.options import Fin, HeldHistory, Join, Syn, find
from pgm.wire.single_odata import plain_front
from pgm.wire.train import Data, DataWithGaps, Run

# The cause of loss of missing packets when a session ends for a special reason.
_LOST_WITH = {CloseCause.NAGGING: LossCause.NAGGING, CloseCause.OVERRUN: LossCause.OVERRUN}


class ReceiverSession(ShortReceive):
    """The receiver's side of one TSI."""

    def __init__(self, context: SessionContext, setup: ReceiverSetup, room: DeliveryBudget) -> None:
        data_port = context.data_port
        self._context = context
        self._setup = setup
        self._local_repairers = setup.local_repairers
        self._parameters = context.parameters
        self._counters = context.counters
        self.front, self.gsi = b"" if setup.lines else plain_front(context.tsi, data_port), context.tsi[:6]
        self.state = SessionState(context)
        parents = Parents(context, all_parents(setup.parents, setup.lines))
        self._recovery = Recovery(context, parents.response_timeout, setup.repair_table)
        self._nak_sender = NakSender(context, self.state, parents, self._recovery)
        self.nak_control = NakControl(context, self.state, parents, self._recovery)
        window = UnorderedWindow if data_port in setup.unordered_ports else ReceiveWindow
        self.window = window(context, self._recovery, room)
        self._is_unreliable = data_port in setup.unreliable_ports
        if self._is_unreliable:
            self._recovery.allow_asking(0)  # the stream's timers still run, but no NAKs are sent
        self._spm_request = SpmRequest(context)
        self._phase = _Phase.WAITING
        self._end_cause = CloseCause.FIN
        self._hold_until_ns = NEVER
        self._peer: Nla = setup.segment.address
        self._parity: ParityRecovery | None = None  # set if the source offers parity
        self.begun_ns = 0  # when the session was first heard
        self._starts_at: int | None = None  # the sqn that OPT_SYN was on
        self.feedback = Feedback(context, self.state, parents, setup.segment, self._recovery.is_missing)
        self._nak_sender.more = self.feedback
        self.lines: RedundantLines | None = None
        if setup.lines:
            lines = (LineSetup(setup.segment, setup.parents), *setup.lines)
            self.lines = self._nak_sender.routes = self.feedback.routes = RedundantLines(
                context, lines, self.state, self._recovery
            )
        self._nak_self_limit: NakSelfLimit | None = None  # created with the first NAK
        self._late_join = LateJoiner(
            self.window, self._nak_sender, setup.segment, setup.local_repairers, setup.keepers, context.parameters
        )

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        if self._phase is _Phase.CLOSED:
            return min(self.state.heard_at_ns + self._parameters.session_expiry, self.feedback.deadline_ns)
        heard = self.state.heard_at_ns
        expiry = self._parameters.session_expiry if self._phase is not _Phase.OPEN else self._parameters.peer_expiry
        if self._phase is _Phase.ENDING:
            return self.feedback.deadline_ns  # only the application can move the session on
        return min(
            self.feedback.deadline_ns if self.feedback.is_wanted else NEVER,
            self._recovery.deadline_ns,
            self._spm_request.deadline_ns,
            self.nak_control.answers.deadline_ns,
            self._hold_until_ns,
            self._late_join.deadline_ns,
            NEVER if self._nak_self_limit is None else self._nak_self_limit.deadline_ns,
            heard + expiry,
        )

    # Received packets

    def on_data(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Take ODATA or RDATA."""
        return self._and_ask(self._take(data, peer, now_ns), now_ns)

    def on_scattered(self, pieces: DataWithGaps, peer: Nla, now_ns: int) -> Effects:
        """Take data of one read with gaps.

        NAKs that become possible follow the last piece.
        """
        effects = self.take_scattered(pieces, peer, now_ns)
        if effects is None:
            effects = [effect for piece in pieces.pieces() for effect in self._take(piece, peer, now_ns)]
        return self._and_ask(effects, now_ns)

    def _and_ask(self, effects: Effects, now_ns: int) -> Effects:
        """Send NAKs that waited for the outstanding limit, if some are possible now.

        While trains come in, deadlines are late.
        """
        if self._recovery.has_room_at_ns > now_ns or self._phase is not _Phase.OPEN:
            return effects
        return [*effects, *self._ask(self._setup.segment, now_ns)]

    def _take(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        if self._phase in (_Phase.CLOSED, _Phase.ENDING):
            self._counters.duplicate_packets += data.count
            return ()
        first, trail = self.state.place(data.wire_sqn, data.wire_trail)
        end = first + data.count
        if self.state.is_jump(end - 1):
            self._counters.jumps_rejected += data.count
            return ()
        if not data.says_more:
            is_repair = data.type is PacketType.RDATA
            taken = (self.take_repair if is_repair else self.take_train)(data, first, trail, peer, now_ns)
            if taken is not None:
                return taken
        effects = self._heard(peer, now_ns, answers=data.type is PacketType.RDATA)
        if data.options:
            effects += self._note_syn(data, first)
        if self._phase is _Phase.WAITING:
            if data.type is PacketType.RDATA or (self.state.has_edges and end <= self.state.trail):
                # Another node's repair may be as old as a cache, and packets that left the window are older still. A
                # start there would request, or report lost, everything since.
                self._counters.foreign_packets += data.count
                self._want_spm(peer, now_ns)
                return effects
            effects += self._begin(first, trail, data, peer, now_ns)
        self.state.saw(end - 1, trail)
        if self._parity is not None:
            self._parity.sent(first, end, now_ns)
        self._follow_trail(now_ns)
        if end <= self.window.next_sqn:
            self._counters.duplicate_packets += data.count
        else:
            self._counters.duplicate_packets += (below := max(first, self.window.next_sqn)) - first
            filled = self.window.add(data.run(first).part(below, end), now_ns)
            self._count_repairs(filled, data.type, peer)
            if filled and end <= self.state.trail:
                self._recovery.old_repair_ns = now_ns
        self.window.reveal(self.state.lead + 1, now_ns)  # an SPM may have announced this before the first data came
        if self._parity is not None:
            self._take_rebuilt(self._parity.on_data(data, first, now_ns), peer, now_ns)
        if self.feedback.reporter is not None:
            effects += self.feedback.reporter.on_data(first, end, now_ns)
        if data.options and find(data.options, Fin) is not None:
            self.state.fin_lead = end - 1
        return [*effects, *self._advance()]

    def on_parity(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Take parity packets, ODATA or RDATA. The packets that they rebuild arrive now."""
        first, trail = self.state.place(data.wire_sqn, data.wire_trail)
        is_placed = self._parity is not None and self._phase in (_Phase.OPEN, _Phase.SILENT)
        if self._parity is None or not is_placed or self.state.is_jump(first + data.count - 1):
            self._counters.parity_packets_in += data.count
            self._counters.parity_packets_unused += data.count
            return ()
        effects = self._heard(peer, now_ns, answers=data.type is PacketType.RDATA)
        self.state.saw(self.state.lead, trail)
        self._follow_trail(now_ns)
        self._take_rebuilt(self._parity.on_parity(data, first, now_ns), peer, now_ns)
        if data.options and find(data.options, Fin) is not None:
            # parity follows all packets of its group, and nothing follows this packet (FEC-13)
            self.state.fin_lead = self.state.lead
        return [*effects, *self._advance()]

    def _take_rebuilt(self, runs: list[Run], peer: Nla, now_ns: int) -> None:
        assert self._parity is not None
        self.window.skip(self._parity.take_skipped())
        for run in runs:
            self._count_repairs(self.window.add(run, now_ns), PacketType.RDATA, peer)

    def _learn_parity(self, spm: Spm) -> None:
        """Learn the source's parity offer, once (FEC-23).

        The group size stays for the session (FEC-02).
        """
        offer = offer_of(spm, self.state)
        if offer is not None:
            self.window.kept = store = RunStore()
            self._parity = self._nak_sender.parity = ParityRecovery(
                self._context,
                offer,
                self.state,
                self.window.gap_detector,
                store=store,
                kept=store,
                regain=self.window.take_back,
            )

    def _note_syn(self, data: Data, first: int) -> list[Effect]:
        """Note OPT_SYN: the stream begins here (RFC 9.6.1).

        If the session was opened before, a notice reports the start.
        """
        if self._starts_at is not None or find(data.options, Syn) is None:
            return []
        self._starts_at = first
        if self._phase is not _Phase.OPEN or self.window.gap_detector.first != first:
            return []
        return [Notice("session-start", f"session {tsi_text(self.state.tsi)} is heard from its start")]

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM: the path, the window's edges, and perhaps the end."""
        if self._end_cause is CloseCause.EXPIRED:
            return ()  # heard too late: after the application has taken the rest, the SPM starts a new session
        verdict = self.state.on_spm(spm, now_ns)
        if verdict is SpmVerdict.STALE:
            return ()
        effects = self._heard(peer, now_ns, answers=False)
        if verdict is SpmVerdict.UNREACHABLE:
            self.nak_control.on_unreachable(now_ns)
            return effects
        self._spm_request.heard_spm()
        self._nak_sender.parents.learn_path(spm.path_nla)
        self.nak_control.on_spm(spm, now_ns)
        if self._parity is None and spm.options:
            self._learn_parity(spm)
        self.feedback.on_spm(spm, now_ns)
        if self._late_join.is_wanted and self._phase in (_Phase.WAITING, _Phase.HOLDING):
            effects += self._begin_late(peer, now_ns)
        elif self._phase is _Phase.WAITING and self.state.join_at is not None:
            self.window.begin(self.state.join_at)
            effects += self._open(peer)
        elif self._phase is _Phase.HOLDING:
            if self.state.join_at is not None:
                self.window.begin_earlier(self.state.join_at, now_ns)
            effects += self._open(peer)
        if self._phase in (_Phase.WAITING, _Phase.CLOSED, _Phase.ENDING):
            return effects
        if verdict is SpmVerdict.JUMPED:
            self.window.skip_to(self.state.trail, LossCause.JUMP)
        self._follow_trail(now_ns)
        self.window.reveal(self.state.lead + 1, now_ns)
        if self._parity is not None:
            self._parity.on_spm(spm, now_ns)
            self.window.skip(self._parity.take_skipped())
        if self.state.fin_lead is not None:
            self._recovery.source_leaves(now_ns)
        self._follow_reset()
        return [*effects, *self._advance()]

    def on_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take an NCF from any node (RCV-34, RCV-43).

        The NCF suppresses NAKs for the same sqns. An NCF that came by unicast, because its sender cannot be heard, is
        passed on to the other nodes of the subnet (RCV-53).
        """
        self._counters.ncf_packets_in += ncf.packets
        if self._phase is not _Phase.OPEN or not self.nak_control.on_ncf(ncf, peer, now_ns):
            return ()
        effects: list[Effect] = self._heard(peer, now_ns, answers=True)
        is_ours_alone = not channel.is_group and channel.segment.peers is None
        if is_ours_alone and unreachable_neighbour(ncf) is not None:
            effects.append(control(channel.segment, ncf.octets, hops=1))
        if ncf.parity:
            self._recovery.confirmed(self._answered(ncf), now_ns, peer)
            return effects
        for part in self.state.parts_of(ncf):
            spans = self.state.spans_of(part)
            effects += self._reveal_by_ncf(spans[-1][1], now_ns)
            self._recovery.confirmed(spans, now_ns, peer)
        return effects

    def on_nak_heard(self, nak: Nak, now_ns: int) -> None:
        """Take another receiver's multicast NAK (RCV-35)."""
        if self._phase is _Phase.OPEN:
            self._recovery.overheard(self._answered(nak) if nak.parity else self.state.spans_of(nak), now_ns)

    def _answered(self, nak: Nak) -> list[Span]:
        """Return the sqns that a parity NCF or NAK covers."""
        return [] if self._parity is None else self._parity.answered(nak)

    def on_offer(self, polr: Polr, peer: Nla) -> None:
        """Take a POLR by which a repairer offers to take NAKs (RFC 9.5.4).

        A POLR is no NCF, so pending requests continue.
        """
        nla = offered(polr, peer)
        if nla is None or not self._parameters.honour_redirects or not is_elsewhere(nla, self._setup.segment):
            self._counters.redirects_ignored += 1
        elif nla != self._nak_sender.redirect:
            self._counters.redirects_taken += 1
            self._nak_sender.redirect, self._nak_sender.redirect_has_parity = nla, polr.parity

    def on_spmr_heard(self, now_ns: int) -> None:
        """Note another receiver's SPMR."""
        self._spm_request.heard_request(now_ns)

    def _reveal_by_ncf(self, end: int, now_ns: int) -> Effects:
        if end <= self.window.gap_detector.end or not self.state.reveals(end):
            return ()
        self.window.reveal(end, now_ns)
        self.state.revealed(end)
        return self._advance()

    # Beginning, going on, ending

    def _heard(self, peer: Nla, now_ns: int, *, answers: bool) -> list[Effect]:
        self.state.heard_at_ns = now_ns
        parents = self._nak_sender.parents
        (parents.answered if answers else parents.heard)(peer)
        if self._phase is not _Phase.SILENT:
            return []
        self._phase = _Phase.OPEN
        return [Opened(self.state.tsi, self.window.next_sqn, peer, self.state.data_port, resumed=True)]

    def _begin(self, first: int, trail: int, data: Data, peer: Nla, now_ns: int) -> list[Effect]:
        """Start reception at the first data packet (RCV-01) or by OPT_JOIN (RCV-03).

        No NAK can be sent before the first SPM, so delivery waits a moment for an SPM. The OPT_JOIN of this SPM may
        include earlier packets.
        """
        if not self.state.has_edges:
            self.state.begin_at(first + data.count - 1, trail)
        join = find(data.options, Join)
        start = first if join is None else min(first, self.state.unwrap(join.min_sqn))
        self.window.begin(max(start, self.state.oldest))
        if self.state.spm is not None:
            return self._open(peer)
        self._want_spm(peer, now_ns)
        self._phase = _Phase.HOLDING
        self._hold_until_ns = now_ns + self._parameters.open_hold_ivl
        return []

    def _begin_late(self, peer: Nla, now_ns: int) -> Effects:
        """Hold packets until a repairer has said which history it holds."""
        if self._phase is _Phase.WAITING:
            if not self.state.has_edges:
                return ()
            self.window.begin(self.state.lead + 1 if self.state.join_at is None else self.state.join_at)
            self._phase = _Phase.HOLDING
        elif self.state.join_at is not None:
            self.window.begin_earlier(self.state.join_at, now_ns)
        self._peer = peer
        self._late_join.begin(now_ns)
        self._hold_until_ns = self._late_join.until_ns
        return self._late_join.handle_deadline(now_ns)

    def on_held(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer about history: begin there, or give up history that is gone."""
        if self._phase in (_Phase.OPEN, _Phase.SILENT):
            return self._advance() if self._late_join.on_gone(held, peer) else ()
        notices = self._late_join.on_answer(held, peer, now_ns) if self._phase is _Phase.HOLDING else ()
        self._hold_until_ns = min(self._hold_until_ns, self._late_join.until_ns)
        return [*notices, *self._open(self._peer), *self._advance()] if notices else ()

    def _want_spm(self, peer: Nla, now_ns: int) -> None:
        """Request an SPM if none has come (SPMR-01).

        The request goes to the group and to the data's sender.
        """
        if self.state.spm is None:
            self._peer = peer
            self._spm_request.want(now_ns)

    def _open(self, peer: Nla) -> list[Effect]:
        self._phase = _Phase.OPEN
        self._hold_until_ns = NEVER
        self._counters.sessions_opened += 1
        first = self.window.next_sqn
        return [Opened(self.state.tsi, first, peer, self.state.data_port, at_start=self._starts_at == first)]

    def _follow_trail(self, now_ns: int) -> None:
        """End the recovery of packets that left the source's window (RCV-11)."""
        trail = self.state.trail
        if trail <= self.window.next_sqn:
            return
        self.window.reveal(trail, now_ns)
        if not self._setup.asks_below_trail and self._nak_sender.keeper is None:
            self.window.give_up(self._recovery.give_up_before(trail), LossCause.WINDOW)

    def _follow_reset(self) -> None:
        reset = self.state.reset
        if reset is None:
            return
        self._end_cause = CloseCause.RESET
        self.state.fin_lead = self.state.lead
        if reset.no_naks:
            self.window.give_up(self._recovery.give_up_before(self.state.lead + 1), LossCause.SOURCE_GONE)

    def _advance(self, *, is_last: bool = False) -> list[Effect]:
        if self._phase is _Phase.HOLDING:
            self.window.keep_bounds()
            return []
        effects = self.window.advance(is_last=is_last)
        if self.feedback.is_wanted:
            self.feedback.reached(self.window.next_sqn - 1)
        fin_lead = self.state.fin_lead
        is_finished = fin_lead is not None and self.window.next_sqn > fin_lead
        if is_finished or (self._phase is _Phase.ENDING and self.window.is_drained):
            self._phase = _Phase.CLOSED
            self.feedback.ends()
            reset = self.state.reset if self._end_cause is CloseCause.RESET else None
            error = 0 if reset is None else reset.error
            effects.append(Closed(self.state.tsi, self.window.next_sqn, self._end_cause, error))
        return effects

    def resume(self) -> Effects:
        """Continue to deliver, because the application has made room."""
        return self._advance() if self._phase in (_Phase.OPEN, _Phase.SILENT, _Phase.ENDING) else ()

    def resync(self) -> Effects:
        """Skip everything held or missing, and continue with the newest packet."""
        if self._phase is not _Phase.OPEN:
            return ()
        self.window.skip_all(LossCause.RESYNC)
        return self._advance()

    def end(self, cause: CloseCause) -> Effects:
        """Give up missing packets, and close once the rest is delivered."""
        if self._phase is _Phase.CLOSED:
            return ()
        if self._phase is _Phase.WAITING:
            self._phase = _Phase.CLOSED
            return ()
        opening = self._open(self._peer) if self._phase is _Phase.HOLDING else []
        self._phase, self._end_cause = _Phase.ENDING, cause
        loss_cause = _LOST_WITH.get(cause, LossCause.SOURCE_GONE)
        self.window.give_up(self._recovery.give_up_before(self.window.gap_detector.end), loss_cause)
        return [*opening, *self._advance(is_last=cause is CloseCause.EVICTED)]

    # Time

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due: NAKs, giving up, SPMRs, silence."""
        effects: list[Effect] = [*self.feedback.handle_deadline(now_ns)] if self.feedback.is_wanted else []
        if self._phase in (_Phase.CLOSED, _Phase.ENDING):
            return effects
        segment, state = self._setup.segment, self.state
        if self._spm_request.deadline_ns <= now_ns:
            effects += self._spm_request.handle_deadline(state.tsi, state.data_port, segment, self._peer, now_ns)
        if self.nak_control.answers.deadline_ns <= now_ns:
            effects += self.nak_control.answers.handle_deadline(segment, now_ns)
        if self._late_join.deadline_ns <= now_ns:
            effects += self._late_join.handle_deadline(now_ns)
        if self._hold_until_ns <= now_ns:
            effects += [*self._open(self._peer), *self._advance()]
        if self._recovery.deadline_ns <= now_ns:
            effects += self._ask(segment, now_ns)
        if self._nak_self_limit is not None and self._nak_self_limit.deadline_ns <= now_ns:
            effects += self._nak_self_limit.asked(0, state.lead, now_ns)
        silence = now_ns - state.heard_at_ns
        if self._phase is _Phase.OPEN and silence >= self._parameters.peer_expiry:
            if state.fin_lead is not None:
                return [*effects, *self.end(self._end_cause)]  # no outage: the source announced its end
            self._phase = _Phase.SILENT
            effects.append(Closed(self.state.tsi, self.window.next_sqn, CloseCause.SILENT))
        elif silence >= self._parameters.session_expiry:
            self._counters.sessions_expired += 1
            effects += self.end(CloseCause.EXPIRED)
        return effects

    def _ask(self, segment: Segment, now_ns: int) -> Effects:
        """Send NAKs for packets whose back-off is over, or give packets up."""
        if self._is_unreliable:
            self.window.give_up(self._recovery.give_up_due(now_ns), LossCause.UNREPAIRED)
            return self._advance()
        nak_self_limit = self._nak_self_limit
        if nak_self_limit is None and self._parameters.nagging_window_ivl:
            name = f"session {tsi_text(self.state.tsi)}"
            nak_self_limit = NakSelfLimit(name, self._recovery, self._parameters, self.state.lead, now_ns)
            self._nak_self_limit = self._nak_sender.nak_self_limit = nak_self_limit
        naks, actions = self._nak_sender.ask(segment, now_ns)
        has_given_up = self.window.end_asking(actions, self.state.trail)
        if nak_self_limit is not None and nak_self_limit.wants_close:
            return [*naks, *self.end(CloseCause.NAGGING)]
        return [*naks, *self._advance()] if has_given_up else naks
