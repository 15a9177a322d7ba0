"""Sender of NAKs from a session's recovery to its parents.

Receivers and repairers share this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pgm.core.effects import Effect
from pgm.core.recovery.missing_range import MissingRange, RecoveryActions
from pgm.core.recovery.nak_packets import OF_HISTORY, NakPacketList, nak_packet, nak_packets
from pgm.core.recovery.nak_self_limit import NakSelfLimit
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.wire.formats import Nla
from pgm.wire.naks import LIST_SQNS
from pgm.wire.options import NO_OPTIONS, Options


class HasRoutes(Protocol):
    """Routes to parents on several segments."""

    def route(self, parent: Nla | None, home: Segment) -> tuple[Segment, Nla | None]:
        """Return the segment on which to ask a parent, and the session's path address.

        The path address is the one that the parent knows.
        """


class HasNakOptions(Protocol):
    """Source of further options of NAKs."""

    @property
    def nak_options(self) -> Options:
        """Return the options besides the list."""


class HasParityPlan(Protocol):
    """Parity that can stand in for single repairs of a transmission group (RFC 11.5)."""

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """Return parity requests, and spans of sqns to request singly.

        A parity request is one sqn for each group, in the form of NAKs.
        """

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """Return how many packets the parity requests `sqns` ask for."""


class NakSender:
    """Sender that runs a session's recovery and sends the NAKs that result."""

    def __init__(self, context: SessionContext, state: SessionState, parents: Parents, recovery: Recovery) -> None:
        self.state = state
        self.parents = parents
        self.recovery = recovery
        self._parameters = context.parameters
        self._counters = context.counters
        self.parity: HasParityPlan | None = None  # of a session whose source offers it
        self.redirect_has_parity = False
        self.more: HasNakOptions | None = None  # further options of NAKs
        self.routes: HasRoutes | None = None  # None: all parents are on one segment
        self.nak_self_limit: NakSelfLimit | None = None  # of a receiver
        self.keeper: Nla | None = None  # the repairer that has the history of a late joiner
        self.history_end = 0  # history is all below this sqn
        self.redirect: Nla | None = None  # a repairer from OPT_REDIRECT: preferred to the parents until it fails

    def ask(self, segment: Segment, now_ns: int) -> tuple[list[Effect], RecoveryActions]:
        """Handle the recovery's timers.

        Return the effects, which are NAKs and notices, and the recovery's actions.
        """
        self.parents.before_asking(now_ns)
        is_alive = now_ns - self.state.heard_at_ns < self._parameters.stall_ivl
        step = self.recovery.handle_deadline(now_ns, may_give_up=is_alive, trail=self.state.trail)
        for asked in step.unanswered:
            if asked is not None and asked == self.redirect:
                self.redirect = None  # one unanswered NAK is enough (RFC 9.5.4)
                self._counters.redirects_dropped += 1
            else:
                self.parents.unanswered(asked, now_ns)
        parent = self.redirect or self.parents.current  # may have changed in the loop above
        for missing in step.asking:
            missing.asked = parent
        history = [] if self.keeper is None else self._take_history(step, segment)
        before = self._counters.nak_sqns
        if self.parity is None:
            effects = self._naks(step.spans, segment, parent)
        else:
            effects = self._parity_naks(self.parity, step.asking, segment, parent)
        if self.nak_self_limit is not None and effects:
            effects += self.nak_self_limit.asked(self._counters.nak_sqns - before, self.state.lead, now_ns)
        return [*history, *effects, *self.parents.take_change(self.state.tsi, now_ns)], step

    def home_of(self, node: Nla, home: Segment) -> Segment:
        """Return the segment on which a node above is asked."""
        return home if self.routes is None else self.routes.route(node, home)[0]

    def _take_history(self, step: RecoveryActions, segment: Segment) -> list[Effect]:
        """Request a late joiner's history from the repairer that offered it.

        No other node is asked for history. Ranges below `history_end` leave `step.asking`.
        """
        old = [missing for missing in step.asking if missing.first < self.history_end]
        if not old:
            return []
        for missing in old:
            missing.asked = self.keeper
        step.asking = [missing for missing in step.asking if missing.first >= self.history_end]
        return self._naks([(missing.first, missing.end) for missing in old], segment, self.keeper, OF_HISTORY)

    def _parity_naks(
        self, parity: HasParityPlan, asking: list[MissingRange], segment: Segment, parent: Nla | None
    ) -> list[Effect]:
        """Return parity NAKs, and NAKs for the packets that parity cannot repair.

        A parity NAK asks for numbers of packets. A redirect repairer that offered no parity gets no parity NAK
        (DLR-33).
        """
        counts, single = parity.plan(asking)
        naks = self._naks(single, segment, parent)
        if parent == self.redirect is not None and not self.redirect_has_parity:
            parent = self.parents.current
        before = self._counters.nak_packets
        segment, path_nla = self._route(parent, segment)
        for at in range(0, len(counts), LIST_SQNS):
            part = counts[at : at + LIST_SQNS]
            packet = nak_packet(self.state, segment.group, part, options=self._options, parity=True, path_nla=path_nla)
            naks += self._sent(NakPacketList(packet, 1, len(part)), segment, parent)
        self._counters.parity_naks += self._counters.nak_packets - before
        self._counters.nak_sqns += parity.packets_asked(counts) - len(counts)
        return naks

    @property
    def _options(self) -> Options:
        return NO_OPTIONS if self.more is None else self.more.nak_options

    def _route(self, parent: Nla | None, home: Segment) -> tuple[Segment, Nla | None]:
        return (home, self.state.path_nla) if self.routes is None else self.routes.route(parent, home)

    def _naks(
        self, spans: Sequence[Span], segment: Segment, parent: Nla | None, more: Options = NO_OPTIONS
    ) -> list[Effect]:
        if not spans:
            return []
        segment, path_nla = self._route(parent, segment)
        options = (*more, *self._options)
        packets = nak_packets(self.state, segment.group, spans, options=options, path_nla=path_nla)
        return [send for listed in packets for send in self._sent(listed, segment, parent)]

    def _sent(self, listed: NakPacketList, segment: Segment, parent: Nla | None) -> list[Effect]:
        self._counters.nak_packets += listed.packets
        self._counters.nak_sqns += listed.sqns
        naks: list[Effect] = [listed.send(segment, parent)]
        if self._parameters.nak_group_copy and segment.peers is None:  # on a unicast leg the copy would ask every peer
            naks.append(listed.send(segment, hops=1))
        return naks
