"""Core of the aggregator (RFC 7).

The aggregator merges many NAKs into one, and relays repairs only to the segments that requested them.

An aggregator has one of two layouts. A relay has different upstream and downstream segments, and relays the session.
On-LAN, there is one segment, data reaches all nodes directly, and the aggregator handles only NAKs. On-LAN, an NCF
counts as an answer only if its sender is the requested parent or the source.

A relay keeps what it passed down for `relay_cache_ivl`, and answers NAKs for it. NAKs for other packets go to the local
repairers of a segment first (static redirect, RFC 9.5.3), then to its parents.
"""

from __future__ import annotations

import random

from aggregator.relay_cache import RelayCaches
from aggregator.session import AggregatorSession
from pgm.core.effects import NOTHING, Effect, Effects, closed_up
from pgm.core.element.element import ElementCore
from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours
from pgm.core.segment import Channel
from pgm.parameters import Parameters
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import HeldHistory, StateOffer, find
from pgm.wire.train import Data, Train


class AggregatorCore(ElementCore[AggregatorSession]):
    """A NAK aggregator, relaying or on-LAN, for any number of sessions."""

    def __init__(self, setup: ElementSetup, parameters: Parameters, rng: random.Random | None = None) -> None:
        # The generator draws the times of polls and of their answers.
        super().__init__(setup, parameters, rng or random.Random(setup.up.address))
        self._caches = RelayCaches(setup, parameters)

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other neighbours and parameters in place."""
        super().change(neighbours, parameters, now_ns)
        self._caches.set_rate(parameters.txw_max_rte, now_ns)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read."""
        items = self._items_of(train, channel, peer, now_ns)
        effects: list[Effect] = [*self._filter.take_notice(), *self.control_codes.take_effects()]
        for item in items:
            known = self.sessions.get(item.tsi)
            if known is None:
                effects += self._open(item, channel, peer, now_ns)
                continue
            known.note_peer(item, peer)
            if isinstance(item, Ack):
                effects += known.acks.on_packet(item, channel, peer, now_ns)
            elif isinstance(item, Spmr) and item.options and (held := find(item.options, HeldHistory)) is not None:
                effects += self._on_held(held, known, channel, peer, now_ns)
            elif channel.segment.upstream and _is_downstream_traffic(item, channel):
                effects += self._of_session(item, known, channel, peer, now_ns)
            elif channel.segment.downstream:
                effects += self._from_downstream(item, known, channel, peer, now_ns)
            else:
                self.counters.foreign_packets += _packets_of(item)
        return closed_up(effects) if len(items) > 1 else effects

    def _on_held(
        self, held: HeldHistory, known: AggregatorSession, channel: Channel, peer: Nla, now_ns: int
    ) -> Effects:
        if held.answers and channel.segment.upstream:
            return known.on_answer(held, peer, now_ns)
        if not held.answers and channel.segment.downstream and not channel.is_group:
            return known.on_question(held, channel.segment, peer, now_ns)
        self.counters.foreign_packets += 1
        return NOTHING

    def _open(self, item: Data | Packet, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Start a session. Only an SPM or plain data from upstream does so."""
        starts = isinstance(item, Spm) or (isinstance(item, Data) and not item.parity)
        if not (starts and channel.segment.upstream):
            self.counters.foreign_packets += _packets_of(item)
            return NOTHING
        if not self.sessions.has_room(now_ns):
            return NOTHING
        context = self._context_of(item, now_ns)
        new = AggregatorSession(context, self._setup, self._caches.open_session(context))
        evicted = self.sessions.add(item.tsi, new, peer, now_ns)
        self.counters.sessions_opened += 1
        gone = self._gone(evicted, "evicted") if evicted else NOTHING
        return [*gone, *self._of_session(item, new, channel, peer, now_ns)]

    def _of_session(
        self, item: Data | Packet, known: AggregatorSession, channel: Channel, peer: Nla, now_ns: int
    ) -> Effects:
        if isinstance(item, Spm):
            return known.on_spm(item, peer, now_ns)
        if isinstance(item, Nak):
            return known.on_ncf(item, peer, True, now_ns)
        if isinstance(item, Poll):
            known.on_poll(item, peer, now_ns)
            return NOTHING
        if isinstance(item, Polr):
            known.on_offer(item, channel.segment, peer)
            return NOTHING
        assert isinstance(item, Data)
        if item.parity:
            known.state.heard_at_ns = now_ns
            return known.on_parity(item, channel, now_ns)
        is_new = item.type is PacketType.ODATA
        return known.on_odata(item, peer, now_ns) if is_new else known.on_rdata(item, peer, now_ns)

    def _from_downstream(
        self, item: Data | Packet, known: AggregatorSession, channel: Channel, peer: Nla, now_ns: int
    ) -> Effects:
        if isinstance(item, Nak) and item.kind is PacketType.NCF:
            return known.on_ncf(item, peer, False, now_ns)
        if isinstance(item, Nak) and not channel.is_group:
            return [*known.acks.on_nak(item), *known.on_nak(item, channel.segment, peer, now_ns)]
        if isinstance(item, Polr) and not channel.is_group:
            return known.on_polr(item, channel.segment, peer, now_ns)
        if isinstance(item, Spmr):
            self.counters.spmr_packets_in += 1
            wanted = find(item.options, StateOffer) if item.options else None
            if wanted is not None:
                return known.relay.pass_up(wanted, now_ns) if known.nak_limits.admit_nak(peer, now_ns) else NOTHING
            if known.relay.is_active and known.nak_limits.admit_spmr(now_ns):
                return known.relay.answer_spmr(channel.segment)
        elif isinstance(item, Spm) and peer in self._setup.partners:
            return known.relay.on_partner_spm(item, now_ns)
        elif isinstance(item, Data) and item.type is PacketType.RDATA:
            if item.parity:
                return known.on_parity(item, channel, now_ns)
            return known.on_rdata_below(item, channel.segment, peer, now_ns)
        else:
            self.counters.foreign_packets += _packets_of(item)
        return NOTHING

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send deferred NCFs, repeat NAKs, take over, and expire sessions. Return one train of repairs of one session."""
        effects: list[Effect] = []
        train: Effect | None = None
        for session in self.sessions.in_turn([session for session in self.sessions if session.deadline_ns <= now_ns]):
            effects += session.handle_deadline(now_ns)
            train = train or session.next_repair(now_ns)
        effects += self._expire(now_ns)
        return effects if train is None else [*effects, train]

    def _gone(self, session: AggregatorSession, how: str) -> Effects:
        self._caches.close_session(session.cache)
        return super()._gone(session, how)


def _packets_of(item: Data | Packet) -> int:
    return item.count if isinstance(item, Data) else item.packets


def _is_downstream_traffic(item: Data | Packet, channel: Channel) -> bool:
    """Return whether a packet on the upstream segment travels downstream.

    A packet that travels downstream is for the nodes below its sender. A POLR travels downstream if it offers a
    repairer to all nodes.
    """
    if isinstance(item, Polr):
        return channel.is_group or not channel.segment.downstream
    return isinstance(item, (Data, Spm, Poll)) or (isinstance(item, Nak) and item.kind is PacketType.NCF)
