"""NAKs as packets: how a session's recovery speaks to its parents. Shared by receivers and repairers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pgm.core.counters import Counters
from pgm.core.effects import Effect
from pgm.core.recovery.missing_range import MissingRange, RecoveryActions
from pgm.core.recovery.nak_packets import OF_HISTORY, NakPacketList, nak_packet, nak_packets
from pgm.core.recovery.nak_self_limit import NakSelfLimit
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.wire.formats import Nla
from pgm.wire.naks import LIST_SQNS
from pgm.wire.options import NO_OPTIONS, Options


class HasRoutes(Protocol):
    """Whoever knows the segments of parents that are not all on one."""

    def route(self, parent: Nla | None, home: Segment) -> tuple[Segment, Nla | None]:
        """The segment on which to ask a parent, and the path address that it knows the session by."""


class HasNakOptions(Protocol):
    """Whoever has something to say on NAKs."""

    @property
    def nak_options(self) -> Options:
        """Options besides the list."""


class HasParityPlan(Protocol):
    """Parity that can stand in for single repairs of a transmission group (RFC 11.5)."""

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """Return parity requests, one sqn a group as NAKs carry them, and spans of sqns to request singly."""

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """Return how many packets the parity requests `sqns` ask for."""


class NakSender:
    """Runs a session's recovery against its parents."""

    def __init__(
        self, state: SessionState, parents: Parents, recovery: Recovery, parameters: Parameters, counters: Counters
    ) -> None:
        self.state = state
        self.parents = parents
        self.recovery = recovery
        self._parameters = parameters
        self._counters = counters
        self.parity: HasParityPlan | None = None  # of a session whose source offers it
        self.redirect_has_parity = False
        self.more: HasNakOptions | None = None  # what NAKs carry besides
        self.routes: HasRoutes | None = None  # where parents are on several segments
        self.nak_self_limit: NakSelfLimit | None = None  # of a receiver
        self.keeper: Nla | None = None  # the repairer that has what a late joiner begins with, ...
        self.history_end = 0  # ... which is what lies before this sqn
        self.redirect: Nla | None = None  # a repairer that offered itself: asked before the parents, until it fails

    def ask(self, segment: Segment, now_ns: int) -> tuple[list[Effect], RecoveryActions]:
        """Do what the recovery's timers want; returns NAKs, and what they come from."""
        self.parents.before_asking(now_ns)
        is_alive = now_ns - self.state.heard_at_ns < self._parameters.stall_ivl
        step = self.recovery.handle_deadline(now_ns, may_give_up=is_alive, trail=self.state.trail)
        for asked in step.unanswered:
            if asked is not None and asked == self.redirect:
                self.redirect = None  # one unanswered NAK is enough (RFC 9.5.4)
                self._counters.redirects_dropped += 1
            else:
                self.parents.unanswered(asked, now_ns)
        parent = self.redirect or self.parents.current  # perhaps just changed
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
        """The segment on which somebody above is asked."""
        return home if self.routes is None else self.routes.route(node, home)[0]

    def _take_history(self, step: RecoveryActions, segment: Segment) -> list[Effect]:
        """What lies before a late joiner's beginning is asked of the repairer that said it has that, and of nobody else."""
        old = [one for one in step.asking if one.first < self.history_end]
        if not old:
            return []
        for missing in old:
            missing.asked = self.keeper
        step.asking = [one for one in step.asking if one.first >= self.history_end]
        return self._naks([(one.first, one.end) for one in old], segment, self.keeper, OF_HISTORY)

    def _parity_naks(
        self, parity: HasParityPlan, asking: list[MissingRange], segment: Segment, parent: Nla | None
    ) -> list[Effect]:
        """NAKs for numbers of packets, and for single ones where parity cannot help. Never a repairer that offered none (DLR-33)."""
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
        if self._parameters.nak_group_copy and segment.peers is None:  # on a unicast leg it would ask everybody
            naks.append(listed.send(segment, hops=1))
        return naks
