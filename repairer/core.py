"""Core of the repairer. The sessions share a cache, and share a rate on every segment."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable

from pgm.core.effects import NOTHING, CloseCause, Effect, Effects, Save, closed_up
from pgm.core.element.element import ElementCore
from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.cache import RepairCache
from pgm.core.segment import Channel
from pgm.parameters import Parameters
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import HeldHistory, StateOffer, find
from pgm.wire.train import Data, Train
from repairer.archive_feed import ArchiveFeeds, NoFeeds
from repairer.session import RepairerSession
from repairer.warm_restart import ColdRestart, WarmRestart


class RepairerCore(ElementCore[RepairerSession]):
    """A designated local repairer, relaying or on-LAN, for any number of sessions.

    With `records`, the core also returns `Deliver`, `Lost` and `Closed` effects in order, for an archive of the cached
    packets. With `saves`, the core also returns `Save` effects, from which a later process restores its cache.
    """

    def __init__(
        self,
        setup: ElementSetup,
        parameters: Parameters,
        rng: random.Random,
        *,
        records: bool = False,
        saves: bool = False,
    ) -> None:
        super().__init__(setup, parameters, rng)
        self._feeds = ArchiveFeeds() if records else NoFeeds()
        self.cache = RepairCache(parameters.cache_bytes, parameters.cache_secs)
        self._warm_restart = WarmRestart(self.cache, parameters.max_sessions, self.counters) if saves else ColdRestart()
        self._pacers = tuple(Pacer(parameters) for _ in setup.downs)

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other neighbours and parameters in place. The cache only grows."""
        super().change(neighbours, parameters, now_ns)
        self.cache.grow(parameters.cache_bytes, parameters.cache_secs)
        for pacer in self._pacers:
            pacer.set_rate(parameters.txw_max_rte, now_ns)

    def restore(self, saved: Iterable[tuple[int, Save]]) -> None:
        """Take what an earlier process saved, with times in ns, before the first packet. It serves matching sessions."""
        self._warm_restart.restore(saved)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read."""
        items = self._items_of(train, channel, peer, now_ns)
        effects: list[Effect] = [*self._filter.take_notice(), *self.control_codes.take_effects()]
        for item in items:
            if isinstance(item, Data):
                effects += self._on_data(item, channel, peer, now_ns)
            elif isinstance(item, Spm):
                effects += self._on_spm(item, channel, peer, now_ns)
            else:
                effects += self._on_request(item, channel, peer, now_ns)
        tsis = {item.tsi for item in items}
        saves = self._warm_restart.advance(self.sessions, tsis, now_ns)
        sends = closed_up(effects) if len(items) > 1 else effects
        return [*sends, *self._feeds.advance(self.sessions, tsis, now_ns), *saves]

    def _on_data(self, data: Data, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        is_repair_below = channel.segment.downstream and data.type is PacketType.RDATA
        if not (channel.segment.upstream or is_repair_below):
            self.counters.foreign_packets += data.count
            return NOTHING
        if data.parity:
            known = self.sessions.get(data.tsi)
            if known is not None:
                return known.on_parity(data, channel, peer, now_ns)
            self.counters.foreign_packets += data.count
            return NOTHING
        session, effects = self._session(data, peer, now_ns)
        if session is None:
            return effects
        take = functools.partial(session.on_data, data, channel, peer, now_ns)
        return [*effects, *session.upstream.lines.on_data(data, channel, take, now_ns)]

    def _on_spm(self, spm: Spm, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        if channel.segment.upstream:
            session, effects = self._session(spm, peer, now_ns)
            if session is None:
                return effects
            effects = [*effects, *session.on_spm(spm, peer, now_ns)]
            session.upstream.lines.on_spm(spm, channel, now_ns)
            return effects
        known = self.sessions.get(spm.tsi)
        if known is not None and peer in self._setup.partners:
            return known.relay.on_partner_spm(spm, now_ns)
        self.counters.foreign_packets += 1
        return NOTHING

    def _on_request(self, item: Packet, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        known = self.sessions.get(item.tsi)
        if known is None:
            self.counters.foreign_packets += item.packets
        elif isinstance(item, Nak) and item.kind is PacketType.NCF:
            return known.on_ncf(item, channel, peer, now_ns)
        elif isinstance(item, Nak) and item.kind is PacketType.NNAK:
            return known.on_null_nak(item, peer, now_ns)
        elif isinstance(item, Nak) and channel.segment.downstream and not channel.is_group:
            return [*known.upstream.acks.on_nak(item), *known.on_nak(item, channel.segment, peer, now_ns)]
        elif isinstance(item, Ack):
            return known.upstream.acks.on_packet(item, channel, peer, now_ns)
        elif isinstance(item, Spmr):
            held = find(item.options, HeldHistory) if item.options else None
            if held is None:
                return self._on_spmr(known, item, channel, peer, now_ns)
            if channel.segment.downstream and not channel.is_group and not held.answers:
                return known.on_question(held, channel.segment, peer, now_ns)
            if channel.segment.upstream and held.answers:
                return known.on_answer(held, peer, now_ns)
        elif isinstance(item, Poll) and channel.segment.upstream:
            known.upstream.nak_control.on_poll(item, peer, now_ns)
        elif isinstance(item, Polr) and channel.segment.downstream and not channel.is_group:
            return known.on_polr(item, channel.segment, now_ns)
        else:
            self.counters.foreign_packets += item.packets
        return NOTHING

    def _on_spmr(self, known: RepairerSession, spmr: Spmr, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        if channel.segment.upstream:
            known.on_spmr_heard(now_ns)
        if not channel.segment.downstream:
            return NOTHING
        self.counters.spmr_packets_in += 1
        wanted = find(spmr.options, StateOffer) if spmr.options else None
        if wanted is not None:
            return known.relay.pass_up(wanted, now_ns) if known.nak_limits.admit_nak(peer, now_ns) else NOTHING
        if known.relay.is_active and known.nak_limits.admit_spmr(now_ns):
            return known.relay.answer_spmr(channel.segment)
        return NOTHING

    def _session(self, item: Data | Spm, peer: Nla, now_ns: int) -> tuple[RepairerSession | None, Effects]:
        session = self.sessions.get(item.tsi)
        if session is not None or not self.sessions.has_room(now_ns):
            return session, NOTHING
        session = RepairerSession(self._context_of(item, now_ns), self._setup, self.cache.open_session(), self._pacers)
        session.state.heard_at_ns = now_ns
        self.counters.sessions_opened += 1
        evicted = self.sessions.add(item.tsi, session, peer, now_ns)
        return session, self._gone(evicted, "evicted") if evicted is not None else NOTHING

    def _gone(self, session: RepairerSession, how: str) -> Effects:
        ending = self._feeds.end(session.state.tsi, CloseCause(how))
        self.cache.close_session(session.intake.cache)
        return [*ending, *super()._gone(session, how)]

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return NCFs and NAKs of every session, and one train of repairs of one session."""
        effects: list[Effect] = []
        saves: list[Effect] = []
        train: Effect | None = None
        due = sorted(
            (session for session in self.sessions if session.deadline_ns <= now_ns),
            key=lambda session: session.deadline_ns,
        )
        for session in self.sessions.in_turn(due):
            effects += session.handle_deadline(now_ns)
            train = train or session.next_repair(now_ns)
            effects += self._feeds.advance(self.sessions, (session.state.tsi,), now_ns)
            saves += self._warm_restart.advance(self.sessions, (session.state.tsi,), now_ns)
        effects += self._expire(now_ns)
        return [*effects, *saves] if train is None else [*effects, train, *saves]
