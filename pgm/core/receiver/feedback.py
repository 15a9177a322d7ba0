"""Feedback of a receiver to its source: acks and congestion reports.

Acknowledged streams need acks, and streams with congestion control need reports. SPMs say which of them are wanted, so
a receiver needs no configuration. A plain stream has neither.
"""

from __future__ import annotations

from collections.abc import Callable

from pgm.core.acked.ack_sender import AckSender
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.acked.member_acks import MemberAcks
from pgm.core.congestion.reports import Reporter
from pgm.core.effects import NOTHING, Effects
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.redundant_lines import RedundantLines
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.status import AckStatus
from pgm.units import NEVER
from pgm.wire.control_packets import Ack, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import Flow, Members, Options, find


class Feedback:
    """Acks and congestion reports of one session."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        setup: ReceiverSetup,
        is_missing: Callable[[int], bool],
        routes: RedundantLines | None = None,
    ) -> None:
        """`routes` are for parents on several segments."""
        self._context = context
        self._routes = routes
        self._state = state
        self._parents = parents
        self._setup = setup
        self._parameters = context.parameters
        self._counters = context.counters
        self.is_wanted = False  # False for plain streams, which test nothing else
        self._acks = self._new_acks()
        self._flow_ns = 0  # time of the last SPM that requested acks
        self.reporter = Reporter(context, state, parents, setup.segment, is_missing)

    def _new_acks(self, begin: int = -1, delivered: int = -1) -> MemberAcks:
        sender = AckSender(self._context, self._state, self._parents, self._setup.segment, self._routes)
        return MemberAcks(self._state.tsi, sender, self._setup.ack_bound, begin, delivered)

    @property
    def deadline_ns(self) -> int:
        """When something is due."""
        if not self.is_wanted:
            return NEVER
        return min(self._acks.deadline_ns, self.reporter.deadline_ns)

    @property
    def status(self) -> AckStatus | None:
        """Status of the acks for operators."""
        return self._acks.status

    @property
    def nak_options(self) -> Options:
        """Options that NAKs carry in addition."""
        return self.reporter.options

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Learn from an SPM whether acks and reports are wanted.

        Acks begin at the sqn that the application takes next. The terms of the last SPM hold. Acks end only after no SPM has
        requested acks for `peer_expiry`: a single SPM with or without the option may be forged.
        """
        flow = find(spm.options, Flow)
        if flow is not None:
            self._flow_ns = now_ns
            self._acks.follow(AckTerms.of_option(flow), now_ns)
        elif self._acks.is_wanted and now_ns - self._flow_ns >= self._parameters.peer_expiry:
            self._counters.ack_terms_changes += 1
            self._acks = self._new_acks(self._acks.begin, self._acks.delivered)
        self.reporter.on_spm(spm, now_ns)
        self.is_wanted = self._acks.is_wanted or self.reporter.is_wanted

    def on_packet(self, ack: Ack, peer: Nla, now_ns: int) -> Effects:
        """Take an ACK by which a parent confirms acks."""
        members = find(ack.options, Members)
        if members is None or not members.confirms:
            return NOTHING
        return self._acks.on_confirmation(peer, now_ns, is_for_us=members.joins)

    def open(self, next_sqn: int) -> None:
        """Begin at the sqn that is delivered next."""
        self._acks.open(next_sqn)

    @property
    def is_acked(self) -> bool:
        """Whether the source waits for acks."""
        return self._acks.is_wanted

    @property
    def ack_window(self) -> int:
        """Packets that the source sends ahead of its slowest member; 0 without acks."""
        return self._acks.window

    def reached(self, delivered: int) -> None:
        """Note that everything up to `delivered` was delivered."""
        self._acks.reached(delivered, self._state.heard_at_ns)

    def taken(self, now_ns: int) -> Effects:
        """Note that the application has taken more. Return an ack that is due."""
        return self._acks.taken(now_ns) if self._acks.is_wanted else NOTHING

    def ends(self) -> None:
        """Send a goodbye once the application has taken everything: the session is over."""
        self._acks.end(self._state.heard_at_ns)

    def leave(self, now_ns: int) -> Effects:
        """Send a goodbye: the application leaves, and no node needs to wait for its acks."""
        return [*self.reporter.leave(now_ns), *self._acks.leave(now_ns)]

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return an ack or a report that is due."""
        return [*self._acks.handle_deadline(now_ns), *self.reporter.handle_deadline(now_ns)]
