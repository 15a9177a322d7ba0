"""Core of a receiver: dispatches packets to sessions by TSI."""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable, Sequence

from pgm.core.control_codes import ControlCodes
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, CloseCause, Closed, Effect, Effects
from pgm.core.in_place import Neighbours, replace_parameters, replace_values
from pgm.core.node_id import NodeId
from pgm.core.receiver.session import ReceiverSession
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.receiver.single_packet import SingleReceiveLane
from pgm.core.receiver.source_restarts import restart_of_new_session, restart_of_silent_session
from pgm.core.segment import Channel
from pgm.core.session.signed_streams import SignedStreams
from pgm.core.session.source_filter import SourceFilter
from pgm.core.session.state import SessionState
from pgm.core.session.table import SessionTable
from pgm.core.session_context import SessionContext
from pgm.core.status import SessionEdges, SessionStatus
from pgm.core.window.receive_window import DeliveryBudget
from pgm.parameters import Parameters
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.options import HeldHistory, find
from pgm.wire.train import Data, DataWithGaps, Train

# Values of the setup that a running receiver takes.
_IN_PLACE = ("parents", "local_repairers", "local_relays", "keepers", "asks_below_trail", "allowed", "names")
_DEADLINE_NS = operator.attrgetter("deadline_ns")


class ReceiverCore:
    """A receiver of any number of sources. One segment, or several redundant segments, bring the streams."""

    def __init__(
        self, setup: ReceiverSetup, parameters: Parameters, rng: random.Random, counters: Counters | None = None
    ) -> None:
        self._counters = counters or Counters()
        self.setup = setup
        self._parameters = parameters
        self._rng = rng
        self._room = DeliveryBudget(parameters.inbox_bytes)
        self._node_id = NodeId(rng)
        self._sessions: SessionTable[ReceiverSession] = SessionTable(parameters, self._counters)
        self._signed = SignedStreams(setup.signers, parameters, self._counters)
        self.control_codes = ControlCodes(setup.signers.control, self._counters)
        self._filter = SourceFilter(setup.allowed, self._counters)
        self.single = SingleReceiveLane(self._sessions, self._filter, is_open=not setup.lines)

    @property
    def counters(self) -> Counters:
        """Counters of this core, up to date."""
        self.single.commit()
        return self._counters

    @property
    def sessions(self) -> SessionTable[ReceiverSession]:
        """Sessions by TSI. A packet of the single-packet lane shows after its `commit`."""
        return self._sessions

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a session; None if it is unknown."""
        return self._sessions.state_of(tsi)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do.

        A packet of the single-packet lane without its `commit` can only move the deadline back, so a driver may wake early.
        """
        return self._sessions.earliest_ns(_DEADLINE_NS)

    @property
    def parameters(self) -> Parameters:
        """Timers and limits of this receiver."""
        return self._parameters

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other neighbours and parameters in place. The caller has checked that the parameters may change."""
        self.single.reset()
        replace_parameters(self._parameters, parameters)
        replace_values(self.setup, neighbours, _IN_PLACE)
        self._filter.change(neighbours.allowed)
        for session in self._sessions:
            session.change(self.setup)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read."""
        items, rejects = train.parse_scattered_untrusted()
        if rejects:
            self._counters.rejects.update(rejects)
        return self.take(items, channel, peer, now_ns)

    def take(self, items: Sequence[Data | DataWithGaps | Packet], channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take packets of one read."""
        self.single.reset()
        if len(items) == 1:
            return self._receive_one(items[0], channel, peer, now_ns)
        effects: list[Effect] = []
        for item in items:
            effects += self._receive_one(item, channel, peer, now_ns)
        return effects

    def _receive_one(self, item: Data | DataWithGaps | Packet, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        ports = self.setup.data_ports
        if ports and item.data_port not in ports:
            self._counters.foreign_packets += item.count if isinstance(item, (Data, DataWithGaps)) else item.packets
            return NOTHING
        if self._filter.is_active and self._filter.refuses(item, peer):
            return self._filter.take_notice()
        if self._signed.has_any and self._signed.refuses(item, self._state_of(item.tsi), peer, now_ns):
            return NOTHING
        if self.control_codes.has_any and isinstance(item, Packet):
            checked = self.control_codes.checked(item, channel.segment, peer, now_ns)
            if checked is None:
                return self.control_codes.take_effects()
            item = checked
        if isinstance(item, Data):
            if item.parity:
                return self._receive_parity(item, peer, now_ns)
            known = self._sessions.get(item.tsi)
            if known is not None and not self.setup.lines:
                return known.on_data(item, peer, now_ns)
            session, effects = self._session(item, peer, now_ns)
            if session is None:
                return effects
            take = functools.partial(session.on_data, item, peer, now_ns)
            return [*effects, *session.lines.on_data(item, channel, take, now_ns)]
        if isinstance(item, DataWithGaps):
            known = self._sessions.get(item.tsi)
            if known is not None and not self.setup.lines and not item.data.parity:
                return known.on_data(item, peer, now_ns)
            return [effect for piece in item.pieces() for effect in self._receive_one(piece, channel, peer, now_ns)]
        if isinstance(item, Spm):
            session, effects = self._session(item, peer, now_ns)
            if session is None:
                return effects
            effects = [*effects, *session.on_spm(item, peer, now_ns)]
            session.lines.on_spm(item, channel, now_ns)
            return effects
        return self._receive_request(item, channel, peer, now_ns)

    def _receive_parity(self, item: Data, peer: Nla, now_ns: int) -> Effects:
        """Take parity. Parity opens no session, and is useless before an SPM offers it (FEC-23)."""
        session = self._sessions.get(item.tsi)
        if session is not None and item.data_port == session.state.data_port:
            return session.data_path.take_parity(item, peer, now_ns)
        self._counters.foreign_packets += item.count
        return NOTHING

    def _receive_request(self, item: Packet, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests of other receivers and their answers; these open no session."""
        known = self._sessions.get(item.tsi)
        if known is None or item.data_port != known.state.data_port:
            self._counters.foreign_packets += item.packets
        elif isinstance(item, Nak) and item.kind is PacketType.NCF:
            return known.naks.on_ncf(item, channel, peer, now_ns)
        elif isinstance(item, Nak) and item.kind is PacketType.NAK:
            known.naks.on_nak_heard(item, now_ns)
        elif isinstance(item, Polr):
            known.naks.on_offer(item, peer)
        elif isinstance(item, Poll) and (not self.setup.lines or channel.segment == self.setup.segment):
            known.naks.nak_control.on_poll(item, peer, now_ns)
        elif isinstance(item, Ack):
            return known.feedback.on_packet(item, peer, now_ns)
        elif isinstance(item, Spmr) and item.options and (held := find(item.options, HeldHistory)) is not None:
            return known.start.on_held(held, peer, now_ns)
        elif isinstance(item, Spmr) and (channel.is_group or channel.segment.peers is not None):
            known.start.on_spmr_heard(now_ns)
        return NOTHING

    def _state_of(self, tsi: Tsi) -> SessionState | None:
        session = self._sessions.get(tsi)
        return None if session is None else session.state

    def _session(self, item: Data | Spm, peer: Nla, now_ns: int) -> tuple[ReceiverSession | None, Effects]:
        session = self._sessions.get(item.tsi)
        if session is not None or not self._sessions.has_room(now_ns):
            return session, NOTHING
        tsi = self.setup.names.named(item.tsi, item.data_port)
        context = SessionContext(
            tsi,
            item.data_port,
            self._parameters,
            self._counters,
            self._rng,
            self._node_id,
            self._signed.signs(item.data_port),
            now_ns,
        )
        session = ReceiverSession(context, self.setup, self._room, now_ns)
        restarted = restart_of_new_session(session, self._sessions)
        evicted = self._sessions.add(item.tsi, session, peer, now_ns)
        return session, restarted if evicted is None else [*restarted, *evicted.delivery.end(CloseCause.EVICTED)]

    def grant(self, octets: int) -> Effects:
        """Free `octets` that the application took from its queue; deliver more."""
        self._note_queue()
        was_full = self._room.octets <= 0
        self._room.octets += octets
        if not was_full:
            return NOTHING
        return self._of_all(lambda session: session.delivery.resume())

    def taken(self, tsi: Tsi, now_ns: int) -> Effects:
        """Note that the application has taken more of a session. Return an ack that is due."""
        session = self._sessions.get(tsi)
        return NOTHING if session is None else session.feedback.taken(now_ns)

    def lacks_acks(self, tsi: Tsi) -> bool:
        """Return whether the SPMs of a session ask for no acks; False before the first SPM, and for unknown sessions."""
        session = self._sessions.get(tsi)
        return session is not None and session.state.spm is not None and not session.feedback.is_acked

    def ack_window(self, tsi: Tsi) -> int:
        """Return how many packets the source of a session sends ahead of its slowest member; 0 without acks."""
        session = self._sessions.get(tsi)
        return 0 if session is None else session.feedback.ack_window

    def charge(self, octets: int) -> None:
        """Note `octets` more in the application's queue than delivered: parts of messages came back as whole ones."""
        self._room.octets -= octets
        self.single.forget_prediction()

    @property
    def room_octets(self) -> int:
        """Octets that the application's queue still takes."""
        return self._room.octets

    def resync(self, tsi: Tsi) -> Effects:
        """Continue a session with the newest packet. Everything undelivered before this packet is lost."""
        self.single.reset()
        session = self._sessions.get(tsi)
        return NOTHING if session is None else session.delivery.resync()

    def end_all(self, cause: CloseCause) -> Effects:
        """End every session that has begun; delivered packets can still be taken."""
        return self._of_all(lambda session: session.delivery.end(cause) if session.delivery.is_running else NOTHING)

    def _note_queue(self) -> None:
        counters, octets = self._counters, self._parameters.inbox_bytes - self._room.octets
        counters.queue_octets = octets
        if octets > counters.queue_most_octets:
            counters.queue_most_octets = octets

    def leave(self, now_ns: int) -> Effects:
        """Send a goodbye where acks are awaited: the application leaves."""
        return self._of_all(lambda session: session.feedback.leave(now_ns))

    def is_missing(self, tsi: Tsi, sqn: int) -> bool:
        """Return whether a sqn is in recovery now."""
        self.single.reset()
        session = self._sessions.get(tsi)
        return session is not None and session.recovery.is_missing(sqn)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due: NAKs, giving up, SPMRs, silence."""
        self.single.reset()
        effects: list[Effect] = []
        sessions, is_any_over = self._sessions, False
        for session in sessions.in_turn([session for session in sessions if session.deadline_ns <= now_ns]):
            due = session.handle_deadline(now_ns)
            effects += due
            if due and session.is_quiet and any(isinstance(effect, Closed) for effect in due):
                effects += restart_of_silent_session(session, sessions)
            is_any_over = is_any_over or session.is_over
        if is_any_over:
            sessions.forget(
                lambda session: (
                    session.is_over and now_ns - session.state.heard_at_ns >= self._parameters.session_expiry
                )
            )
        return effects

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return one row per session."""
        self._note_queue()
        self.single.reset()
        return self._sessions.status(now_ns)

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come, perhaps without a packet that the fast path takes now."""
        return self._sessions.edges()

    def forget(self, tsi: Tsi) -> None:
        """Forget a session."""
        self._sessions.forget(lambda session: session.state.tsi == tsi)

    def _of_all(self, act: Callable[[ReceiverSession], Effects]) -> Effects:
        self.single.reset()
        effects: list[Effect] = []
        for session in self._sessions.in_turn():
            effects += act(session)
        return effects
