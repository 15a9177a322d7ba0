"""Session at a repairer that repairs single packets, and also repairs by parity."""

from __future__ import annotations

from collections.abc import Sequence

from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.recovery.nak_packets import forwarded, with_sqns
from pgm.core.segment import Channel, Segment
from pgm.core.session_context import SessionContext
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.naks import Naks
from pgm.wire.train import Data, Run
from repairer.cache import SessionCache
from repairer.parity import RepairerParity
from repairer.session import RepairerSession


class ParitySession(RepairerSession):
    """The repairer's side of one TSI, including parity."""

    def __init__(
        self, context: SessionContext, setup: ElementSetup, cache: SessionCache, pacers: Sequence[Pacer]
    ) -> None:
        super().__init__(context, setup, cache, pacers)
        self.parity = RepairerParity(
            context, self.state, setup, cache, self.upstream.gap_detector, self._outlets.pacers
        )

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(super().deadline_ns, self.parity.deadline_ns)

    # Receiving

    def on_spm(self, spm: Spm, peer: Nla, now_ns: int) -> Effects:
        """Take an SPM from upstream, which may announce parity."""
        effects = super().on_spm(spm, peer, now_ns)
        if spm.options and self.state.spm is spm:
            new = self.parity.on_spm(spm, now_ns)
            if new is not None:
                self.upstream.nak_sender.parity, self._offer.has_parity = new, True
            self._forget_skipped()
            self._keep_bounds()
        return effects

    def on_data(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take data of any kind, which may complete a group."""
        receiver = self.parity.receiver
        if receiver is None or not self.upstream.gap_detector.has_begun:
            return super().on_data(data, channel, peer, now_ns)
        first = self.state.unwrap(data.wire_sqn)
        receiver.sent(first, first + data.count, now_ns)
        effects = super().on_data(data, channel, peer, now_ns)
        rebuilt = self._take_rebuilt(receiver.on_data(data, first, now_ns), first, first + data.count, peer, now_ns)
        self._keep_bounds()
        return [*effects, *rebuilt]

    def on_parity(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take parity of the source, an upstream element, or another repairer."""
        effects: list[Effect] = []
        is_new = self.upstream.lines is None or self.upstream.lines.is_new_parity(data)
        if data.type is PacketType.ODATA and channel.segment.upstream and is_new:
            effects += self.relay.on_data(data)
        first, _ = self.state.place(data.wire_sqn, data.wire_trail)
        is_placed = self.parity.receiver is not None and self.upstream.gap_detector.has_begun
        if not is_placed or self.state.is_jump(first + data.count - 1):
            self._counters.parity_packets_in += data.count
            self._counters.parity_packets_unused += data.count
            return effects
        self.state.heard_at_ns = now_ns
        (self.upstream.parents.answered if data.type is PacketType.RDATA else self.upstream.parents.heard)(peer)
        rebuilt = self.parity.on_parity(data, first, channel.segment, now_ns)
        effects += self._take_rebuilt(rebuilt, first, first + data.count, peer, now_ns)
        self._keep_bounds()
        return effects

    def _forget_skipped(self) -> None:
        if self.parity.receiver is not None:
            self._forget_given_up(self.parity.receiver.take_skipped())

    def _take_rebuilt(self, runs: list[Run], first: int, end: int, peer: Nla, now_ns: int) -> list[Effect]:
        """Take rebuilt packets like a repair by `peer`: cache, relay and send them.

        `first` to `end - 1` are the sqns that came. The rebuilt packets are of the groups of these sqns.
        """
        self._forget_skipped()
        sends: list[Effect] = []
        for run in runs:
            parts, filled = self.upstream.gap_detector.accept(run, now_ns)
            self._counters.repaired_sqns += filled
            if filled:
                self._counters.watch.filled(PacketType.RDATA, peer)
            for part in parts:
                self.cache.add(part, now_ns)
                if self.relay.is_active and part.first >= self.upstream.gap_detector.first:
                    sends += self.relay.pass_down(part.rows.reshape(-1), part.stride, self._setup.downs)
            self._serve_wanted(parts, now_ns)
        self.parity.serve_whole(first, end, now_ns)
        return sends

    def _on_parity_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        asked = self.parity.asked(ncf)
        if self.parity.receiver is None or asked is None:
            return NOTHING
        spans = [(group, group + self.parity.receiver.size) for group, _ in asked]
        effects = self._offer.on_ncf(spans, self.upstream.recovery, now_ns) if channel.is_group else NOTHING
        self.upstream.recovery.confirmed(self.parity.receiver.answered(ncf), now_ns, peer)
        if not (self._parameters.assist_on_ncf and channel.segment.downstream and channel.is_group):
            return effects
        hold = self._setup.assist_rank * self._parameters.rdata_hold_ivl
        self.parity.assist(asked, channel.segment, hold, now_ns)
        repair = self.parity.next_repair(now_ns) if not hold else None
        return effects if repair is None else [*effects, repair]

    # Serving

    def on_nak(self, nak: Nak, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Confirm a NAK, repair cached packets, and request missing packets upstream."""
        if self.parity.receiver is None and not nak.parity:
            return super().on_nak(nak, segment, peer, now_ns)
        if isinstance(nak, Naks):
            return [effect for single in nak.singles() for effect in self.on_nak(single, segment, peer, now_ns)]
        if not nak.parity:
            single_sqns = self.parity.answer_for_unused(nak, segment, now_ns)
            if len(single_sqns) == len(nak.sqns):
                return super().on_nak(nak, segment, peer, now_ns)
            rest = super().on_nak(with_sqns(nak, single_sqns), segment, peer, now_ns) if single_sqns else NOTHING
            return [
                *self._ncf_sender.confirm(
                    nak, segment, now_ns, peer if self.upstream.parents.is_parent(peer) else None
                ),
                *rest,
            ]
        asked = self.parity.asked(nak)
        if asked is None or self._offer.is_off_tree_for(peer):
            self._counters.nak_packets_foreign += 1
            return NOTHING
        is_parent = self.upstream.parents.is_parent(peer)
        requested = sum(count for _, count in asked)
        if not self.nak_limits.admit_nak(peer, now_ns, requested, self.state.lead, is_watched=not is_parent):
            return NOTHING
        self._counters.nak_packets_in += 1
        self._counters.parity_naks_in += 1
        self._counters.nak_sqns_in += requested
        self.state.asked_at_ns = now_ns
        self.parity.on_nak(asked, segment, peer, now_ns, is_relied_on=is_parent)
        self._keep_bounds()
        return self._ncf_sender.confirm(nak, segment, now_ns, peer if is_parent else None)

    def on_null_nak(self, nak: Nak, peer: Nla, now_ns: int) -> Effects:
        """Forward a null NAK of a downstream repairer to the source."""
        if not nak.parity:
            return super().on_null_nak(nak, peer, now_ns)
        if self.parity.asked(nak) is None:
            self._counters.nak_packets_foreign += 1
            return NOTHING
        self._counters.nnak_packets_in += 1
        to = self.upstream.parents.current
        if to in (None, peer) or not self.nak_limits.admit_nak(peer, now_ns):
            self._counters.nnak_packets_eliminated += 1
            return NOTHING
        self._counters.nnak_packets += 1
        return (forwarded(nak, self.state, self._setup.up, to),)

    def next_repair(self, now_ns: int) -> Effect | None:
        """Return one train of repairs: parity, or single packets."""
        if self.parity.deadline_ns <= now_ns:
            parity = self.parity.next_repair(now_ns)
            if parity is not None:
                return parity
        return super().next_repair(now_ns)
