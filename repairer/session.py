"""One session at a repairer: receives, caches, and answers NAKs (RFC 9.5).

A relay also relays the session. A packet that the relay had to recover was never sent on the segments below. The packet
is relayed as ODATA: the whole subtree lacked it, and elements further down relay ODATA without a request.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.element.children import ElementChildren
from pgm.core.element.relay import Relay
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.recovery.nak_control import is_for_asker, unreachable_neighbour
from pgm.core.recovery.nak_packets import forwarded, with_sqns
from pgm.core.repair.cache import SessionCache
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.ncf_sender import NcfSender
from pgm.core.repair.null_naks import NullNaks
from pgm.core.repair.outlets import TO_ALL, TO_JOINERS, Outlets
from pgm.core.segment import Channel, Segment
from pgm.core.session.state import SpmVerdict
from pgm.core.session_context import SessionContext
from pgm.core.source_names import source_of
from pgm.core.status import SessionStatus
from pgm.core.structures.ranges import Span, without
from pgm.core.timers import Timers
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Polr, Spm
from pgm.wire.formats import Nla, PacketType, tsi_text
from pgm.wire.naks import Naks
from pgm.wire.options import ForAsker, HeldHistory
from pgm.wire.train import Data
from repairer.archive_feed import ArchiveFeed
from repairer.intake import PacketIntake
from repairer.late_join import RepairerHistory
from repairer.parity import NoParity, RepairerParity
from repairer.redirect_offer import RedirectOffer
from repairer.upstream import Upstream


class RepairerSession:
    """The repairer's side of one TSI."""

    def __init__(
        self, context: SessionContext, setup: ElementSetup, cache: SessionCache, pacers: Sequence[Pacer]
    ) -> None:
        parameters = context.parameters
        self._setup = setup
        self._parameters = parameters
        self._counters = context.counters
        self.upstream = upstream = Upstream(context, setup)
        self.state = upstream.state
        lasts_ns = parameters.rdata_hold_ivl + parameters.rdata_ignore_ivl
        self._children = ElementChildren(context, setup, lasts_ns=lasts_ns)
        self.relay = Relay(context, setup, self._children.back_offs)
        self.nak_limits = NakLimits(context, setup.children)
        self._ncf_sender = NcfSender(context, self.nak_limits)
        self._offer = RedirectOffer(context, self.state, setup, upstream.nak_control.answers)
        self._null_naks = NullNaks(parameters)
        self.history = RepairerHistory(context, upstream, cache, setup, self.nak_limits)
        self._outlets = Outlets(context, cache, setup.downs, pacers, self.history.pacer, setup.children)
        self.intake = PacketIntake(context, setup, upstream, self.relay, cache, self._outlets)
        self.parity: NoParity | RepairerParity = NoParity(context, setup, self.intake)
        self._timers: Timers[RepairerSession] = Timers(
            self._ncf_sender,
            self.relay,
            self.nak_limits,
            (self.state.end, RepairerSession._believe_end),
            (upstream.recovery, RepairerSession._ask),
            upstream.spm_request,
            upstream.nak_control.answers,
            upstream.acks,
            self.history,
            self._children.polls(self.relay),
        )

    def open_feed(self) -> ArchiveFeed:
        """Return a feed of all cached packets in order, for an archive."""
        return ArchiveFeed(self.upstream, self.intake.cache, self.intake.conflicts, self.history.resume)

    def change(self, now_ns: int) -> None:
        """Take the setup and the parameters as they are now."""
        self.upstream.change(self._setup, self._parameters)
        self.nak_limits.change(now_ns)
        self.history.change(self._setup, now_ns)

    @property
    def is_over(self) -> bool:
        """False: a repairer serves a session until it expires, even without a source."""
        return False

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self._timers.deadline_ns, self._outlets.ready_ns, self.parity.deadline_ns)

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's row for operators."""
        return SessionStatus(
            tsi=tsi_text(self.state.tsi),
            source=source_of(self.state.tsi),
            data_port=self.state.data_port,
            state=self.relay.role.name.lower() if self._setup.is_relay else "on-lan",
            trail=self.state.trail,
            lead=self.state.lead,
            missing_sqns=self.upstream.recovery.missing.sqns,
            pending_sqns=self._outlets.pending_sqns,
            held_octets=self.intake.cache.store.pinned_octets,
            parent=self.upstream.parents.current or "",
            silent_ns=now_ns - self.state.heard_at_ns,
            file=self.state.file,
            verified_ns=self.state.verified_ns(now_ns),
            askers=self.nak_limits.askers(),
            acked=self.upstream.acks.status,
            lines=self.upstream.lines.status(now_ns),
            children=self._children.populations,
        )

    # Receiving

    def on_data(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take data of any kind, which may complete a transmission group."""
        if isinstance(self.parity, NoParity) or not self.upstream.gap_detector.has_begun:
            return self._on_data(data, channel, peer, now_ns)
        first = self.state.unwrap(data.wire_sqn)
        self.parity.sent(first, first + data.count, now_ns)
        effects = self._on_data(data, channel, peer, now_ns)
        return [*effects, *self.parity.on_data(data, first, peer, now_ns)]

    def _on_data(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Cache and relay ODATA and RDATA from upstream or from another repairer."""
        first, trail = self.state.place(data.wire_sqn, data.wire_trail)
        if self.state.doubts(first, first + data.count, now_ns):
            return self.state.report_doubt(peer, now_ns)
        self.state.heard_at_ns = now_ns
        is_repair = data.type is PacketType.RDATA
        self.upstream.siblings.heard(peer)
        (self.upstream.parents.answered if is_repair else self.upstream.parents.heard)(peer)
        if not self.upstream.gap_detector.has_begun:
            if is_repair:
                return NOTHING
            self.intake.begin(first, data.count, trail, now_ns)
            if self.state.spm is None:  # no NAK can be sent before an SPM has come (RCV-22)
                self.upstream.spm_request.want(peer, now_ns)
        if self.state.end.is_claimed:
            self.state.end.on_data(first + data.count - 1)
        self.state.saw(first + data.count - 1, trail)
        self.intake.follow_trail()
        parts = self.intake.keep(data, first, peer, now_ns)
        is_from_above = channel.segment.upstream
        if is_from_above and not is_repair:
            self.upstream.acks.came(first, first + data.count)
        effects: list[Effect] = []
        if is_repair and channel.segment.downstream:
            self.intake.came_on(first, first + data.count, channel.segment, now_ns)
        if is_from_above and self.relay.is_active:
            effects += self.intake.pass_down(data, parts, now_ns)
        self.intake.serve_wanted(parts, now_ns)
        self.intake.keep_bounds()
        effects += self.intake.conflicts.take_notice()
        return effects

    def on_parity(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take parity of the source, an upstream element, or another repairer."""
        is_new = self.upstream.lines.is_new_parity(data)
        relayed = data.type is PacketType.ODATA and channel.segment.upstream and is_new
        effects = self.relay.on_data(data) if relayed else NOTHING
        return [*effects, *self.parity.on_parity(data, channel.segment, peer, now_ns)]

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM from upstream."""
        verdict = self.state.on_spm(spm, now_ns)
        if verdict is SpmVerdict.STALE:
            return NOTHING
        if verdict is SpmVerdict.UNPROVED:
            return self.state.report_doubt(peer, now_ns)
        self.state.heard_at_ns = now_ns
        if verdict is SpmVerdict.UNREACHABLE:
            self.upstream.nak_control.on_unreachable(now_ns)
            return self.relay.tell_unreachable(now_ns)
        if self.state.end.deadline_ns == NEVER:
            self.upstream.spm_request.heard_spm()
        else:
            self.upstream.spm_request.want(peer, now_ns)
        self.upstream.parents.heard(peer)
        self.upstream.parents.learn_path(spm.path_nla)
        self.upstream.nak_control.on_spm(spm, now_ns)
        self.upstream.acks.on_spm(spm, now_ns)
        self._children.on_regular_spm(now_ns)
        if verdict is SpmVerdict.JUMPED:
            self.intake.forget(self.upstream.recovery.give_up_before(self.state.trail))
            # otherwise the session continues at its old position: cached packets are not missing
            if self.state.trail > self.upstream.gap_detector.end:
                self.upstream.gap_detector.begin(self.state.trail)
        if not self.upstream.gap_detector.has_begun and self.state.join_at is not None:
            self.upstream.gap_detector.begin(self.state.join_at)
        self.intake.follow_trail()
        self.upstream.gap_detector.reveal(self.state.lead + 1, now_ns)
        if self.state.end.is_claimed:
            self.upstream.recovery.source_leaves(now_ns)
        else:
            self.upstream.recovery.source_stays()
        if spm.options:
            self.parity = self.parity.on_spm(spm, now_ns)
            self._offer.has_parity = isinstance(self.parity, RepairerParity)
        self.intake.keep_bounds()
        passed = self.state.for_children(spm)
        return NOTHING if passed is None else self.relay.on_spm(passed, now_ns)

    def on_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take an NCF: an answer from upstream, or a sign of a loss nearby (RFC 5.2).

        On-LAN, an NCF is an answer only if it comes from a parent, which includes the source, or from a sibling by
        unicast. A relay takes any NCF on the upstream segment. An NCF from downstream concerns only this node's
        children. No NCF is a sign of the source: a cache confirms NAKs without one.
        """
        upstream = self.upstream
        upstream.siblings.heard(peer)
        is_sibling = peer in upstream.siblings and not channel.is_group
        is_answer = channel.segment.upstream and (
            self._setup.is_relay or upstream.parents.is_parent(peer) or peer == upstream.nak_sender.keeper or is_sibling
        )
        if not is_answer:
            self._counters.ncf_packets_below += ncf.packets
            return NOTHING
        if not self.upstream.nak_control.on_ncf(ncf, peer, now_ns):
            return NOTHING
        self._counters.ncf_packets_in += ncf.packets
        self.upstream.parents.answered(peer)
        if ncf.parity:
            return self._on_parity_ncf(ncf, channel, peer, now_ns)
        spans = self.state.spans_of(ncf)
        effects = self._offer.on_ncf(spans, self.upstream.recovery, now_ns) if channel.is_group else NOTHING
        for part in self.state.parts_of(ncf):
            self.intake.reveal(self.state.spans_of(part)[-1][1], now_ns)
        if is_for_asker(ncf):  # no element has asked, and no other node waits
            return effects
        self.upstream.recovery.confirmed(spans, now_ns, peer)
        if self._parameters.assist_on_ncf and channel.segment.downstream and channel.is_group:
            effects = [*effects, *self._assist(spans, channel.segment, peer, now_ns)]
        return effects if unreachable_neighbour(ncf) is None else [*effects, *self.relay.tell_unreachable(now_ns)]

    def _on_parity_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        asked = self.parity.asked(ncf)
        if not asked or isinstance(self.parity, NoParity):
            return NOTHING
        spans = self.parity.spans_of(asked)
        effects = self._offer.on_ncf(spans, self.upstream.recovery, now_ns) if channel.is_group else NOTHING
        self.upstream.recovery.confirmed(self.parity.answered(ncf), now_ns, peer)
        if not (self._parameters.assist_on_ncf and channel.segment.downstream and channel.is_group):
            return effects
        hold = self._setup.assist_rank * self._parameters.rdata_hold_ivl
        self.parity.assist(asked, channel.segment, hold, now_ns)
        repair = self.parity.next_repair(now_ns) if not hold else None
        return effects if repair is None else [*effects, repair]

    def _assist(self, spans: list[Span], segment: Segment, parent: Nla, now_ns: int) -> list[Effect]:
        """Repair losses of other nodes.

        The repair is sent at once, or after the repairers of lower rank were silent. The parent that sent the NCF counts
        as one asker, because the NCF does not say whose NAK it confirms.

        The source is about to repair the same packets. The first train is therefore returned by this call, before the
        deadline.
        """
        hold = self._setup.assist_rank * self._parameters.rdata_hold_ivl
        self._outlets.to_all(segment).request(spans, now_ns, hold, parent)
        repair = self.next_repair(now_ns) if not hold else None
        return [] if repair is None else [repair]

    # Serving

    def on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Confirm a NAK, repair from the cache, else ask upstream. Parity answers sqns short groups left out."""
        if nak.parity:
            return self._on_parity_nak(nak, segment, peer, now_ns)
        if isinstance(self.parity, NoParity):
            return self._on_nak(nak, segment, peer, now_ns)
        if isinstance(nak, Naks):
            return [effect for single in nak.singles() for effect in self.on_nak(single, segment, peer, now_ns)]
        single_sqns = self.parity.answer_for_unused(nak, segment, peer, now_ns)
        if len(single_sqns) == len(nak.sqns):
            return self._on_nak(nak, segment, peer, now_ns)
        rest = self._on_nak(with_sqns(nak, single_sqns), segment, peer, now_ns) if single_sqns else NOTHING
        is_near = self.upstream.parents.is_parent(peer) or peer in self.upstream.siblings
        return [*self._ncf_sender.confirm(nak, segment, now_ns, peer if is_near else None), *rest]

    def _on_parity_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        asked = self.parity.asked(nak)
        if not asked or isinstance(self.parity, NoParity) or self._offer.is_off_tree_for(peer):
            self._counters.nak_packets_foreign += 1
            return NOTHING
        is_parent = self.upstream.parents.is_parent(peer)
        requested = sum(count for _, count in asked)
        newest = 0 if is_parent else max(group for group, _ in asked) + self.parity.size - 1
        if not self.nak_limits.admit_nak(peer, now_ns, requested, self.state.lead, newest=newest):
            return NOTHING
        self._counters.nak_packets_in += 1
        self._counters.parity_naks_in += 1
        self._counters.nak_sqns_in += requested
        self.state.asked_at_ns = now_ns
        asker = self.nak_limits.asker(peer, now_ns)
        self.parity.on_nak(asked, segment, asker, now_ns, is_relied_on=is_parent)
        self.intake.keep_bounds()
        return self._ncf_sender.confirm(nak, segment, now_ns, peer if is_parent else None)

    def _on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a NAK for single packets.

        A NAK of the own parent comes from an aggregator that asks this node first. The NAK is confirmed by unicast,
        because the parent has already confirmed it on the segment.
        """
        spans = self.state.spans_of(nak)
        newest = spans[-1][1]
        if peer in self.upstream.siblings:
            return self._on_sibling_nak(nak, spans, segment, peer, now_ns)
        # perhaps only some lists of the train are ahead
        is_ahead = newest > self.state.lead + 1 and not self.upstream.parents.is_parent(peer)
        if isinstance(nak, Naks) and (is_ahead or self.history.history_server.splits(peer, spans)):
            return [effect for single in nak.singles() for effect in self._on_nak(single, segment, peer, now_ns)]
        if self.upstream.parents.is_parent(peer):
            self.intake.reveal(newest, now_ns)
        if (sent := self.state.sent_part(nak, spans)) is not None:
            return self._on_nak(sent, segment, peer, now_ns)
        if not self.state.has_edges or newest > self.state.lead + 1:
            self._counters.nak_packets_foreign += nak.packets
            self.nak_limits.charge(peer, nak.packets, now_ns)
            return NOTHING
        is_parent = self.upstream.parents.is_parent(peer)
        is_history = self.history.history_server.is_history(nak, segment, peer, newest, now_ns)
        watched = 0 if is_parent or is_history else newest - 1  # a parent's NAKs are for a whole subnet
        if not self.nak_limits.admit_nak(peer, now_ns, nak.asked, self.state.lead, nak.packets, newest=watched):
            return NOTHING
        self._counters.nak_packets_in += nak.packets
        self._counters.nak_sqns_in += nak.asked
        self.state.asked_at_ns = now_ns
        if is_parent and self._offer.is_off_tree_for(peer):
            return self._serve_off_tree(nak, spans, segment, peer, now_ns)
        # Repairs for a child with excessive NAKs go to that child alone: the other nodes need not receive them, nor
        # wait for them.
        joiner = self.history.history_server.alone(segment) if is_history else None
        responder = self._outlets.responder(
            segment, peer if self.nak_limits.has_excess_naks(peer) else TO_ALL, is_history=False
        )
        if is_history:
            responder = self._outlets.responder(segment, joiner or TO_JOINERS, is_history=True)
        owed, asker, for_all = self._outlets.pending_sqns, self.nak_limits.asker(peer, now_ns), spans
        if responder is self._outlets.to_all(segment) and not is_parent and isinstance(self.parity, NoParity):
            for_all = self._outlets.take_alone(spans, nak.asked, segment, asker, now_ns)
        lacking = responder.request(for_all, now_ns, asker=asker)
        gone: list[Span] = []
        if is_history and lacking:
            lacking, gone = self.history.split(lacking, now_ns)
        null_naks: list[Effect] = []
        if self._outlets.pending_sqns > owed:
            null_naks = self._offer.null_naks(without(spans, lacking), self.upstream.parents.current)
        if lacking and (is_parent or is_history or self._may_fetch(lacking, nak.packets, peer, now_ns)):
            self.intake.fetch(lacking, segment, now_ns, is_relied_on=is_parent, joiner=joiner)
        to = peer if is_parent else joiner
        reply = self._children.on(segment).on_nak(spans, peer, now_ns)
        options = reply.options if for_all else (*reply.options, ForAsker())
        ncfs = self._ncf_sender.confirm(nak, segment, now_ns, to or reply.to, options)
        cannot_fetch = lacking and self.upstream.nak_control.is_parent_unreachable
        announcements = self.history.history_server.gone(gone, segment, now_ns)
        return [*ncfs, *null_naks, *announcements, *(self.relay.tell_unreachable(now_ns) if cannot_fetch else NOTHING)]

    def _may_fetch(self, lacking: list[Span], packets: int, peer: Nla, now_ns: int) -> bool:
        """Return whether packets are requested already, or within a child's part of what this node may ask for."""
        missing = self.upstream.recovery.missing
        new = sum([high - low for first, end in lacking for low, high in missing.uncovered(first, end)])
        is_ending = self.state.end.is_claimed
        return not new or self.nak_limits.admit_upward(peer, new, packets, now_ns, is_ending=is_ending)

    def _on_sibling_nak(self, nak: Nak, spans: list[Span], segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Repair what the cache holds for a sibling, and confirm that alone. Ask the parents for the rest."""
        upstream = self.upstream
        upstream.siblings.heard(peer)
        newest = spans[-1][1]
        if isinstance(nak, Naks):
            return [effect for single in nak.singles() for effect in self._on_nak(single, segment, peer, now_ns)]
        if (sent := self.state.sent_part(nak, spans)) is not None:
            return self._on_nak(sent, segment, peer, now_ns)
        if not self.state.has_edges or newest > self.state.lead + 1:
            self._counters.nak_packets_foreign += nak.packets
            return NOTHING
        if not self.nak_limits.admit_nak(peer, now_ns, nak.asked, self.state.lead, nak.packets, newest=newest - 1):
            return NOTHING
        self._counters.nak_packets_in += nak.packets
        self._counters.nak_sqns_in += nak.asked
        self.state.asked_at_ns = now_ns
        lacking = self._outlets.responder(segment, TO_ALL, is_history=False).request(spans, now_ns, asker=peer)
        self._counters.cache_misses += sum(end - first for first, end in lacking)
        upstream.recovery.leave_siblings(lacking, upstream.siblings.tries, now_ns)
        held = [sqn for first, end in without(spans, lacking) for sqn in range(first, end)]
        return self._ncf_sender.confirm(with_sqns(nak, held), segment, now_ns, peer) if held else NOTHING

    def _serve_off_tree(self, nak: Nak, spans: list[Span], segment: Segment, parent: Nla, now_ns: int) -> Effects:
        """Serve a parent's NAK off the tree, by unicast to the parent, null NAK first (DLR-11, DLR-12, DLR-14)."""
        responder = self._outlets.responder(segment, parent, is_history=False)
        owed = responder.pending_sqns
        lacking = responder.request(spans, now_ns, asker=parent)
        effects: list[Effect] = [*self._ncf_sender.confirm(nak, segment, now_ns, parent)]
        if responder.pending_sqns > owed:
            effects += self._offer.null_naks(without(spans, lacking), parent)
        self._counters.cache_misses += sum(end - first for first, end in lacking)
        return [*effects, *self._offer.turn_down(lacking, parent)]

    def on_question(self, held: HeldHistory, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take a late joiner's request for history."""
        if not self.state.has_edges or not self.nak_limits.admit_nak(peer, now_ns):
            return NOTHING
        self.state.asked_at_ns = now_ns
        # a parent that asks this node is not asked in turn, and a sibling asks the parents itself
        may_ask = not (self.upstream.parents.is_parent(peer) or peer in self.upstream.siblings)
        return self.history.on_question(held, segment, peer, now_ns, may_ask=may_ask)

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Take an answer about history from upstream, or the news that history is gone."""
        if not (held.nothing and held.by_sqn):
            return self.history.on_answer(held, peer, now_ns)
        if peer != self.upstream.nak_sender.keeper:
            return NOTHING
        first = self.state.unwrap(held.amount)
        spans = self.upstream.recovery.arrived(first, min(first + held.number, self.upstream.nak_sender.history_end))
        effects: list[Effect] = []
        for segment in self._setup.downs:
            effects += self.history.history_server.gone(spans, segment, now_ns)
        self.intake.forget(spans)
        return effects

    def on_null_nak(self, nak: Nak, peer: Nla, now_ns: int) -> Effects:
        """Forward a downstream repairer's null NAK once (DLR-07, DLR-39)."""
        spans = self.state.spans_of(nak)
        is_known = bool(self.parity.asked(nak)) if nak.parity else spans[-1][1] <= self.state.lead + 1
        if not self.state.has_edges or not is_known:
            self._counters.nak_packets_foreign += nak.packets
            return NOTHING
        self._counters.nnak_packets_in += nak.packets
        to = self.upstream.parents.current
        if (
            not to
            or to == peer
            or not self.nak_limits.admit_nak(peer, now_ns)
            or not (nak.parity or self._null_naks.admit(spans, now_ns))
        ):
            self._counters.nnak_packets_eliminated += nak.packets
            return NOTHING
        self._counters.nnak_packets += nak.packets
        return (forwarded(nak, self.state, self._setup.up, to),)

    # Time

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Run the parts that are due; `next_repair` returns the repairs."""
        return self._timers.handle_deadline(self, now_ns)

    def _believe_end(self, _now_ns: int) -> Effects:
        """Believe the end of the source, which nothing has contradicted."""
        end = self.state.end
        end.believe()
        self.upstream.spm_request.heard_spm()
        if end.reset is not None and end.reset.no_naks:
            self.intake.forget(self.upstream.recovery.give_up_before(self.state.lead + 1))
        return NOTHING

    def _ask(self, now_ns: int) -> list[Effect]:
        """Send NAKs for packets whose back-off is over, or give packets up."""
        naks, actions = self.upstream.nak_sender.ask(self._setup.up, now_ns)
        self.history.given_up(actions.given_up)
        self.intake.forget([*actions.given_up, *actions.crowded_out])
        return naks

    def on_polr(self, polr: Polr, segment: Segment, now_ns: int) -> Effects:
        """Take a child's answer to a poll."""
        effects, _ = self._children.on(segment).on_polr(polr, now_ns)
        return effects

    def on_spmr_heard(self, now_ns: int) -> None:
        """Note that a node of the upstream segment has requested an SPM."""
        self.upstream.spm_request.heard_request(now_ns)

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return a due train of repairs, parity or single packets, if the segment's own rate allows it."""
        return self.parity.next_repair(now_ns) or self._outlets.next_train(self.state.trail, now_ns)
