"""What aggregators and repairers do alike: judge what they read, and keep sessions until they have been silent for too long."""

from __future__ import annotations

import random
from typing import Generic, Protocol, TypeVar

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects, Notice
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.poll_responder import NodeId
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.session.source_filter import refused_packets
from pgm.core.session.table import HasState, SessionTable
from pgm.core.status import SessionStatus
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.train import Item, Train
from pgm.wire.unknown_options import apply_opx


class ElementSession(HasState, Protocol):
    """What the core of an element needs of a session."""

    @property
    def deadline_ns(self) -> int:
        """When the session has something to do."""

    @property
    def nak_limits(self) -> NakLimits:
        """The budgets of those who ask it."""

    def status(self, now_ns: int) -> SessionStatus:
        """What operators see of it."""


S = TypeVar("S", bound=ElementSession)


class ElementCore(Generic[S]):
    """An aggregator or repairer with any number of sessions; see `pgm.core.interface` for what a core is."""

    def __init__(self, setup: ElementSetup, parameters: Parameters, rng: random.Random) -> None:
        self.counters = Counters()
        self._setup = setup
        self._parameters = parameters
        self._rng = rng
        self._node_id = NodeId(rng)
        self.sessions: SessionTable[S] = SessionTable(parameters.max_sessions, self.counters)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        expiry = self._parameters.session_expiry
        return min((min(one.deadline_ns, one.state.used_at_ns + expiry) for one in self.sessions), default=NEVER)

    def _items_of(self, train: Train, peer: Nla) -> list[Item]:
        """What one read gave, without what OPX asks an element to discard (W-26), and what comes from strangers."""
        items, rejects = train.parse_runs_untrusted()
        self.counters.rejects.update(rejects)
        found = []
        allowed = self._setup.allowed
        for item in items:
            if allowed and (strange := refused_packets(allowed, item, peer)):
                self.counters.unlisted_packets += strange
                continue
            kept = apply_opx(item) if item.options else item
            if kept is None:
                self.counters.opx_discarded += 1
            else:
                found.append(kept)
        return found

    def _expire(self, now_ns: int) -> list[Effect]:
        """Drop the sessions of which nothing was heard, and asked, for `session_expiry`, and say so."""
        expiry = self._parameters.session_expiry
        gone = self.sessions.forget(lambda one: now_ns - one.state.used_at_ns >= expiry)
        self.counters.sessions_expired += len(gone)
        return [effect for one in gone for effect in self._gone(one, "expired")]

    def _gone(self, session: S, how: str) -> Effects:
        """Let go of what was held for a session that is dropped, and say so."""
        return (Notice(f"session-{how}", f"session {tsi_text(session.state.tsi)} {how}"),)

    def release(self, child: Nla, now_ns: int) -> int:
        """Give a child that asks all the time its normal budget back; says in how many sessions it had a small one."""
        return sum(session.nak_limits.release(child, now_ns) for session in self.sessions)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """One row per session."""
        return self.sessions.status(now_ns)
