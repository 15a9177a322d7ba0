"""Repairers that an element has learnt of from polls and offers (RFC 9.5.3).

NAKs go to these repairers before the parents. Upstream repairers, known from their own offers, go first. Off-tree
repairers, found by polls, are on a downstream segment. Off-tree repairers get no NAKs for sqns that their own segment
requested, because they have lost these sqns too.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import SECOND
from pgm.wire.formats import Nla

_MOST = 16  # remembered repairers: more than a session needs


@attrs.frozen
class _Known:
    """One repairer, and the route that tries this repairer before the parents."""

    nla: Nla
    segment: Segment
    segment_bit: int  # of the downstream segment of the repairer; 0 upstream
    route: Parents


class LearntRepairers:
    """Learnt repairers of one session at one element."""

    def __init__(self, context: SessionContext, setup: ElementSetup) -> None:
        self._context = context
        self._setup = setup
        self._counters = context.counters
        self._known: OrderedDict[Nla, _Known] = OrderedDict()

    def learn(self, nla: Nla, segment: Segment, *, is_upstream: bool, path_nla: Nla | None) -> None:
        """Note an offer (DLR-32). A repairer that is known already changes nothing."""
        if nla in self._known or nla in self._setup.parents or nla == path_nla:
            return
        repeat_ivl = SECOND // self._context.parameters.ne_nak_rpt_rte
        route = Parents(self._context, (nla, *self._setup.parents), repeat_ivl, patience=1)
        if path_nla is not None:
            route.learn_path(path_nla)
        bit = 0 if is_upstream else 1 << self._setup.downs.index(segment)
        self._known[nla] = _Known(nla, segment, bit, route)
        self._counters.redirects_taken += 1
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def change(self, repeat_ivl: int) -> None:
        """Take other parents behind each repairer."""
        for known in self._known.values():
            known.route.change((known.nla, *self._setup.parents), repeat_ivl)

    def route_for(self, segments: int) -> Parents | None:
        """Return the route for sqns of `segments` (one bit each), or None without a known repairer (DLR-31, DLR-34)."""
        eligible = [repairer for repairer in self._known.values() if not repairer.segment_bit & segments]
        return min(eligible, key=lambda repairer: repairer.segment_bit != 0).route if eligible else None

    def segment_of(self, nla: Nla) -> Segment | None:
        """Return the segment of a known repairer."""
        known = self._known.get(nla)
        return None if known is None else known.segment

    def is_off_tree(self, nla: Nla) -> bool:
        """Return whether a repairer is on a downstream segment."""
        known = self._known.get(nla)
        return known is not None and known.segment_bit != 0

    def note_peer(self, nla: Nla, *, answers: bool) -> None:
        """Note that a repairer is alive."""
        known = self._known.get(nla)
        if known is not None:
            (known.route.answered if answers else known.route.heard)(nla)

    def drop_failed(self) -> None:
        """Forget repairers that did not answer (DLR-35). The routes of these repairers have moved on to the parents."""
        for known in [repairer for repairer in self._known.values() if repairer.route.current != repairer.nla]:
            self._counters.redirects_dropped += 1
            del self._known[known.nla]
