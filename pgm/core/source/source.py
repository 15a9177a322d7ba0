"""Core of a source: transmit window, SPMs, NCFs and repairs (RFC 5)."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import attrs

from pgm.core.control_codes import ControlCodes
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, control, data
from pgm.core.in_place import Neighbours, replace_children, replace_parameters, replace_values
from pgm.core.pacing.adaptive_rate import AdaptiveRate
from pgm.core.pacing.pacer import Pacer
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.parity.source import ParitySource, aligned
from pgm.core.polling.children import populations
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.responder import TIMER_STEP_NS
from pgm.core.segment import Channel, Segment
from pgm.core.session.session_counters import counts_of
from pgm.core.session_context import SessionContext
from pgm.core.source.closing import StreamEnd
from pgm.core.source.feeder import MessageBatcher, NoBatcher
from pgm.core.source.flow_control import flow_control_of
from pgm.core.source.nak_answer import NakAnswerer
from pgm.core.source.send_state import SendState
from pgm.core.source.setup import SourceSetup
from pgm.core.source.single_packet import SingleSendLane
from pgm.core.source.spm_builder import SpmBuilder
from pgm.core.source.spm_schedule import SpmSchedule
from pgm.core.source_names import source_of
from pgm.core.status import SessionEdges, SessionStatus
from pgm.core.structures.ranges import Span
from pgm.core.window.sealed_window import SealedWindow
from pgm.core.window.transmit_window import Payload, PayloadRows, TransmitWindow
from pgm.errors import SourceClosed
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND
from pgm.wire.control_packets import Ack, Nak, Packet, Polr, Spmr
from pgm.wire.formats import Nla, Tsi, tsi_text
from pgm.wire.options import HeldHistory, Options, Rst, SourceFile, find
from pgm.wire.parity import MOST_EXTRA_OCTETS
from pgm.wire.train import Data, DataWithGaps, Item, Octets, Train

_RESETS = 3  # SPMs that announce an abort


class SourceCore:
    """One source of one stream."""

    def __init__(
        self,
        setup: SourceSetup,
        parameters: Parameters,
        now_ns: int,
        rng: random.Random | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self.control_codes = ControlCodes(setup.control, self.counters)
        if parameters.fec_group:  # parity packets are a little longer than the packets they protect
            setup = attrs.evolve(setup, first_sqn=aligned(setup.first_sqn, parameters))
        self.setup = setup
        self._parameters = parameters
        self._segment: Segment = setup.segment
        # Octets of a data packet.
        self.max_tpdu = parameters.max_tpdu - (MOST_EXTRA_OCTETS if parameters.fec_group else 0)
        # Only polls are drawn; a TSI is random enough for them.
        rng = rng or random.Random(setup.tsi)
        context = SessionContext(setup.tsi, setup.data_port, parameters, self.counters, rng)
        windowed = attrs.evolve(parameters, max_tpdu=self.max_tpdu)
        self.window = _window_of(setup, windowed)
        self._parity = ParitySource(context, setup.segment, self.window) if parameters.fec_group else None
        self._sending = SendState(
            self.window,
            Pacer(parameters),
            AdaptiveRate(parameters),
            SpmSchedule(parameters, now_ns),
            parameters.rdata_share,
        )
        # Until a NAK comes, nothing is due before this except SPMs, data, repairs and the batcher's messages. 0:
        # compute it again.
        self._cached_deadline_ns = 0
        self._closing = StreamEnd(self.window, parameters, now_ns)
        self._naks = NakAnswerer(context, setup, self._sending, self._parity, self._closing)
        self._naks.children.begin(now_ns)
        self.flow = flow_control_of(setup, context, now_ns)
        # Whether data packets are limited only by rate and window.
        self._is_plain = not self.flow.has_feedback and self._parity is None and not parameters.txw_max_pps
        self.single = SingleSendLane(
            context,
            self._sending,
            self._naks,
            functools.partial(_deadline_of, self),
            is_open=self._is_plain and not setup.lines,
        )
        self._spms = SpmBuilder(setup, self.window, self.flow, parameters, now_ns)
        self._batcher: MessageBatcher = NoBatcher()

    @property
    def end(self) -> StreamEnd:
        """The end of the stream: whether it has come, and until when NAKs are answered."""
        return self._closing

    @property
    def nak_limits(self) -> NakLimits:
        """Budgets of the children for requests."""
        return self._naks.limits

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other children and parameters in place. The caller has checked that the parameters may change."""
        replace_children(self.setup.children, neighbours.children)
        replace_parameters(self._parameters, parameters)
        self.window.change(parameters)
        self._sending.repair_share = parameters.rdata_share
        self.set_rate(self.rate_set, now_ns)  # another rate is a setting, with an event of its own
        self._naks.limits.change(now_ns)

    def tell_file(self, file: SourceFile) -> None:
        """Put the digests of another topology file on all SPMs from now on."""
        replace_values(self.setup, attrs.evolve(self.setup, file=file), ("file",))

    @property
    def tsis(self) -> tuple[Tsi, ...]:
        """TSIs of the sessions that this core sends."""
        return (self.setup.tsi,)

    def announce(self, options: Options) -> None:
        """Put further options on all SPMs from now on."""
        self._spms.announced = options

    # The application

    @property
    def parameters(self) -> Parameters:
        """Timers and limits of this source."""
        return self._parameters

    @property
    def rate(self) -> int:
        """Maximum rate in octets per second. The rate is the set rate, or less after an automatic reduction."""
        return self._sending.pacer.rate

    @property
    def rate_set(self) -> int:
        """Allowed rate in octets per second: txw_max_rte, or the last `set_rate`."""
        return self._sending.adaptive_rate.most

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate for data and repairs in octets per second; window and receivers are sized for txw_max_rte."""
        self._sending.pacer.set_rate(rate, now_ns)
        self._naks.history.set_rate(rate, now_ns)
        self._sending.adaptive_rate.limit_to(rate)
        self._sending.pacer.go_at(self._sending.adaptive_rate.rate)
        self.invalidate_deadline()

    def release(self, child: Nla, now_ns: int) -> int:
        """Restore the normal NAK budget of a child. Return in how many sessions, 0 or 1, it had a reduced one."""
        self.invalidate_deadline()
        return int(self._naks.limits.release(child, now_ns))

    def attach(self, batcher: MessageBatcher) -> None:
        """Serve the deadlines of a batcher, which submits messages later."""
        self._batcher = batcher
        self.single.close()

    @property
    def batcher(self) -> MessageBatcher:
        """The batcher whose deadlines this source serves."""
        return self._batcher

    @property
    def room_octets(self) -> int:
        """Octets that may be submitted before the application should wait."""
        limits, rate = self._parameters, self._sending.pacer.rate
        most = min(limits.txw_unsent_bytes, rate * limits.txw_unsent_secs // SECOND)
        return most - self.window.unsent_octets

    def submit(self, payloads: Sequence[Payload]) -> None:
        """Take messages, to be sent at the deadline. Raise `PayloadTooLarge` or `SourceClosed`."""
        self._begin_submitting()
        self.window.append(payloads)

    def submit_rows(self, payloads: Octets | PayloadRows) -> None:
        """Take messages of equal size: a (count, size) array, or rows yet to be written."""
        self._begin_submitting()
        self.window.append_rows(payloads)

    def require_open(self) -> None:
        """Raise `SourceClosed` after closing."""
        if self._closing.is_closed:
            raise SourceClosed("this source is closed", remedy="open a new one; it will be a new session")

    def _begin_submitting(self) -> None:
        self.require_open()
        self.single.next_event_ns = 0
        if not self.flow.has_feedback and not self.window.has_unsent:
            # packets that already wait, also for acks, are held up whether or not more follow
            self._sending.blocked_until_ns = 0

    def close(self) -> None:
        """Send accepted messages, announce FIN, and serve repairs until no NAKs come."""
        self._closing.close()
        self.single.close()
        self.invalidate_deadline()
        self.window.mark_end()

    def invalidate_deadline(self) -> None:
        """Drop the cached deadlines, because something other than data happened."""
        self.single.next_event_ns = self._cached_deadline_ns = 0

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort the stream: every SPM from now on carries OPT_RST (RFC 9.8.2, SRC-30).

        Unsent messages are dropped, and SPM_LEAD is the last sqn that was sent. Several SPMs are sent at once, because
        the caller may exit without waiting for `is_finished`. `error` is the application's code, 6 bits, 0 for unknown.
        `no_naks` says that no NAK will be answered, which ends all recovery. Leave it out if a repairer may have the
        missing packets.
        """
        self._closing.close(Rst(no_naks=no_naks, error=error))
        self.single.close()
        self.invalidate_deadline()
        self.window.drop_unsent()
        return [self.spm(now_ns) for _ in range(_RESETS)]

    def is_finished(self, now_ns: int) -> bool:
        """Return whether a closed source may exit: after `fin_quiet_ivl` without NAKs, or `txw_secs` (SRC-27)."""
        return self._closing.is_over(now_ns)

    # The network

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take NAKs and SPMRs from downstream; other packets are not for a source."""
        items, rejects = train.parse_scattered_untrusted()
        if rejects:
            self.counters.rejects.update(rejects)
        return self.take(items, channel, peer, now_ns)

    def take(self, items: Sequence[Item | DataWithGaps], channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read.

        Repairs are sent along with NCFs if data is about to be sent. Data must have been sent between two such repairs.
        A driver whose link is blocked requests no data, and would queue ever more repairs.
        """
        lead = self.window.lead
        may_repair = lead != self._sending.repaired_lead and self._is_calm(now_ns) and self._sending.has_data(now_ns)
        self.invalidate_deadline()
        effects: list[Effect] = []
        wanted: list[list[Span]] = []
        for one in items:
            item = one
            if item.tsi != self.setup.tsi or item.data_port != self.setup.data_port:
                self._on_foreign(item)
                continue
            if self.control_codes.has_any and isinstance(item, Packet):
                checked = self.control_codes.checked(item, channel.segment, peer, now_ns)
                if checked is None:
                    continue
                item = checked
            if isinstance(item, Nak) and not channel.is_group:
                effects += self._on_nak(item, peer, now_ns, wanted)
                if self.flow.on_nak(item, self.window.lead, now_ns):
                    effects += self._follow_feedback(now_ns)
            elif isinstance(item, Spmr):
                held = find(item.options, HeldHistory) if item.options and not channel.is_group else None
                if held is None:
                    effects += self._on_spmr(now_ns)
                elif not held.answers and self._closing.serves_naks:
                    effects += self._naks.history.on_question(held, peer, now_ns)
            elif isinstance(item, Polr) and not channel.is_group:
                effects += self._naks.children.on_polr(item, now_ns)[0]
            elif isinstance(item, Ack) and self.flow.has_feedback and not channel.is_group:
                effects += self.flow.on_ack(item, self.window.lead, self._segment, peer, now_ns)
                effects += self._follow_feedback(now_ns)
            else:
                self._on_foreign(item)
        if wanted:
            effects += self._naks.answer(wanted, peer, now_ns, may_repair=may_repair)
        return [*self.control_codes.take_effects(), *effects] if self.control_codes.has_any else effects

    def _on_foreign(self, item: Item | DataWithGaps) -> None:
        self.counters.foreign_packets += item.count if isinstance(item, (Data, DataWithGaps)) else item.packets

    def _follow_feedback(self, now_ns: int) -> Effects:
        """Apply what receivers have reported. Return an SPM if the flow control wants one."""
        self.window.keep_from(self.flow.unstable_from)
        self._sending.blocked_until_ns = 0
        return (self.spm(now_ns),) if self.flow.wants_spm(now_ns) else NOTHING

    def _on_nak(self, nak: Nak, peer: Nla, now_ns: int, wanted: list[list[Span]]) -> Effects:
        children = self._naks.children
        was_heard = not children.is_unreachable
        ncfs = self._naks.on_nak(nak, self._segment, peer, now_ns, wanted)
        # If multicast works after all, this SPM makes all receivers send NAKs again (IMP-21).
        return [*ncfs, self.spm(now_ns)] if was_heard and children.is_unreachable else ncfs

    def _on_spmr(self, now_ns: int) -> Effects:
        self.counters.spmr_packets_in += 1
        return (self.spm(now_ns),) if self._naks.limits.admit_spmr(now_ns) else NOTHING

    def spm(self, now_ns: int) -> Effect:
        """Return the next SPM."""
        back_off = self._naks.children.back_off
        options = () if self._parity is None else self._parity.options()
        more = (*options, *back_off.options, *back_off.range_options, *self._closing.spm_options())
        packet = self._spms.packet(self._segment, more, now_ns)
        self.counters.spm_packets += 1
        self._sending.pacer.data_sent(len(packet), now_ns)
        return control(self._segment, packet)

    def all_spms(self, now_ns: int) -> Effects:
        """Return an SPM of each session."""
        return (self.spm(now_ns),)

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        sending = self._sending
        others_ns = self._cached_deadline_ns or self._compute_deadline()
        at = min(others_ns, sending.schedule.deadline_ns, self._batcher.deadline_ns)
        if (repair_ns := self._naks.responder.deadline_ns) != NEVER:
            at = min(at, max(sending.pacer.repair_ready_at(self._naks.responder.next_octets()), repair_ns))
        at = min(at, self._naks.history.ready_ns)
        if self.window.has_unsent:
            at = min(at, max(sending.pacer.data_ready_at(self.window.next_octets), sending.blocked_until_ns))
        elif self._closing.is_closed and not self._closing.has_begun:
            at = 0
        return at

    def _compute_deadline(self) -> int:
        """Return when anything but SPMs, data, repairs and batcher is due; cached if data brings it no nearer."""
        window = self.window
        at = min(self._naks.deadline_ns, window.deadline_ns)
        if self._is_plain and not self._closing.is_closed and window.trail <= window.lead:
            self._cached_deadline_ns = at
            return at
        if self._parity is not None:
            at = min(at, self._parity.ready_ns(self._sending.pacer))
        return min(at, self.flow.deadline_ns, self._closing.deadline_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send deferred NCFs, an SPM, a POLL, then one train of data."""
        self.single.next_event_ns = 0
        effects = [] if self._is_calm(now_ns) else self._run_due(now_ns)
        parity = None if self._parity is None else self._parity.next_train(self._sending.pacer, now_ns)
        if parity is None and self._sending.is_data_first(now_ns):
            train = self._next_data(now_ns) or self._next_owed(now_ns)
        else:
            train = parity or self._next_owed(now_ns) or self._next_data(now_ns)
        if train is not None:
            self._sending.train_sent(now_ns)
            effects.append(train)
        return effects

    def _is_calm(self, now_ns: int) -> bool:
        """Return whether nothing known is due before data."""
        sending = self._sending
        due_ns = min(self._cached_deadline_ns, sending.schedule.deadline_ns, sending.adaptive_rate.review_at_ns)
        return now_ns < due_ns and now_ns < self._batcher.deadline_ns

    def _run_due(self, now_ns: int) -> list[Effect]:
        """Run everything that comes before data."""
        self._cached_deadline_ns = 0
        effects: list[Effect] = [*self._naks.ncfs.handle_deadline(now_ns), *self._naks.limits.handle_deadline(now_ns)]
        self._batcher.handle_deadline(now_ns)
        if self.flow.deadline_ns <= now_ns:
            effects += self.flow.handle_deadline(self.window.lead, now_ns)
            effects += self._follow_feedback(now_ns)
        self.window.advance(now_ns)
        self._closing.check(now_ns)
        is_ending = self._closing.is_closed and not self._closing.has_begun and not self.window.has_unsent
        if self._parity is not None and (is_ending or self._parity.deadline_ns <= now_ns):
            effects += (self.spm(now_ns),) if self._parity.close_group(now_ns) and not is_ending else ()
        if is_ending:
            self._closing.begin(now_ns)
            self._sending.schedule.closing(now_ns)
        if self._sending.schedule.is_due(now_ns):
            effects.append(self.spm(now_ns))
            self._naks.children.on_regular_spm()
        effects += self._naks.children.handle_deadline(now_ns)
        is_held = now_ns < self._sending.blocked_until_ns < NEVER  # by NAKs, but not by acks nor by the application
        effects += self._sending.adaptive_rate.update(
            self._sending.pacer, self.counters, self.window.lead, now_ns, is_held=is_held
        )
        return effects

    def _next_owed(self, now_ns: int) -> Effect | None:
        """Return repairs, or else history for late joiners, which is a part of the repairs' share."""
        if (repair := self._next_repair(now_ns)) is not None:
            return repair
        history = self._naks.history.next_train(now_ns)
        if history is not None:
            self._sending.count_repairs(len(history.octets))
        return history

    def _may_repair(self, now_ns: int) -> bool:
        """Return whether repairs are due, and may leave now."""
        responder = self._naks.responder
        if responder.deadline_ns > now_ns:
            return False
        return self._sending.pacer.repair_ready_at(responder.next_octets()) <= now_ns

    def _next_repair(self, now_ns: int) -> Effect | None:
        responder, pacer = self._naks.responder, self._sending.pacer
        if now_ns < responder.deadline_ns <= now_ns + TIMER_STEP_NS and self._sending.has_data(now_ns):
            responder.expedite(now_ns)
        if not self._may_repair(now_ns):
            return None
        send = responder.next_train(pacer.repair_room(now_ns), self.window.trail, now_ns, pacer.packet_room(now_ns))
        if send is not None:
            self._sending.repair_sent(len(send.octets), len(send.octets) // send.stride, now_ns)
        return send

    def share_repairs(self, repairs: TokenBucket) -> None:
        """Take RDATA from a bucket that another session of the source has, too."""
        self._sending.pacer.share_repairs(repairs)

    def _next_data(self, now_ns: int) -> Effect | None:
        window, sending = self.window, self._sending
        if not sending.has_data(now_ns):
            return None
        pacer = sending.pacer
        packets = min(pacer.packet_room(now_ns), self.flow.room(window.lead, now_ns))
        rows = window.next_train(pacer.train_octets, now_ns, packets, self._naks.owes) if packets else None
        if rows is None:
            self.counters.window_holds += bool(packets)
            sending.blocked_until_ns = window.retry_at() if packets else NEVER  # until an ack comes
            return None
        count, octets = rows.shape[0], rows.size
        self.flow.data_sent(window.lead + 1 - count, window.lead + 1, now_ns)
        sending.data_sent(octets, count, now_ns)
        self.counters.odata_packets += count
        self.counters.odata_octets += octets
        sending.adaptive_rate.sent(count, octets)
        if self._parity is not None:
            self._parity.data_sent(now_ns)
        return data(self._segment, rows)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return one row: the session of this source."""
        window = self.window
        row = SessionStatus(
            tsi=tsi_text(self.setup.tsi),
            source=source_of(self.setup.tsi),
            data_port=self.setup.data_port,
            state="closing" if self._closing.is_closed else "open",
            trail=window.trail,
            lead=window.lead,
            next_sqn=window.next_sqn,
            pending_sqns=self._naks.responder.pending_sqns,
            held_octets=window.held_octets,
            counts=counts_of(self.counters),
            askers=self._naks.limits.askers(),
            children=populations((self._segment, self._naks.children)),
        )
        return [self.flow.with_status(row)]

    def edges(self) -> list[SessionEdges]:
        """Return how far the session of this source has come."""
        return [SessionEdges(self.setup.tsi, self.setup.data_port, self.window.trail, self.window.lead)]

    def advance_trail(self, sqn: int) -> None:
        """Advance the window by application control (RFC 16.4). Nothing before the message at `sqn` needs repair."""
        self.window.advance_to(sqn)
        self._sending.blocked_until_ns = 0
        self.invalidate_deadline()

    def close_window(self, now_ns: int) -> Effects:
        """Empty the window, as nothing sent so far needs repair (RFC 3.5, SRC-15). An SPM says so at once."""
        self.advance_trail(self.window.lead + 1)
        return (self.spm(now_ns),)


def _deadline_of(core: SourceCore) -> int:
    return core.deadline_ns


def _window_of(setup: SourceSetup, parameters: Parameters) -> TransmitWindow:
    if setup.sealer is None:
        return TransmitWindow(setup.tsi, setup.data_port, parameters, setup.first_sqn)
    return SealedWindow(setup.tsi, setup.data_port, parameters, setup.first_sqn, setup.sealer)
