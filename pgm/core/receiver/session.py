"""One source as one receiver sees it: path, window and recovery together (RFC 6)."""

from __future__ import annotations

import random

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Effect, Effects, LossCause, Notice, Opened, control
from pgm.core.late_join.joiner import LateJoiner
from pgm.core.parity.recovery import ParityRecovery, offer_of
from pgm.core.polling.poll_responder import NodeId
from pgm.core.receiver.data_path import ShortReceive
from pgm.core.receiver.feedback import Feedback
from pgm.core.receiver.phase import SessionPhase as _State
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
from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.core.window.receive_window import DeliveryBudget, ReceiveWindow
from pgm.core.window.unordered_window import UnorderedWindow
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Polr, Spm
from pgm.wire.formats import Nla, PacketType, Tsi, tsi_text
from pgm.wire.options import Fin, HeldHistory, Join, Syn, find
from pgm.wire.single_odata import plain_front
from pgm.wire.train import Data, DataWithGaps, Run

# Why what is missing is lost when a session ends so.
_LOST_WITH = {CloseCause.NAGGING: LossCause.NAGGING, CloseCause.OVERRUN: LossCause.OVERRUN}


class ReceiverSession(ShortReceive):
    """The receiver's side of one TSI."""

    def __init__(
        self,
        tsi: Tsi,
        data_port: int,
        setup: ReceiverSetup,
        room: DeliveryBudget,
        parameters: Parameters,
        rng: random.Random,
        node_id: NodeId,
        counters: Counters,
    ) -> None:
        self._setup = setup
        self._local_repairers = setup.local_repairers
        self._parameters = parameters
        self._counters = counters
        self.front, self.gsi = b"" if setup.lines else plain_front(tsi, data_port), tsi[:6]
        self.path = SessionState(tsi, data_port, parameters, counters)
        parents = Parents(all_parents(setup.parents, setup.lines), parameters, counters)
        self._recovery = Recovery(parameters, rng, counters, parents.patience, setup.repair_table, tsi=tsi)
        self._asker = NakSender(self.path, parents, self._recovery, parameters, counters)
        self.guidance = NakControl(self.path, parents, self._recovery, parameters, rng, node_id, counters)
        window = UnorderedWindow if data_port in setup.unordered_ports else ReceiveWindow
        self.window = window(tsi, self._recovery, room, parameters, counters)
        self._is_unreliable = data_port in setup.unreliable_ports
        if self._is_unreliable:
            self._recovery.allow_asking(0)  # of its own timers: nothing is asked for
        self._spm_request = SpmRequest(parameters, rng, counters)
        self._state = _State.WAITING
        self._end_cause = CloseCause.FIN
        self._hold_until_ns = NEVER
        self._peer: Nla = setup.segment.address
        self._rng = rng
        self._parity: ParityRecovery | None = None  # where the source offers it
        self.begun_ns = 0  # when something of it was first heard
        self._starts_at: int | None = None  # the sqn that OPT_SYN was on
        self.feedback = Feedback(
            self.path, parents, setup.segment, parameters, rng, counters, self._recovery.is_missing
        )
        self._asker.more = self.feedback
        self.lines: RedundantLines | None = None
        if setup.lines:
            lines = (LineSetup(setup.segment, setup.parents), *setup.lines)
            self.lines = self._asker.routes = self.feedback.routes = RedundantLines(
                lines, self.path, self._recovery, parameters, counters
            )
        self._restraint: NakSelfLimit | None = None  # begins with asking
        self._late_join = LateJoiner(
            self.window, self._asker, setup.segment, setup.local_repairers, setup.keepers, parameters
        )

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        if self._state is _State.CLOSED:
            return min(self.path.heard_at_ns + self._parameters.session_expiry, self.feedback.deadline_ns)
        heard = self.path.heard_at_ns
        expiry = self._parameters.session_expiry if self._state is not _State.OPEN else self._parameters.peer_expiry
        if self._state is _State.ENDING:
            return self.feedback.deadline_ns  # only the application can bring it on
        return min(
            self.feedback.deadline_ns if self.feedback.is_wanted else NEVER,
            self._recovery.deadline_ns,
            self._spm_request.deadline_ns,
            self.guidance.answers.deadline_ns,
            self._hold_until_ns,
            self._late_join.deadline_ns,
            NEVER if self._restraint is None else self._restraint.deadline_ns,
            heard + expiry,
        )

    # What arrives

    def on_data(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """ODATA or RDATA."""
        return self._and_ask(self._take(data, peer, now_ns), now_ns)

    def on_scattered(self, some: DataWithGaps, peer: Nla, now_ns: int) -> Effects:
        """The same in pieces of one read: what they make room for is asked for behind the last of them."""
        taken = self.take_scattered(some, peer, now_ns)
        if taken is None:
            taken = [effect for one in some.pieces() for effect in self._take(one, peer, now_ns)]
        return self._and_ask(taken, now_ns)

    def _and_ask(self, effects: Effects, now_ns: int) -> Effects:
        """Ask for what waited for room, where there is some now: while trains come in, deadlines are late."""
        if self._recovery.has_room_at_ns > now_ns or self._state is not _State.OPEN:
            return effects
        return [*effects, *self._ask(self._setup.segment, now_ns)]

    def _take(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        if self._state in (_State.CLOSED, _State.ENDING):
            self._counters.duplicate_packets += data.count
            return ()
        first, trail = self.path.place(data.wire_sqn, data.wire_trail)
        end = first + data.count
        if self.path.is_jump(end - 1):
            self._counters.jumps_rejected += data.count
            return ()
        if not data.says_more:
            is_repair = data.type is PacketType.RDATA
            taken = (self.take_repair if is_repair else self.take_train)(data, first, trail, peer, now_ns)
            if taken is not None:
                return taken
        effects = self._heard(peer, now_ns, answers=data.type is PacketType.RDATA)
        if data.options:
            effects += self._note_start(data, first)
        if self._state is _State.WAITING:
            if data.type is PacketType.RDATA or (self.path.has_edges and end <= self.path.trail):
                # Somebody else's repair may be as old as a cache, and what the window has left is older still:
                # starting there would ask for all since, or report it lost.
                self._counters.foreign_packets += data.count
                self._want_spm(peer, now_ns)
                return effects
            effects += self._begin(first, trail, data, peer, now_ns)
        self.path.saw(end - 1, trail)
        self._follow_trail(now_ns)
        if end <= self.window.next_sqn:
            self._counters.duplicate_packets += data.count
        else:
            self._counters.duplicate_packets += (below := max(first, self.window.next_sqn)) - first
            filled = self.window.add(data.run(first).part(below, end), now_ns)
            self._count_repairs(filled, data.type, peer)
            if filled and end <= self.path.trail:
                self._recovery.old_repair_ns = now_ns
        self.window.reveal(self.path.lead + 1, now_ns)  # of which an SPM may have told before the first data came
        if self._parity is not None:
            self._take_rebuilt(self._parity.on_data(data, first, now_ns), peer, now_ns)
        if self.feedback.reporter is not None:
            effects += self.feedback.reporter.on_data(first, end, now_ns)
        if data.options and find(data.options, Fin) is not None:
            self.path.fin_lead = end - 1
        return [*effects, *self._advance()]

    def on_parity(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Parity packets, ODATA or RDATA: what they make up for arrives now."""
        first, trail = self.path.place(data.wire_sqn, data.wire_trail)
        is_placed = self._parity is not None and self._state in (_State.OPEN, _State.SILENT)
        if self._parity is None or not is_placed or self.path.is_jump(first + data.count - 1):
            self._counters.parity_packets_in += data.count
            self._counters.parity_packets_unused += data.count
            return ()
        effects = self._heard(peer, now_ns, answers=data.type is PacketType.RDATA)
        self.path.saw(self.path.lead, trail)
        self._follow_trail(now_ns)
        self._take_rebuilt(self._parity.on_parity(data, first, now_ns), peer, now_ns)
        if data.options and find(data.options, Fin) is not None:
            self.path.fin_lead = self.path.lead  # parity follows all of its group, and nothing follows this (FEC-13)
        return [*effects, *self._advance()]

    def _take_rebuilt(self, runs: list[Run], peer: Nla, now_ns: int) -> None:
        assert self._parity is not None
        self.window.reveal(self.window.arrivals.end, now_ns)  # parity may have revealed more gaps than are allowed
        self.window.skip(self._parity.take_skipped())
        for run in runs:
            self._count_repairs(self.window.add(run, now_ns), PacketType.RDATA, peer)

    def _learn_parity(self, spm: Spm) -> None:
        """What the source offers, once (FEC-23): the group size stays for the session (FEC-02)."""
        offer = offer_of(spm)
        if offer is not None:
            self.window.kept = store = RunStore()
            parts = (self.path, self.window.arrivals, self._recovery, self._parameters, self._rng, self._counters)
            self._parity = self._asker.parity = ParityRecovery(offer, *parts, store=store, kept=store)

    def _note_start(self, data: Data, first: int) -> list[Effect]:
        """OPT_SYN: the stream begins here (RFC 9.6.1). Whoever was told of the session before is told now."""
        if self._starts_at is not None or find(data.options, Syn) is None:
            return []
        self._starts_at = first
        if self._state is not _State.OPEN or self.window.arrivals.first != first:
            return []
        return [Notice("session-start", f"session {tsi_text(self.path.tsi)} is heard from its start")]

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """An SPM: the path, the window's edges, perhaps the end."""
        if self._end_cause is CloseCause.EXPIRED:
            return ()  # heard too late; once the application has taken what is left it is a new session
        verdict = self.path.on_spm(spm, now_ns)
        if verdict is SpmVerdict.STALE:
            return ()
        effects = self._heard(peer, now_ns, answers=False)
        if verdict is SpmVerdict.UNREACHABLE:
            self.guidance.on_unreachable(now_ns)
            return effects
        self._spm_request.heard_spm()
        self._asker.parents.learn_path(spm.path_nla)
        self.guidance.on_spm(spm, now_ns)
        if self._parity is None and spm.options:
            self._learn_parity(spm)
        self.feedback.on_spm(spm, now_ns)
        if self._late_join.is_wanted and self._state in (_State.WAITING, _State.HOLDING):
            effects += self._begin_late(peer, now_ns)
        elif self._state is _State.WAITING and self.path.join_at is not None:
            self.window.begin(self.path.join_at)
            effects += self._open(peer)
        elif self._state is _State.HOLDING:
            if self.path.join_at is not None:
                self.window.begin_earlier(self.path.join_at, now_ns)
            effects += self._open(peer)
        if self._state in (_State.WAITING, _State.CLOSED, _State.ENDING):
            return effects
        if verdict is SpmVerdict.JUMPED:
            self.window.skip_to(self.path.trail, LossCause.JUMP)
        self._follow_trail(now_ns)
        self.window.reveal(self.path.lead + 1, now_ns)
        if self._parity is not None:
            self._parity.on_spm(spm, now_ns)
            self.window.skip(self._parity.take_skipped())
        if self.path.fin_lead is not None:
            self._recovery.source_leaves(now_ns)
        self._follow_reset()
        return [*effects, *self._advance()]

    def on_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """An NCF, from whomever: it suppresses every receiver that lacks the same sqns (RCV-34, RCV-43).

        One that came to us alone since its sender cannot be heard is passed on to the others of the subnet (RCV-53).
        """
        self._counters.ncf_packets_in += ncf.packets
        if self._state is not _State.OPEN or not self.guidance.on_ncf(ncf, peer, now_ns):
            return ()
        effects: list[Effect] = self._heard(peer, now_ns, answers=True)
        is_ours_alone = not channel.is_group and channel.segment.peers is None
        if is_ours_alone and unreachable_neighbour(ncf) is not None:
            effects.append(control(channel.segment, ncf.octets, hops=1))
        if ncf.parity:
            self._recovery.confirmed(self._answered(ncf), now_ns, peer)
            return effects
        for part in self.path.parts_of(ncf):
            spans = self.path.spans_of(part)
            effects += self._reveal_by_ncf(spans[-1][1], now_ns)
            self._recovery.confirmed(spans, now_ns, peer)
        return effects

    def on_nak_heard(self, nak: Nak, now_ns: int) -> None:
        """Another receiver's NAK that was multicast (RCV-35)."""
        if self._state is _State.OPEN:
            self._recovery.overheard(self._answered(nak) if nak.parity else self.path.spans_of(nak), now_ns)

    def _answered(self, nak: Nak) -> list[Span]:
        """The sqns whose recovery a parity NCF or NAK stands for."""
        return [] if self._parity is None else self._parity.answered(nak)

    def on_offer(self, polr: Polr, peer: Nla) -> None:
        """A repairer says by POLR that it may be asked (RFC 9.5.4). The POLR is no NCF: what is asked for goes on."""
        nla = offered(polr, peer)
        if nla is None or not self._parameters.honour_redirects or not is_elsewhere(nla, self._setup.segment):
            self._counters.redirects_ignored += 1
        elif nla != self._asker.redirect:
            self._counters.redirects_taken += 1
            self._asker.redirect, self._asker.redirect_has_parity = nla, polr.parity

    def on_spmr_heard(self, now_ns: int) -> None:
        """Another receiver's SPMR."""
        self._spm_request.heard_request(now_ns)

    def _reveal_by_ncf(self, end: int, now_ns: int) -> Effects:
        if end <= self.window.arrivals.end or not self.path.reveals(end):
            return ()
        self.window.reveal(end, now_ns)
        self.path.revealed(end)
        return self._advance()

    # Beginning, going on, ending

    def _heard(self, peer: Nla, now_ns: int, *, answers: bool) -> list[Effect]:
        self.path.heard_at_ns = now_ns
        parents = self._asker.parents
        (parents.answered if answers else parents.heard)(peer)
        if self._state is not _State.SILENT:
            return []
        self._state = _State.OPEN
        return [Opened(self.path.tsi, self.window.next_sqn, peer, self.path.data_port, resumed=True)]

    def _begin(self, first: int, trail: int, data: Data, peer: Nla, now_ns: int) -> list[Effect]:
        """The first data packet defines where reception starts, unless OPT_JOIN does (RCV-01, RCV-03).

        Before the first SPM nothing can be asked for, so delivery waits a moment for it: its OPT_JOIN may say
        that what came before belongs to us.
        """
        if not self.path.has_edges:
            self.path.begin_at(first + data.count - 1, trail)
        join = find(data.options, Join)
        start = first if join is None else min(first, self.path.unwrap(join.min_sqn))
        self.window.begin(max(start, self.path.oldest))
        if self.path.spm is not None:
            return self._open(peer)
        self._want_spm(peer, now_ns)
        self._state = _State.HOLDING
        self._hold_until_ns = now_ns + self._parameters.open_hold_ivl
        return []

    def _begin_late(self, peer: Nla, now_ns: int) -> Effects:
        """Hold what comes until a repairer has said what it has of what came before."""
        if self._state is _State.WAITING:
            if not self.path.has_edges:
                return ()
            self.window.begin(self.path.lead + 1 if self.path.join_at is None else self.path.join_at)
            self._state = _State.HOLDING
        elif self.path.join_at is not None:
            self.window.begin_earlier(self.path.join_at, now_ns)
        self._peer = peer
        self._late_join.begin(now_ns)
        self._hold_until_ns = self._late_join.until_ns
        return self._late_join.handle_deadline(now_ns)

    def on_held(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Whoever keeps history says from where on: begin there; or that some of it is gone."""
        if self._state in (_State.OPEN, _State.SILENT):
            return self._advance() if self._late_join.on_gone(held, peer) else ()
        notices = self._late_join.on_answer(held, peer, now_ns) if self._state is _State.HOLDING else ()
        self._hold_until_ns = min(self._hold_until_ns, self._late_join.until_ns)
        return [*notices, *self._open(self._peer), *self._advance()] if notices else ()

    def _want_spm(self, peer: Nla, now_ns: int) -> None:
        """Ask for an SPM, if none has come: the group, and whoever sent the data (SPMR-01)."""
        if self.path.spm is None:
            self._peer = peer
            self._spm_request.want(now_ns)

    def _open(self, peer: Nla) -> list[Effect]:
        self._state = _State.OPEN
        self._hold_until_ns = NEVER
        self._counters.sessions_opened += 1
        first = self.window.next_sqn
        return [Opened(self.path.tsi, first, peer, self.path.data_port, at_start=self._starts_at == first)]

    def _follow_trail(self, now_ns: int) -> None:
        """End the recovery of what the source's window has left behind (RCV-11)."""
        trail = self.path.trail
        if trail <= self.window.next_sqn:
            return
        self.window.reveal(trail, now_ns)
        if not self._setup.asks_below_trail and self._asker.keeper is None:
            self.window.give_up(self._recovery.give_up_before(trail), LossCause.WINDOW)

    def _follow_reset(self) -> None:
        reset = self.path.reset
        if reset is None:
            return
        self._end_cause = CloseCause.RESET
        self.path.fin_lead = self.path.lead
        if reset.no_naks:
            self.window.give_up(self._recovery.give_up_before(self.path.lead + 1), LossCause.SOURCE_GONE)

    def _advance(self, *, is_last: bool = False) -> list[Effect]:
        if self._state is _State.HOLDING:
            self.window.keep_bounds()
            return []
        effects = self.window.advance(is_last=is_last)
        if self.feedback.is_wanted:
            self.feedback.reached(self.window.next_sqn - 1)
        fin_lead = self.path.fin_lead
        is_finished = fin_lead is not None and self.window.next_sqn > fin_lead
        if is_finished or (self._state is _State.ENDING and self.window.is_drained):
            self._state = _State.CLOSED
            self.feedback.ends()
            reset = self.path.reset if self._end_cause is CloseCause.RESET else None
            error = 0 if reset is None else reset.error
            effects.append(Closed(self.path.tsi, self.window.next_sqn, self._end_cause, error))
        return effects

    def resume(self) -> Effects:
        """Go on delivering: the application has made room."""
        return self._advance() if self._state in (_State.OPEN, _State.SILENT, _State.ENDING) else ()

    def resync(self) -> Effects:
        """Skip what has come and was not delivered, and what is missing: go on with the newest."""
        if self._state is not _State.OPEN:
            return ()
        self.window.skip_all(LossCause.RESYNC)
        return self._advance()

    def end(self, cause: CloseCause) -> Effects:
        """Give up what is missing and close once the rest is delivered."""
        if self._state is _State.CLOSED:
            return ()
        if self._state is _State.WAITING:
            self._state = _State.CLOSED
            return ()
        opening = self._open(self._peer) if self._state is _State.HOLDING else []
        self._state, self._end_cause = _State.ENDING, cause
        because = _LOST_WITH.get(cause, LossCause.SOURCE_GONE)
        self.window.give_up(self._recovery.give_up_before(self.window.arrivals.end), because)
        return [*opening, *self._advance(is_last=cause is CloseCause.EVICTED)]

    # Time

    def handle_deadline(self, now_ns: int) -> Effects:
        """NAKs, giving up, SPMRs, silence."""
        effects: list[Effect] = [*self.feedback.handle_deadline(now_ns)] if self.feedback.is_wanted else []
        if self._state in (_State.CLOSED, _State.ENDING):
            return effects
        segment, path = self._setup.segment, self.path
        if self._spm_request.deadline_ns <= now_ns:
            effects += self._spm_request.handle_deadline(path.tsi, path.data_port, segment, self._peer, now_ns)
        if self.guidance.answers.deadline_ns <= now_ns:
            effects += self.guidance.answers.handle_deadline(segment, now_ns)
        if self._late_join.deadline_ns <= now_ns:
            effects += self._late_join.handle_deadline(now_ns)
        if self._hold_until_ns <= now_ns:
            effects += [*self._open(self._peer), *self._advance()]
        if self._recovery.deadline_ns <= now_ns:
            effects += self._ask(segment, now_ns)
        if self._restraint is not None and self._restraint.deadline_ns <= now_ns:
            effects += self._restraint.asked(0, path.lead, now_ns)
        silence = now_ns - path.heard_at_ns
        if self._state is _State.OPEN and silence >= self._parameters.peer_expiry:
            if path.fin_lead is not None:
                return [*effects, *self.end(self._end_cause)]  # no outage: it said that it would go
            self._state = _State.SILENT
            effects.append(Closed(self.path.tsi, self.window.next_sqn, CloseCause.SILENT))
        elif silence >= self._parameters.session_expiry:
            self._counters.sessions_expired += 1
            effects += self.end(CloseCause.EXPIRED)
        return effects

    def _ask(self, segment: Segment, now_ns: int) -> Effects:
        """Ask for what is missing and has been waited for, or give it up."""
        if self._is_unreliable:
            self.window.give_up(self._recovery.give_up_due(now_ns), LossCause.UNREPAIRED)
            return self._advance()
        restraint = self._restraint
        if restraint is None and self._parameters.nagging_window_ivl:
            name = f"session {tsi_text(self.path.tsi)}"
            restraint = NakSelfLimit(name, self._recovery, self._parameters, self.path.lead, now_ns)
            self._restraint = self._asker.restraint = restraint
        naks, step = self._asker.ask(segment, now_ns)
        has_given_up = self.window.end_asking(step, self.path.trail)
        if restraint is not None and restraint.wants_close:
            return [*naks, *self.end(CloseCause.NAGGING)]
        return [*naks, *self._advance()] if has_given_up else naks
