"""Sender of NAKs from a session's recovery to its parents. Receivers and repairers share this module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.recovery.missing_range import MissingRange, RecoveryActions
from pgm.core.recovery.nak_packets import OF_HISTORY, NakPacketList, nak_packet, nak_packets
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.redundant_lines import RedundantLines
from pgm.core.recovery.siblings import Siblings
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.units import NEVER
from pgm.wire.formats import Nla
from pgm.wire.naks import LIST_SQNS
from pgm.wire.options import NO_OPTIONS, Options


class HasNakOptions(Protocol):
    """Source of further options of NAKs."""

    @property
    def nak_options(self) -> Options:
        """Return the options besides the list."""


class HasParityPlan(Protocol):
    """Parity that can stand in for single repairs of a transmission group (RFC 11.5)."""

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """Return parity requests, one sqn a group in the form of NAKs, and spans of sqns to request singly."""

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """Return how many packets the parity requests `sqns` ask for."""


class NoParityPlan:
    """Plan of a session whose source offers no parity: all sqns are requested singly."""

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """Return no parity requests, and all spans in order."""
        return [], sorted([(missing.first, missing.end) for missing in asking])

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """Return 0."""
        return 0


class HasSelfLimit(Protocol):
    """Limit that a node puts on its own NAKs."""

    def asked(self, ranges: Iterable[MissingRange], lead: int, now_ns: int) -> Effects:
        """Count requested ranges. Return notices."""


class NoSelfLimit:
    """Absence of a limit: the node does not watch its own NAKs."""

    deadline_ns = NEVER
    wants_close = False

    def begin(self, lead: int, now_ns: int) -> None:
        """Do nothing."""

    def asked(self, ranges: Iterable[MissingRange], lead: int, now_ns: int) -> Effects:
        """Return no notice."""
        return NOTHING


NO_SELF_LIMIT = NoSelfLimit()


class NakSender:
    """Sender of the NAKs of a session's recovery, with `more` options. `routes` lead to parents on several segments."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        recovery: Recovery,
        more: HasNakOptions,
        routes: RedundantLines,
        siblings: Siblings | None = None,
    ) -> None:
        self.state = state
        self.parents = parents
        self.recovery = recovery
        self._parameters = context.parameters
        self._counters = context.counters
        self._more = more
        self._routes = routes
        self.siblings = siblings or Siblings(context)
        self._parity: HasParityPlan = NoParityPlan()
        self.keeper: Nla = ""  # the repairer that has the history of a late joiner
        self.history_end = 0  # history is all below this sqn
        self._has_position = False  # the history is what an application or an archive lacks
        self._redirect: Nla = ""  # a repairer from OPT_REDIRECT: preferred to the parents until it fails
        self._redirect_has_parity = False

    def use_parity(self, plan: HasParityPlan) -> None:
        """Request parity too, because the source offers it."""
        self._parity = plan

    def follow_redirect(self, repairer: Nla, *, has_parity: bool) -> bool:
        """Prefer a repairer to the parents until it fails. Return whether it is another one than before."""
        if repairer == self._redirect:
            return False
        self._redirect, self._redirect_has_parity = repairer, has_parity
        return True

    def ask_for_history(self, keeper: Nla, end: int, *, has_position: bool = False) -> None:
        """Send all NAKs for sqns below `end` to the node that keeps these packets.

        With `has_position` the parents get NAKs that the keeper leaves unanswered, if the source may have the packets.
        """
        self.keeper, self.history_end, self._has_position = keeper, end, has_position

    def ask(
        self, segment: Segment, now_ns: int, limit: HasSelfLimit = NO_SELF_LIMIT
    ) -> tuple[list[Effect], RecoveryActions]:
        """Handle the recovery's timers in the node's own limit. Return NAKs, notices and the recovery's actions."""
        self.parents.before_asking(now_ns)
        is_alive = now_ns - self.state.heard_at_ns < self._parameters.stall_ivl
        step = self.recovery.handle_deadline(now_ns, may_give_up=is_alive, trail=self.state.trail)
        for asked in step.unanswered:
            if asked in self.siblings:
                self.siblings.unanswered(asked, now_ns)
            elif asked == self._redirect:
                self._redirect = ""  # one unanswered NAK is enough (RFC 9.5.4)
                self._counters.redirects_dropped += 1
            else:
                self.parents.unanswered(asked, now_ns)
        history = self._take_history(step, segment)
        effects: list[Effect] = []
        for parent, ranges in self._by_parent(step.asking, now_ns).items():
            if parent in self.siblings:
                effects += self._ask_sibling(ranges, segment, parent)
                continue
            counts, single = self._parity.plan(ranges)
            effects += self._naks(single, segment, parent)
            if counts:
                effects += self._parity_naks(counts, segment, parent)
        if effects:
            effects += limit.asked(step.asking, self.state.lead, now_ns)
        return [*history, *effects, *self.parents.take_change(self.state.tsi, now_ns)], step

    def _by_parent(self, asking: list[MissingRange], now_ns: int) -> dict[Nla | None, list[MissingRange]]:
        """Return ranges by the node to ask: a sibling, the current parent, or another if NAKs were unanswered."""
        by_parent: dict[Nla | None, list[MissingRange]] = {}
        for missing in asking:
            sibling = self.siblings.for_request(missing, now_ns)
            if sibling is not None:
                self.recovery.ask_sibling(missing, sibling, self.siblings.wait_ivl, now_ns)
                by_parent.setdefault(sibling, []).append(missing)
                continue
            missing.asked = self._redirect or self.parents.for_request(missing.tried, missing.unanswered)
            by_parent.setdefault(missing.asked, []).append(missing)
        return by_parent

    def _ask_sibling(self, ranges: list[MissingRange], segment: Segment, sibling: Nla | None) -> list[Effect]:
        """Return NAKs to a sibling: for single packets, and without reports, which are for the source."""
        spans = sorted((missing.first, missing.end) for missing in ranges)
        before = self._counters.nak_sqns
        naks = [
            send
            for listed in nak_packets(self.state, segment.group, spans)
            for send in self._sent(listed, segment, sibling)
        ]
        self._counters.sibling_sqns += self._counters.nak_sqns - before
        return naks

    def home_of(self, node: Nla, home: Segment) -> Segment:
        """Return the segment on which a node above is asked."""
        return self._routes.route(node, home)[0]

    def _take_history(self, step: RecoveryActions, segment: Segment) -> list[Effect]:
        """Request history before `history_end` of the repairer that offered it alone; remove it from `step.asking`."""
        old = [missing for missing in step.asking if self._is_of_keeper(missing)]
        if not old:
            return []
        step.asking = [missing for missing in step.asking if not self._is_of_keeper(missing)]
        for missing in old:
            missing.asked = self.keeper
        return self._naks([(missing.first, missing.end) for missing in old], segment, self.keeper, OF_HISTORY)

    def _is_of_keeper(self, missing: MissingRange) -> bool:
        """Return whether the keeper of history is asked for a range."""
        if missing.first >= self.history_end:
            return False
        is_left = self._has_position and missing.unanswered >= max(2, self._parameters.parent_patience // 3)
        return not (is_left and missing.end > self.state.trail)

    def _parity_naks(self, counts: list[int], segment: Segment, parent: Nla | None) -> list[Effect]:
        """Return NAKs for numbers of packets; none to a redirect repairer that offered no parity (DLR-33)."""
        if parent == self._redirect and not self._redirect_has_parity:
            parent = self.parents.current
        naks: list[Effect] = []
        before = self._counters.nak_packets
        segment, path_nla = self._routes.route(parent, segment)
        options = self._more.nak_options
        for at in range(0, len(counts), LIST_SQNS):
            part = counts[at : at + LIST_SQNS]
            packet = nak_packet(self.state, segment.group, part, options=options, parity=True, path_nla=path_nla)
            naks += self._sent(NakPacketList(packet, 1, len(part)), segment, parent)
        self._counters.parity_naks += self._counters.nak_packets - before
        self._counters.nak_sqns += self._parity.packets_asked(counts) - len(counts)
        return naks

    def _naks(
        self, spans: Sequence[Span], segment: Segment, parent: Nla | None, more: Options = NO_OPTIONS
    ) -> list[Effect]:
        if not spans:
            return []
        segment, path_nla = self._routes.route(parent, segment)
        options = (*more, *self._more.nak_options)
        packets = nak_packets(self.state, segment.group, spans, options=options, path_nla=path_nla)
        return [send for listed in packets for send in self._sent(listed, segment, parent)]

    def _sent(self, listed: NakPacketList, segment: Segment, parent: Nla | None) -> list[Effect]:
        self._counters.nak_packets += listed.packets
        self._counters.nak_sqns += listed.sqns
        naks: list[Effect] = [listed.send(segment, parent)]
        if self._parameters.nak_group_copy and segment.peers is None:  # on a unicast leg the copy would ask every peer
            naks.append(listed.send(segment, hops=1))
        return naks
