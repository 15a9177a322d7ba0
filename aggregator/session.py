"""One session at an aggregator: merges NAKs and relays repairs (RFC 7).

A relay that loses a packet knows that all nodes below lack the packet. The relay requests the packet at once on behalf
of these nodes, and sends them an NCF. The repair is relayed as ODATA, because it is the first sending on the segments
below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aggregator.elimination import Elimination, Repair
from aggregator.late_join import AggregatorHistory
from aggregator.nak_forwarder import NOBODY
from aggregator.nak_routes import NakRoutes
from aggregator.own_gaps import OwnGaps
from aggregator.parity import ParityElement
from aggregator.relay_cache import RelayCache
from pgm.core.acked.ack_merger import AckMerger
from pgm.core.effects import NOTHING, Effect, Effects, Send
from pgm.core.element.children import ElementChildren
from pgm.core.element.relay import Relay
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.poll_responder import PollResponder
from pgm.core.recovery.nak_control import is_for_asker, unreachable_neighbour
from pgm.core.recovery.nak_packets import OF_HISTORY, forwarded, nak_packets, with_sqns
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.redirect import offered
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.ncf_sender import NcfSender
from pgm.core.repair.outlets import TO_ALL
from pgm.core.segment import Channel, Segment
from pgm.core.session.state import SessionState, SpmVerdict
from pgm.core.session_context import SessionContext
from pgm.core.source_names import source_of
from pgm.core.status import SessionStatus
from pgm.core.structures.ranges import Span
from pgm.core.timers import Timers
from pgm.wire.control_packets import Nak, Packet, Poll, Polr, Spm
from pgm.wire.data_packets import build_first_sending
from pgm.wire.formats import Nla, PacketType, tsi_text
from pgm.wire.naks import Naks
from pgm.wire.options import NO_OPTIONS, ForAsker, HeldHistory, Options
from pgm.wire.parity import counts_of
from pgm.wire.train import Data


class AggregatorSession:
    """One TSI at an aggregator."""

    def __init__(self, context: SessionContext, setup: ElementSetup, cache: RelayCache) -> None:
        parameters = context.parameters
        self._setup = setup
        self.cache = cache
        self._counters = context.counters
        self.state = SessionState(context)
        self._children = ElementChildren(context, setup, lasts_ns=parameters.ne_nak_rdata_ivl, searches=True)
        self.relay = Relay(context, setup, self._children.back_offs)
        self.nak_limits = NakLimits(context, setup.children)
        self.ncf_sender = NcfSender(context, self.nak_limits)
        self.elimination = Elimination(context)
        self._gaps = OwnGaps(parameters)
        self._routes = NakRoutes(context, setup, self.elimination)
        self.acks = AckMerger(context, self.state, self._routes.upstream, setup)
        self._answers = PollResponder(context, setup.up)
        self.history = AggregatorHistory(context, self.state, setup, self.nak_limits)
        self.parity = ParityElement(context, self.state, setup, self.ncf_sender, self.elimination, self._routes)
        self._timers: Timers[AggregatorSession] = Timers(
            self.ncf_sender,
            self.relay,
            self.nak_limits,
            self.acks,
            self.history,
            (self._gaps, AggregatorSession._handle_gaps),
            self._answers,
            self._children.polls(self.relay),
            self.parity,
            (self.elimination.forwarder, AggregatorSession._repeat_naks),
        )

    def change(self, now_ns: int) -> None:
        """Take the setup and the parameters as they are now."""
        self._routes.change(self._setup)
        self.nak_limits.change(now_ns)
        self.history.change(self._setup)
        self.cache.change(self._setup)

    @property
    def is_over(self) -> bool:
        """False: an aggregator's session lives until it expires."""
        return False

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self._timers.deadline_ns, self.cache.deadline_ns)

    def note_peer(self, item: Data | Packet, peer: Nla) -> None:
        """Note that the sender of this item is alive."""
        self._routes.note_peer(peer, answers=item.type in (PacketType.NCF, PacketType.RDATA))

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's row for operators."""
        return SessionStatus(
            tsi=tsi_text(self.state.tsi),
            source=source_of(self.state.tsi),
            data_port=self.state.data_port,
            state=self.relay.role.name.lower() if self._setup.is_relay else "on-lan",
            trail=self.state.trail,
            lead=self.state.lead,
            pending_sqns=self.elimination.repairs.sqns + self.cache.pending_sqns,
            held_octets=self.cache.packets.store.pinned_octets,
            parent=self._routes.upstream.current or "",
            silent_ns=now_ns - self.state.heard_at_ns,
            file=self.state.file,
            verified_ns=self.state.verified_ns(now_ns),
            askers=self.nak_limits.askers(),
            acked=self.acks.status,
            children=self._children.populations,
        )

    # From above

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM from upstream, and relay it with the path rewritten (NE-01, NE-02)."""
        verdict = self.state.on_spm(spm, now_ns)
        if verdict is SpmVerdict.UNPROVED:
            return self.state.report_doubt(peer, now_ns)
        self.state.heard_at_ns = now_ns
        if verdict is SpmVerdict.STALE:
            return NOTHING
        if verdict is SpmVerdict.UNREACHABLE:
            return self._cut_off(now_ns)
        self._gaps.may_ask = True
        if spm.options:
            self.parity.on_spm(spm)
        self._routes.learn_path(spm.path_nla)
        self.acks.on_spm(spm, now_ns)
        self._children.on_regular_spm(now_ns)
        self._note_sent(self.state.lead + 1, self.state.lead + 1, now_ns)
        passed = self.state.for_children(spm)
        return NOTHING if passed is None else self.relay.on_spm(passed, now_ns)

    def _cut_off(self, now_ns: int) -> Effects:
        """Stop forwarding NAKs: the parent cannot be heard (IMP-23 - IMP-25).

        Forwarding resumes with the next regular SPM. The nodes below get an announcement.
        """
        self._counters.neighbour_unreachable += 1
        self._gaps.may_ask = False
        self.elimination.forwarder.drop_pending()
        self.parity.elimination.forwarder.drop_pending()
        return self.relay.tell_unreachable(now_ns)

    def on_poll(self, poll: Poll, peer: Nla, now_ns: int) -> None:
        """Take a POLL from upstream. An element is a child like any other (NE-38). The POLL is not relayed."""
        if poll.path_nla == peer or self._routes.upstream.is_parent(poll.path_nla):
            self._answers.on_poll(poll, now_ns)
        else:
            self._counters.foreign_packets += 1

    def on_odata(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Relay ODATA from upstream unchanged; it ends no repair (NE-04, NE-15)."""
        first, trail = self.state.place(data.wire_sqn, data.wire_trail)
        if self.state.doubts(first, first + data.count, now_ns):
            return self.state.report_doubt(peer, now_ns)
        self.state.heard_at_ns = now_ns
        if not self.state.has_edges:
            self.state.begin_at(first + data.count - 1, trail)
        self.state.saw(first + data.count - 1, trail)
        self.acks.came(first, first + data.count)
        self._note_sent(first, first + data.count, now_ns)
        self.cache.keep(data, first, now_ns)
        notice = self.cache.take_notice()
        return [*notice, *self.relay.on_data(data)] if notice else self.relay.on_data(data)

    def _note_sent(self, first: int, end: int, now_ns: int) -> None:
        """Track relayed data.

        A relay that is not active relays nothing and misses nothing. With parity, a relay cannot distinguish lost
        packets from packets that a short group leaves out. The nodes below then request both.
        """
        if self.relay.is_active and not self.parity.size:
            self._gaps.passed(first, end, now_ns)
            self._gaps.drop_before(self.state.trail)
        else:
            self._gaps.restart(end)

    def on_rdata(self, data: Data, peer: Nla, now_ns: int) -> Effects:
        """Relay repairs from upstream once to the segments that requested them (NE-30), unrelayed packets to all."""
        first = self.state.unwrap(data.wire_sqn)
        if self.state.doubts(first, first + data.count, now_ns):
            return self.state.report_doubt(peer, now_ns)
        self.state.heard_at_ns = now_ns
        self.cache.keep(data, first, now_ns)
        notice = self.cache.take_notice()
        if notice:
            return [*notice, *self._pass_rdata(data, first, now_ns)]
        return self._pass_rdata(data, first, now_ns)

    def _pass_rdata(self, data: Data, first: int, now_ns: int) -> Effects:
        new = self._gaps.filled(first, first + data.count)
        if new:
            return [*self._first_sending(data, first, new), *self._ask_for_gaps(now_ns)]
        repaired = self._repaired(first, first + data.count)
        wanted = sum(repair.count for repair in repaired if repair.segments)
        self._counters.rdata_unwanted += data.count - wanted
        return self._pass_repair(data, first, repaired, now_ns) if self._setup.is_relay else NOTHING

    def _pass_repair(self, data: Data, first: int, repaired: list[Repair], now_ns: int) -> list[Effect]:
        sends: list[Send] = []
        for repair in repaired:
            octets = data.octets[(repair.first - first) * data.stride : (repair.end - first) * data.stride]
            for index, segment in enumerate(self._setup.downs):
                if repair.segments >> index & 1:
                    self._counters.rdata_forwarded += repair.count
                    sends.append(Send(segment, octets, data.stride, repair.joiner, is_data=True))
        return self.cache.passed_on(sends, now_ns)

    def _repaired(self, first: int, end: int) -> list[Repair]:
        self._children.repaired(first, end)
        return self.elimination.repaired_from_above(first, end)

    def _first_sending(self, data: Data, first: int, new: Iterable[Span]) -> list[Effect]:
        self._repaired(first, first + data.count)
        sends: list[Effect] = []
        for low, end in new:
            rows = build_first_sending(data.run(first).part(low, end))
            self._counters.late_sqns += end - low
            self._counters.watch.mended(self.state.tsi, low, end)
            sends += self.relay.pass_down(rows.reshape(-1), data.stride, self._setup.downs)
        return sends

    def on_ncf(self, ncf: Nak, peer: Nla, is_from_above: bool, now_ns: int) -> Effects:
        """Take an NCF: it confirms sqns requested of its sender. From upstream, it confirms all, and anticipates."""
        effects: Effects = NOTHING
        about = unreachable_neighbour(ncf)
        if about is not None:
            if about not in (self.state.path_nla, self._routes.upstream.current):
                self._counters.strangers_unreachable += 1
                return NOTHING
            effects = self._cut_off(now_ns)
        confirms_all = is_from_above and (self._setup.is_relay or self._routes.upstream.is_parent(peer))
        if confirms_all or self._routes.is_repairer(peer):
            self._counters.ncf_packets_in += ncf.packets
        else:
            self._counters.ncf_packets_below += ncf.packets

        def answers(repair: Repair) -> bool:
            return confirms_all or repair.target == peer

        if ncf.parity:
            self.parity.on_ncf(ncf, now_ns, NOBODY if confirms_all else peer)
            return effects
        if is_for_asker(ncf):  # no element has asked, and no other node waits
            return effects
        parts = self.state.parts_of(ncf)
        spans = [(low, end) for part in parts for low, end in self.state.spans_of(part) if self.state.reveals(end)]
        self.elimination.confirm(spans, now_ns, answers, anticipate=confirms_all)
        return effects

    # From below

    def _are_alike(self, spans: list[Span], peer: Nla, now_ns: int) -> bool:
        """Return whether one decision holds for all packets that a train of NAKs asks for."""
        return (
            spans[-1][1] <= self.state.lead + 1
            and self.elimination.are_uniform(spans, now_ns)
            and not self.history.history_server.splits(peer, spans)
            and self.cache.is_uniform(spans)
        )

    def on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Confirm a NAK, note its segment, and forward new requests (RFC 7.2 - 7.4)."""
        if nak.parity:
            return self._on_parity_nak(nak, segment, peer, now_ns)
        spans = self.state.spans_of(nak)
        if isinstance(nak, Naks) and not self._are_alike(spans, peer, now_ns):
            return [effect for single in nak.singles() for effect in self.on_nak(single, segment, peer, now_ns)]
        if (sent := self.state.sent_part(nak, spans)) is not None:
            return self.on_nak(sent, segment, peer, now_ns)
        if not self.state.has_edges or spans[-1][1] > self.state.lead + 1:
            self._counters.nak_packets_foreign += nak.packets
            self.nak_limits.charge(peer, nak.packets, now_ns)
            return NOTHING
        is_history = self.history.history_server.is_history(nak, segment, peer, spans[-1][1], now_ns)
        asked = 0 if nak.kind is PacketType.NNAK else nak.asked
        newest = 0 if is_history else spans[-1][1] - 1
        if not self.nak_limits.admit_nak(peer, now_ns, asked, self.state.lead, nak.packets, newest=newest):
            return NOTHING
        if nak.kind is PacketType.NNAK:
            return self._on_null_nak(nak, spans, peer, now_ns)
        self._counters.nak_packets_in += nak.packets
        self._counters.nak_sqns_in += nak.asked
        index = self._setup.downs.index(segment)
        reply = self._children.on(segment).on_nak(spans, peer, now_ns)
        joiner = self.history.history_server.alone(segment) if is_history else None
        rest, spans, is_for_peer = self._serve(nak, spans, segment, joiner, peer, now_ns)
        options = (*reply.options, ForAsker()) if is_for_peer else reply.options
        effects: list[Effect] = [*self.ncf_sender.confirm(nak, segment, now_ns, joiner or reply.to, options)]
        nak = rest
        if not spans:
            return effects
        if not self._gaps.may_ask:
            return [*effects, *self.relay.tell_unreachable(now_ns)]
        route, bit = self._route_for(spans, index, peer, now_ns, is_history=is_history)
        if route is None:
            is_found = self.history.seek(now_ns)
            return effects if is_found else [*effects, *self.history.history_server.gone(spans, segment, now_ns)]
        if spans[-1][1] <= self.state.trail and route is self._routes.upstream and not self._setup.asks_below_trail:
            self._counters.nak_packets_late += nak.packets
            return effects
        if not is_history and not self._may_forward(spans, nak.packets, peer, now_ns):
            return effects
        target = self.elimination.admit(spans, bit, route, now_ns, joiner, is_history=is_history)
        if nak.options and not isinstance(nak, Naks):
            nak, is_news = self.acks.reports.renewed(nak)
            if is_news:
                target = target or self._routes.upstream.current or NOBODY
        if not target:
            self._counters.nak_packets_eliminated += nak.packets
            return effects
        home = self._routes.home_of(target)
        if home is self._setup.up:
            self.acks.reports.sent(nak)
        self._counters.nak_packets += nak.packets
        self._counters.nak_sqns += nak.asked
        return [*effects, forwarded(nak, self.state, home, target)]

    def _may_forward(self, spans: list[Span], packets: int, peer: Nla, now_ns: int) -> bool:
        """Return whether a child's request is in flight already, or within the child's part of what is passed up."""
        new = [span for first, end in spans for span in self.elimination.unasked(first, end, now_ns)]
        asked = sum([end - first for first, end in new])
        is_ending = self.state.end.is_claimed
        return not new or self.nak_limits.admit_upward(peer, asked, packets, now_ns, is_ending=is_ending)

    def _route_for(
        self, spans: list[Span], index: int, peer: Nla, now_ns: int, *, is_history: bool
    ) -> tuple[Parents | None, int]:
        """Return the route of a NAK, and the bit of the segment to repair. No node below has this relay's own losses."""
        if is_history:
            return self.history.find_route(), 1 << index
        if self._gaps.cover(spans):
            return self._routes.upstream, 1 << index
        return self._routes.route_for(spans, index, peer, now_ns)

    def _serve(
        self, nak: Nak, spans: list[Span], segment: Segment, joiner: Nla | None, peer: Nla, now_ns: int
    ) -> tuple[Nak, list[Span], bool]:
        """Owe repairs of what the cache keeps. Return the NAK, and its spans, for the rest, and whether all are for the peer."""
        asker = self.nak_limits.asker(peer, now_ns)
        to = joiner or (peer if self.nak_limits.has_excess_naks(peer) else TO_ALL)
        for_all = spans if to else self.cache.take_alone(spans, segment, asker, now_ns)
        lacking = self.cache.serve(for_all, segment, to, asker, now_ns)
        if lacking and lacking != spans:
            nak = with_sqns(nak, [sqn for first, end in lacking for sqn in range(first, end)])
        return nak, lacking, not for_all

    def on_question(self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a late joiner's request for history. An aggregator keeps no history, so upstream nodes are asked."""
        if not self.state.has_edges or not self.nak_limits.admit_nak(peer, now_ns):
            return NOTHING
        return self.history.on_question(held, segment, peer, now_ns)

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer about history from upstream. Announce sqns that are gone below: no node waits for them."""
        if not (held.nothing and held.by_sqn):
            return self.history.on_answer(held, peer, now_ns)
        if peer != self.history.keeper:
            return NOTHING
        first = self.state.unwrap(held.amount)
        effects: list[Effect] = []
        for repair in self.elimination.repaired_from_above(first, first + held.number):
            for index, segment in enumerate(self._setup.downs):
                if repair.segments >> index & 1:
                    effects += self.history.history_server.gone([(repair.first, repair.end)], segment, now_ns)
        return effects

    def _on_parity_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        if not self.state.has_edges or not self.parity.may_be(nak):
            self._counters.nak_packets_foreign += 1
            return NOTHING
        groups = counts_of([self.state.unwrap(sqn) for sqn in nak.sqns], self.parity.size)
        asked = 0 if nak.kind is PacketType.NNAK else sum(count for _, count in groups)
        newest = max(group for group, _ in groups) + self.parity.size - 1
        if not self.nak_limits.admit_nak(peer, now_ns, asked, self.state.lead, newest=newest):
            return NOTHING
        if nak.kind is PacketType.NNAK:
            return self.parity.on_null_nak(nak, peer)
        may_ask = self._gaps.may_ask
        effects = self.parity.on_nak(nak, segment, peer, now_ns, is_cut_off=not may_ask)
        return effects if may_ask else [*effects, *self.relay.tell_unreachable(now_ns)]

    def on_parity(self, data: Data, channel: Channel, now_ns: int) -> Effects:
        """Relay parity: unrequested unchanged (FEC-48), requested to the segments that requested it."""
        if data.type is PacketType.ODATA:
            return self.relay.on_data(data)
        if channel.segment.upstream:
            return self.cache.passed_on(self.parity.on_rdata(data), now_ns)
        self.parity.on_rdata_below(data, channel.segment)
        return NOTHING

    def _on_null_nak(self, nak: Nak, spans: list[Span], peer: Nla, now_ns: int) -> Effects:
        """Forward a null NAK to the source, unless a NAK says the same (DLR-38 - DLR-40)."""
        self._counters.nnak_packets_in += nak.packets
        to = self._routes.upstream.current
        is_for_us = self.elimination.has_asked(peer, spans)
        if not to or not (
            is_for_us or (not self.elimination.covers(spans) and self.elimination.null_naks.admit(spans, now_ns))
        ):
            self._counters.nnak_packets_eliminated += nak.packets
            return NOTHING
        self._counters.nnak_packets += nak.packets
        return (forwarded(nak, self.state, self._setup.up, to),)

    def _own_naks(self, spans: Sequence[Span], home: Segment, target: Nla, options: Options = NO_OPTIONS) -> list[Send]:
        sends = []
        for listed in nak_packets(self.state, home.group, spans, options=options):
            self._counters.nak_packets += listed.packets
            self._counters.nak_sqns += listed.sqns
            sends.append(listed.send(home, target))
        return sends

    def on_offer(self, polr: Polr, segment: Segment, peer: Nla) -> None:
        """Take the offer of a repairer on the upstream segment."""
        nla = offered(polr, peer) if self._routes.honours_redirects else None
        if nla is None:
            self._counters.redirects_ignored += 1
        else:
            self._routes.learnt.learn(nla, segment, is_upstream=True, path_nla=self.state.path_nla)

    def on_polr(self, polr: Polr, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a child's answer to a poll, or a repairer's answer to the search."""
        effects, answer = self._children.on(segment).on_polr(polr, now_ns)
        if answer is not None and offered(polr, peer) is not None:
            self._routes.learnt.learn(peer, segment, is_upstream=False, path_nla=self.state.path_nla)
        return effects

    def on_rdata_below(self, data: Data, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a repair from downstream.

        The repair of a local repairer has reached its segment. The repair of an off-tree repairer is relayed to the
        segments that requested it (DLR-37).
        """
        first = self.state.unwrap(data.wire_sqn)
        end = first + data.count
        if not self._routes.is_off_tree_for(peer, [(first, end)]):
            self.cache.came_on(first, end, segment, now_ns)
            self.elimination.repaired_below(first, end, 1 << self._setup.downs.index(segment))
            return NOTHING
        return self._pass_repair(data, first, self._repaired(first, end), now_ns)

    def _handle_gaps(self, now_ns: int) -> list[Effect]:
        """Count new gaps of this relay, and request a wave of gaps."""
        for first, end in self._gaps.take_missing(now_ns):
            self._counters.missing_sqns += end - first
            self._counters.watch.missing(self.state.tsi, first, end, now_ns)
        return self._ask_for_gaps(now_ns)

    def _ask_for_gaps(self, now_ns: int) -> list[Effect]:
        """Request this relay's gaps upstream, on behalf of all nodes below. The nodes below get NCFs."""
        gaps = self._gaps.take_wave(now_ns)
        if not gaps:
            return []
        self.nak_limits.note_own(sum([end - first for first, end in gaps]), now_ns)
        all_segments = (1 << len(self._setup.downs)) - 1
        # Sqns that a child requested in the meantime are in flight.
        unasked = [span for first, end in gaps for span in self.elimination.unasked(first, end, now_ns)]
        target = self.elimination.admit(gaps, all_segments, self._routes.upstream, now_ns)
        effects: list[Effect] = []
        for down in self._setup.downs:
            options = self._children.on(down).back_off.options
            for listed in nak_packets(self.state, down.group, gaps, PacketType.NCF, options):
                if self.nak_limits.admit_ncf(now_ns, listed.packets):
                    self._counters.ncf_packets += listed.packets
                    effects.append(listed.send(down))
        return [*effects, *self._own_naks(unasked, self._setup.up, target)] if target else effects

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return a due train of repairs from the cache, if the segment's own rate allows it."""
        return self.cache.next_repair(self.state.trail, now_ns)

    # Time

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Run the parts that are due; report a change of parent."""
        return [*self._routes.take_changes(now_ns), *self._timers.handle_deadline(self, now_ns)]

    def _repeat_naks(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        for repeat in self.elimination.take_repeats(now_ns):
            options = OF_HISTORY if repeat.is_history else NO_OPTIONS
            effects += self._own_naks(sorted(repeat.spans), self._routes.home_of(repeat.target), repeat.target, options)
        self._routes.learnt.drop_failed()
        return effects
