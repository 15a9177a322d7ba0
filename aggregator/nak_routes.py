"""Routes of NAKs at an aggregator: which node is asked, and on which segment.

A NAK goes to the local repairers of a segment first, then to the learnt repairers, then to the parents.
"""

from __future__ import annotations

from aggregator.elimination import Elimination
from aggregator.learnt_repairers import LearntRepairers
from pgm.core.effects import Notice
from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.units import SECOND
from pgm.wire.formats import Nla


class NakRoutes:
    """Routes of one session's NAKs."""

    def __init__(self, context: SessionContext, setup: ElementSetup, elimination: Elimination) -> None:
        repeat_ivl = SECOND // context.parameters.ne_nak_rpt_rte
        self.upstream = Parents(context, setup.parents, repeat_ivl)
        repairers = setup.repairers or ((),) * len(setup.downs)
        self.by_segment = [
            Parents(context, (*local, *setup.parents), repeat_ivl) if local else self.upstream for local in repairers
        ]
        self.learnt = LearntRepairers(context, setup)
        self._all = list({id(parents): parents for parents in (self.upstream, *self.by_segment)}.values())
        self.honours_redirects = context.parameters.honour_redirects
        self._tsi = context.tsi
        self._repeat_ivl = repeat_ivl
        self._up = setup.up
        self._homes = setup.homes
        self._elimination = elimination

    def change(self, setup: ElementSetup) -> None:
        """Take other parents and repairers. Each segment keeps a route of its own, or the one upstream."""
        self.upstream.change(setup.parents, self._repeat_ivl)
        for route, local in zip(self.by_segment, setup.repairers, strict=False):
            if route is not self.upstream:
                route.change((*local, *setup.parents), self._repeat_ivl)
        self.learnt.change(self._repeat_ivl)
        self._homes = setup.homes

    def note_peer(self, peer: Nla, *, answers: bool) -> None:
        """Note that a node is alive, and whether the node answers NAKs."""
        for parents in self._all:
            (parents.answered if answers else parents.heard)(peer)
        self.learnt.note_peer(peer, answers=answers)

    def learn_path(self, path_nla: Nla) -> None:
        """Take SPM_PATH as the last parent of every route."""
        for parents in self._all:
            parents.learn_path(path_nla)

    def take_changes(self, now_ns: int) -> list[Notice]:
        """Return the notices of changes of parents since the last call."""
        return [notice for parents in self._all for notice in parents.take_change(self._tsi, now_ns)]

    def is_repairer(self, peer: Nla) -> bool:
        """Return whether a peer is a repairer below: a local one, or one off the tree."""
        return peer in self._homes or self.learnt.is_off_tree(peer)

    def home_of(self, target: Nla) -> Segment:
        """Return the segment on which a target is reached."""
        return self._homes.get(target) or self.learnt.segment_of(target) or self._up

    def route_for(self, spans: list[Span], index: int, peer: Nla, now_ns: int) -> tuple[Parents, int]:
        """Return the route of a NAK, and the bit of the segment to repair.

        A repairer may request sqns that were requested from it. The repairer then cannot help, and the request goes
        upstream. An off-tree repairer does not want that repair on its segment; if it does, it sends another NAK
        (DLR-36).
        """
        bit, elimination = 1 << index, self._elimination
        if peer in self._homes:
            elimination.redirect_up(spans, peer, self.upstream, now_ns)
            return self.upstream, bit
        if self.is_off_tree_for(peer, spans):
            elimination.redirect_up(spans, peer, self.upstream, now_ns)
            return self.upstream, 0 if elimination.covers(spans) else bit
        if self.by_segment[index] is not self.upstream:
            return self.by_segment[index], bit
        known = self.learnt.route_for(elimination.segments_of(spans) | bit)
        return known or self.upstream, bit

    def is_off_tree_for(self, peer: Nla, spans: list[Span]) -> bool:
        """Return whether a peer is an off-tree repairer that was asked for any of these sqns."""
        return self.learnt.is_off_tree(peer) and self._elimination.has_asked(peer, spans)
