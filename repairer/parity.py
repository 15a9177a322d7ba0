"""Parity at a repairer (RFC 11.7).

A repairer recovers by parity like a receiver, and makes parity from its cache for downstream nodes. The repairer
numbers its own parity packets from the upper part of the index range, which a source uses last. A receiver that holds
parity of both therefore holds different packets.
"""

from __future__ import annotations

from collections import OrderedDict

from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.parity.recovery import ParityRecovery, offer_of
from pgm.core.parity.responder import ParityFormat, ParityResponder, whole_group
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.fec import code
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import ParityPrm
from pgm.wire.parity import counts_of, group_of, read_parity
from pgm.wire.train import Data, Run
from repairer.intake import PacketIntake

_SOURCE_SHARE = 4  # The source starts with the first indexes; a repairer leaves it one of this many parts of them.


class NoParity:
    """Parity of a session whose source has announced none so far."""

    deadline_ns = NEVER

    def __init__(self, context: SessionContext, setup: ElementSetup, intake: PacketIntake) -> None:
        self._context = context
        self._setup = setup
        self._intake = intake

    def on_spm(self, spm: Spm, now_ns: int) -> NoParity | RepairerParity:
        """Return the parity of the session, which begins if this SPM offers it."""
        offer = offer_of(spm, self._intake.state)
        if offer is None:
            return self
        return RepairerParity(self._context, self._setup, self._intake, offer).on_spm(spm, now_ns)

    def on_parity(self, data: Data, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Count parity that no group is known for."""
        self._context.counters.parity_packets_in += data.count
        self._context.counters.parity_packets_unused += data.count
        return NOTHING

    def asked(self, nak: Nak) -> list[tuple[int, int]]:
        """Return no groups: none is known."""
        return []

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return None: no parity is owed."""
        return None


class RepairerParity:
    """The parity of one session."""

    def __init__(self, context: SessionContext, setup: ElementSetup, intake: PacketIntake, offer: ParityPrm) -> None:
        self.size = offer.tgsize
        self._setup = setup
        self._intake = intake
        self._state = state = intake.state
        self._cache = intake.cache
        self._recovery = intake.recovery
        self._parameters = context.parameters
        self._counters = context.counters
        gap_detector = intake.gap_detector
        self._receiver = ParityRecovery(
            context, offer, state, gap_detector, store=intake.cache, kept=None, regain=gap_detector.regain
        )
        intake.upstream.nak_sender.use_parity(self._receiver)
        limit = code.parity_limit(offer.tgsize)
        start = context.rng.randrange(limit // _SOURCE_SHARE, limit)
        form = ParityFormat(state.tsi, state.data_port, offer.tgsize, start, limit)
        self._responders = {  # by downstream segment
            down.index: ParityResponder(context, intake.cache, down, form) for down in setup.downs
        }
        # group -> packets by segment, until the group is complete
        self._wanted: OrderedDict[int, dict[int, int]] = OrderedDict()

    def on_spm(self, spm: Spm, now_ns: int) -> RepairerParity:
        """Learn where groups end. As SPMs are rare, also drop requests whose packets will not come any more."""
        self._receiver.on_spm(spm, now_ns)
        for group in list(self._wanted):
            self._serve_if_whole(group, now_ns)
            if not self._is_coming(group):
                self._wanted.pop(group, None)
        self._answer_skipped(now_ns)
        return self

    # Receiving

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note that `first` to `end - 1` were sent, before these packets are taken."""
        self._receiver.sent(first, end, now_ns)

    def on_data(self, data: Data, first: int, peer: Nla, now_ns: int) -> Effects:
        """Take data, which may complete a group."""
        return self._take_rebuilt(self._receiver.on_data(data, first, now_ns), data, first, peer, now_ns)

    def on_parity(self, data: Data, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take parity of another node. The parity may already repair sqns that this node owes on the segment."""
        first, _ = self._state.place(data.wire_sqn, data.wire_trail)
        if not self._intake.gap_detector.has_begun or self._state.is_jump(first + data.count - 1):
            self._counters.parity_packets_in += data.count
            self._counters.parity_packets_unused += data.count
            return NOTHING
        self._state.heard_at_ns = now_ns
        parents = self._intake.upstream.parents
        (parents.answered if data.type is PacketType.RDATA else parents.heard)(peer)
        if segment.index in self._responders:
            for packet in read_parity(data, first, self.size):
                self._responders[segment.index].heard(packet.group, packet.index, now_ns)
        return self._take_rebuilt(self._receiver.on_parity(data, first, now_ns), data, first, peer, now_ns)

    def _take_rebuilt(self, runs: list[Run], data: Data, first: int, peer: Nla, now_ns: int) -> Effects:
        """Take the packets that `data` has rebuilt, and owe parity of requested groups that are now complete."""
        self._answer_skipped(now_ns)
        sends = self._intake.take_rebuilt(runs, peer, now_ns)
        if self._wanted:
            for group in range(group_of(first, self.size), first + data.count, self.size):
                self._serve_if_whole(group, now_ns)
        self._intake.keep_bounds()
        return sends

    def _answer_skipped(self, now_ns: int) -> None:
        """Owe one parity packet of each short group to the segments that requested its unused sqns.

        The parity carries the group's size. Without an answer these segments would request the sqns again for ever.
        """
        for first, end in self._receiver.take_skipped():
            group = group_of(first, self.size)
            for segment in self._intake.no_longer_wanted(first, end):
                if not self._owe(group, 1, segment.index, now_ns, 0) and self._is_coming(group):
                    self._want(group, segment.index, 1)

    def _serve_if_whole(self, group: int, now_ns: int) -> None:
        if group in self._wanted and self._is_whole(group):
            for index, count in self._wanted.pop(group).items():
                self._owe(group, count, index, now_ns, 0)

    def _is_whole(self, group: int) -> bool:
        actual = self._receiver.ended_size(group)
        return actual is not None and bool(whole_group(self._cache, group, actual))

    def _owe(
        self, group: int, count: int, segment: int, now_ns: int, hold_ns: int | None, asker: Nla | None = None
    ) -> bool:
        actual = self._receiver.ended_size(group)
        return actual is not None and self._responders[segment].request(group, count, actual, now_ns, hold_ns, asker)

    # Serving

    def asked(self, nak: Nak) -> list[tuple[int, int]]:
        """Return groups and counts of a parity NAK; none if some group was never sent."""
        asked = counts_of([self._state.unwrap(sqn) for sqn in nak.sqns], self.size)
        return asked if self._state.has_edges and all(group <= self._state.lead for group, _ in asked) else []

    def spans_of(self, asked: list[tuple[int, int]]) -> list[Span]:
        """Return the sqns of requested groups."""
        return [(group, group + self.size) for group, _ in asked]

    def answered(self, ncf: Nak) -> list[Span]:
        """Return the groups of a parity NCF that cover the losses here."""
        return self._receiver.answered(ncf)

    def answer_for_unused(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> list[int]:
        """Answer sqns that short groups left out with parity.

        The parity carries the group's size. Packets of the group that the cache lacks are requested first. Return the
        other sqns of the NAK.
        """
        rest, shorts = [], set()
        for sqn in [self._state.unwrap(sqn) for sqn in nak.sqns]:
            group = self._receiver.short_group(sqn) if self._state.has_edges else None
            if group is None:
                rest.append(sqn)
            else:
                shorts.add(group)
        is_relied_on = self._intake.upstream.parents.is_parent(peer)
        self.on_nak([(group, 1) for group in sorted(shorts)], segment, peer, now_ns, is_relied_on=is_relied_on)
        return rest

    def on_nak(
        self, asked: list[tuple[int, int]], segment: Segment, peer: Nla, now_ns: int, *, is_relied_on: bool
    ) -> None:
        """Owe parity of cached groups, and recover groups that the cache lacks."""
        for group, count in asked:
            if self._owe(group, count, segment.index, now_ns, None, peer):
                continue
            self._fetch(group, now_ns, is_relied_on=is_relied_on)
            if not self._is_coming(group):
                continue
            more = count - self._wanted.get(group, {}).get(segment.index, 0)
            if more > 0:
                self._want(group, segment.index, self._responders[segment.index].granted(peer, group, more, now_ns))

    def _want(self, group: int, segment: int, more: int) -> None:
        """Owe more packets of a group to a segment once the group is complete."""
        wanted = self._wanted.setdefault(group, {})
        wanted[segment] = wanted.get(segment, 0) + more
        if len(self._wanted) > self._parameters.repair_states:
            self._wanted.popitem(last=False)
            self._counters.states_refused += 1

    def _is_coming(self, group: int) -> bool:
        """Return whether the rest of a group is requested, or is still to be sent."""
        actual = self._receiver.ended_size(group)
        return actual is None or self._recovery.missing.overlaps(group, group + actual)

    def _fetch(self, group: int, now_ns: int, *, is_relied_on: bool) -> None:
        """Request the packets that this node lacks of a group, if the group has ended."""
        actual = self._receiver.ended_size(group)
        if actual is None:
            return
        first = group if self._setup.asks_below_trail else max(group, self._state.trail)
        for low, high in self._lacking(first, group + actual):
            self._counters.cache_misses += high - low
            self._recovery.expedite(low, high, now_ns, is_relied_on=is_relied_on)
            self._recovery.detect(low, high, now_ns, at_once=True)

    def _lacking(self, first: int, end: int) -> list[Span]:
        gaps, at = [], first
        for part in self._cache.parts(first, end):
            if part.first > at:
                gaps.append((at, part.first))
            at = part.end
        return [*gaps, (at, end)] if at < end else gaps

    def assist(self, asked: list[tuple[int, int]], segment: Segment, hold_ns: int, now_ns: int) -> None:
        """Repair losses that an NCF reveals, for receivers that know no repairer."""
        for group, count in asked:
            self._owe(group, count, segment.index, now_ns, hold_ns)

    # Time

    @property
    def deadline_ns(self) -> int:
        """When the next parity may be sent; NEVER when none is owed."""
        return min((self._ready_ns(index) for index in self._responders), default=NEVER)

    def _ready_ns(self, segment: int) -> int:
        responder = self._responders[segment]
        due_ns = responder.deadline_ns
        return (
            due_ns
            if due_ns == NEVER
            else max(due_ns, self._intake.outlets.pacers[segment].repair_ready_at(responder.next_octets()))
        )

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return one train of parity if one is due and the rate allows it."""
        for index, responder in self._responders.items():
            if self._ready_ns(index) > now_ns:
                continue
            pacer = self._intake.outlets.pacers[index]
            room, packets = pacer.repair_room(now_ns), pacer.packet_room(now_ns)
            send = responder.next_train(room, self._state.trail, now_ns, packets)
            if send is not None:
                pacer.repair_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
                return send
        return None
