"""Answers of a source to NAKs: limits, NCFs, and the repairs that are owed or sent at once (RFC 5.2, 5.3)."""

from __future__ import annotations

from pgm.core.effects import NOTHING, Effects
from pgm.core.parity.source import ParitySource
from pgm.core.polling.children import Children
from pgm.core.repair.lone_askers import LoneAskers, Responders
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.ncf_sender import NcfSender
from pgm.core.repair.responder import Responder
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.source.closing import StreamEnd
from pgm.core.source.history import SourceHistory
from pgm.core.source.send_state import SendState
from pgm.core.source.setup import SourceSetup
from pgm.core.structures.ranges import Span
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, PacketType
from pgm.wire.naks import Naks, up_to
from pgm.wire.options import ForAsker
from pgm.wire.parity import group_of
from pgm.wire.sequence_numbers import unwrap


class NakAnswerer:
    """Parts of a source that answer NAKs."""

    def __init__(
        self,
        context: SessionContext,
        setup: SourceSetup,
        sending: SendState,
        parity: ParitySource | None,
        closing: StreamEnd,
    ) -> None:
        parameters = context.parameters
        segment = setup.segment
        self.limits = NakLimits(context, setup.children)
        self.ncfs = NcfSender(context, self.limits)
        self.responder = Responder(context, sending.window, segment)
        self._lone_askers = LoneAskers(context, setup.children, segment)
        self.history = SourceHistory(context, segment, sending.window, sending.pacer, self.limits)
        self.children = Children(context, segment, lasts_ns=parameters.rdata_hold_ivl + parameters.rdata_ignore_ivl)
        self._parameters = parameters
        self._counters = context.counters
        self._sending = sending
        self._window = sending.window
        self._parity = parity
        self._closing = closing

    @property
    def deadline_ns(self) -> int:
        """Return when an NCF, a notice or a poll is due."""
        return min(self.ncfs.deadline_ns, self.limits.deadline_ns, self.children.deadline_ns)

    def on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int, wanted: list[list[Span]]) -> Effects:
        """Confirm a NAK within the limits, and add the spans to repair by single packets to `wanted`."""
        if nak.kind is PacketType.NNAK:
            self._counters.nnak_packets_in += nak.packets
            return NOTHING
        lead = self._window.lead
        if nak.parity:
            sqns = [unwrap(sqn, lead) for sqn in nak.sqns]
            asked = 0 if self._parity is None else sum(count for _, count in self._parity.counts_of(sqns))
            groups = [group_of(sqn, self._parameters.fec_group or 1) for sqn in sqns]
            first, last = min(groups), max(groups)
        else:
            base, asked = unwrap(nak.sqn, lead), nak.asked
            spans = nak.spans_from(base)
            first, last = spans[0][0], spans[-1][1] - 1
            if first <= lead < last:
                return self._on_partly_sent(nak, segment, peer, now_ns, wanted)
        is_ours = nak.source_nla == segment.address and nak.group_nla == segment.group
        is_served = self._closing.serves_naks and (not nak.parity or self._parity is not None)
        if nak.kind is not PacketType.NAK or not is_ours or last > lead or not is_served:
            self._counters.nak_packets_foreign += nak.packets
            self.limits.charge(peer, nak.packets, now_ns)
            return NOTHING
        if nak.parity:
            last = min(lead, last + self._parameters.fec_group - 1)  # no NAK comes before the group is complete
        is_history = not nak.parity and self.history.covers(nak, peer, last + 1, now_ns)
        watched = 0 if is_history else last
        if not self.limits.admit_nak(peer, now_ns, asked, lead, nak.packets, newest=watched):
            return NOTHING
        self._counters.nak_packets_in += nak.packets
        self._closing.on_nak(now_ns)
        if is_history:
            self._counters.nak_sqns_in += asked
            gone = self.history.request(spans, peer, now_ns)
            return [*self.ncfs.confirm(nak, segment, now_ns, self.history.joiner()), *gone]
        self._window.note_nak(first, now_ns)
        if nak.parity:
            return self._on_parity_nak(nak, segment, last, peer, now_ns)
        self._counters.nak_sqns_in += asked
        self._sending.adaptive_rate.asked(asked, last, peer)
        reply = self.children.on_nak(spans, peer, now_ns)
        options = reply.options
        if self._parity is not None:
            wanted.append(self._parity.instead_of(spans, now_ns))
        elif for_all := self._take_alone(spans, asked, peer, now_ns):
            wanted.append(for_all)
        else:
            options = (*options, ForAsker())
        return self.ncfs.confirm(nak, segment, now_ns, reply.to, options)

    def owes(self, first: int, end: int) -> bool:
        """Return whether a repair of any of `first` to `end - 1` is owed, to the segment or to a child alone."""
        return self.responder.owes(first, end) or self.history.owes_alone(first, end)

    def _take_alone(self, spans: list[Span], asked: int, peer: Nla, now_ns: int) -> list[Span]:
        """Owe what a child alone requests by unicast. Return the spans that are for the segment."""
        if not self._lone_askers.concerns(asked):
            return spans
        responders = Responders(self.responder, self.history.responder_of)
        return self._lone_askers.take(spans, self.limits.asker(peer, now_ns), responders, now_ns)

    def _on_partly_sent(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int, wanted: list[list[Span]]) -> Effects:
        """Answer the part of a NAK that was sent. A child may have believed a false NCF, and its other losses are real."""
        lead = self._window.lead
        singles = nak.singles() if isinstance(nak, Naks) else (up_to(nak, lead + 1, unwrap(nak.sqn, lead)),)
        return [
            effect
            for single in singles
            if single is not None
            for effect in self.on_nak(single, segment, peer, now_ns, wanted)
        ]

    def _on_parity_nak(self, nak: Nak, segment: Segment, newest: int, peer: Nla, now_ns: int) -> Effects:
        """Take a NAK for numbers of packets of groups (FEC-15). Do not confirm a request that no parity can answer."""
        assert self._parity is not None
        asked, is_served = self._parity.on_nak(
            [unwrap(sqn, self._window.lead) for sqn in nak.sqns], self.limits.asker(peer, now_ns), now_ns
        )
        self._sending.adaptive_rate.asked(asked, newest, peer)
        return self.ncfs.confirm(nak, segment, now_ns) if is_served else NOTHING

    def answer(self, wanted: list[list[Span]], peer: Nla, now_ns: int, *, may_repair: bool) -> Effects:
        """Return the repairs that are sent along with NCFs. Owe the others."""
        pacer, room = self._sending.pacer, (0, 0)
        if may_repair and now_ns < self.limits.deadline_ns:
            room = pacer.repair_room(now_ns), pacer.packet_room(now_ns)
        repair = self.responder.answer(wanted, room, self._window.trail, now_ns, self.limits.asker(peer, now_ns))
        if repair is None:
            return NOTHING
        self._sending.repaired_lead = self._window.lead
        self._sending.repair_sent(len(repair.octets), len(repair.octets) // repair.stride, now_ns)
        self._sending.train_sent(now_ns)
        return (repair,)
