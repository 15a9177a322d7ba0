"""Core of aggregators and repairers: filters packets, and drops sessions that were silent for `session_expiry`."""

from __future__ import annotations

import random
from typing import Generic, Protocol, TypeVar

from pgm.core.control_codes import ControlCodes
from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects, Notice
from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours, replace_children, replace_parameters, replace_values
from pgm.core.node_id import NodeId
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Channel
from pgm.core.session.signed_streams import SignedStreams
from pgm.core.session.source_filter import SourceFilter
from pgm.core.session.state import SessionState
from pgm.core.session.table import HasState, SessionTable
from pgm.core.session_context import SessionContext
from pgm.core.status import SessionEdges, SessionStatus
from pgm.parameters import Parameters
from pgm.wire.control_packets import Packet
from pgm.wire.formats import Nla, Tsi, tsi_text
from pgm.wire.train import Item, Train
from pgm.wire.unknown_options import apply_opx

# Values of the setup that a running element takes.
_IN_PLACE = ("parents", "repairers", "siblings", "keepers", "assist_rank", "asks_below_trail", "allowed", "names")


class ElementSession(HasState, Protocol):
    """The properties of a session that the core of an element needs."""

    @property
    def deadline_ns(self) -> int:
        """When the session has something to do."""

    @property
    def nak_limits(self) -> NakLimits:
        """The NAK budgets of the session's children."""

    def change(self, now_ns: int) -> None:
        """Take the setup and the parameters as they are now."""

    def status(self, now_ns: int) -> SessionStatus:
        """Return the session's row for operators."""


S = TypeVar("S", bound=ElementSession)


class ElementCore(Generic[S]):
    """Core of an aggregator or repairer with any number of sessions. `pgm.core.interface` defines what a core is."""

    def __init__(self, setup: ElementSetup, parameters: Parameters, rng: random.Random) -> None:
        self.counters = Counters()
        self._setup = setup
        self._parameters = parameters
        self._rng = rng
        self._node_id = NodeId(rng)
        self._signed = SignedStreams(setup.signers, parameters, self.counters)
        self.control_codes = ControlCodes(setup.signers.control, self.counters)
        self._filter = SourceFilter(setup.allowed, self.counters)
        self.sessions: SessionTable[S] = SessionTable(parameters, self.counters)

    @property
    def setup(self) -> ElementSetup:
        """Settings of this element from the topology."""
        return self._setup

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self.sessions.earliest_ns(self._deadline_of)

    def _deadline_of(self, session: S) -> int:
        return min(session.deadline_ns, session.state.used_at_ns + self._parameters.session_expiry)

    def _context_of(self, item: Item, now_ns: int) -> SessionContext:
        tsi = self._setup.names.named(item.tsi, item.data_port)
        return SessionContext(
            tsi,
            item.data_port,
            self._parameters,
            self.counters,
            self._rng,
            self._node_id,
            self._signed.signs(item.data_port),
            now_ns,
        )

    def _items_of(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> list[Item]:
        """Return the items of a read to process.

        Packets of refused sources, of a signed stream without a proof, control packets without a code that they need, and
        packets that OPX discards (W-26) are not among them.
        """
        items, rejects = train.parse_runs_untrusted()
        self.counters.rejects.update(rejects)
        accepted: list[Item] = []
        for item in items:
            if self._filter.refuses(item, peer):
                continue
            if self._signed.has_any and self._signed.refuses(item, self._state_of(item.tsi), peer, now_ns):
                continue
            if self.control_codes.has_any and isinstance(item, Packet):
                checked = self.control_codes.checked(item, channel.segment, peer, now_ns)
                if checked is None:
                    continue
                item = checked
            kept = apply_opx(item) if item.options else item
            if kept is None:
                self.counters.opx_discarded += 1
            else:
                accepted.append(kept)
        return accepted

    def _state_of(self, tsi: Tsi) -> SessionState | None:
        session = self.sessions.get(tsi)
        return None if session is None else session.state

    def _expire(self, now_ns: int) -> list[Effect]:
        """Drop sessions without traffic or requests for `session_expiry`, with a notice."""
        expiry = self._parameters.session_expiry
        gone = self.sessions.forget(lambda session: now_ns - session.state.used_at_ns >= expiry)
        self.counters.sessions_expired += len(gone)
        return [effect for session in gone for effect in self._gone(session, "expired")]

    def _gone(self, session: S, how: str) -> Effects:
        """Release the memory of a dropped session, and return a notice."""
        return (Notice(f"session-{how}", f"session {tsi_text(session.state.tsi)} {how}"),)

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other neighbours and parameters in place. The caller has checked that the parameters may change."""
        replace_parameters(self._parameters, parameters)
        replace_values(self._setup, neighbours, _IN_PLACE)
        replace_children(self._setup.children, neighbours.children)
        self._filter.change(neighbours.allowed)
        for session in self.sessions:
            session.change(now_ns)

    def release(self, child: Nla, now_ns: int) -> int:
        """Restore the normal NAK budget of a child. Return in how many sessions the child had a reduced budget."""
        return sum(session.nak_limits.release(child, now_ns) for session in self.sessions)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return one row per session."""
        return self.sessions.status(now_ns)

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come."""
        return self.sessions.edges()
