"""The repairers that an element has learnt of: whom it asks before its parents, for which segment (RFC 9.5.3).

Upstream ones, found by their own offers, go first. Off-tree ones, found by polls, sit on a segment below; they are not asked
for what was asked for on that segment, since they have lost it too.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from pgm.core.counters import Counters
from pgm.core.element.setup import ElementSetup
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Nla

_MOST = 16  # repairers remembered: more than a session needs


@attrs.frozen
class _Known:
    """One repairer, and the route that asks it before the parents."""

    nla: Nla
    segment: Segment
    segment_bit: int  # of the segment below that it sits on; 0 upstream
    route: Parents


class LearntRepairers:
    """The redirects of one session at one element."""

    def __init__(self, setup: ElementSetup, parameters: Parameters, counters: Counters) -> None:
        self._setup = setup
        self._parameters = parameters
        self._counters = counters
        self._known: OrderedDict[Nla, _Known] = OrderedDict()

    def learn(self, nla: Nla, segment: Segment, *, is_upstream: bool, path_nla: Nla | None) -> None:
        """Note an offer (DLR-32). One that is known already changes nothing."""
        if nla in self._known or nla in self._setup.parents or nla == path_nla:
            return
        route = Parents(
            (nla, *self._setup.parents), self._parameters, self._counters, SECOND // self._parameters.ne_nak_rpt_rte
        )
        if path_nla is not None:
            route.learn_path(path_nla)
        bit = 0 if is_upstream else 1 << self._setup.downs.index(segment)
        self._known[nla] = _Known(nla, segment, bit, route)
        self._counters.redirects_taken += 1
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def route_for(self, segments: int) -> Parents | None:
        """Whom to ask for sqns that the segments of these bits have asked for; None if no repairer is known (DLR-31, DLR-34)."""
        eligible = [one for one in self._known.values() if not one.segment_bit & segments]
        return min(eligible, key=lambda one: one.segment_bit != 0).route if eligible else None

    def segment_of(self, nla: Nla) -> Segment | None:
        """The segment on which a known repairer is asked."""
        known = self._known.get(nla)
        return None if known is None else known.segment

    def is_off_tree(self, nla: Nla) -> bool:
        """Whether it sits below."""
        known = self._known.get(nla)
        return known is not None and known.segment_bit != 0

    def note_peer(self, nla: Nla, *, answers: bool) -> None:
        """A sign of life."""
        known = self._known.get(nla)
        if known is not None:
            (known.route.answered if answers else known.route.heard)(nla)

    def drop_failed(self) -> None:
        """Forget whoever did not answer: its route has gone on to the parents (DLR-35)."""
        for known in [one for one in self._known.values() if one.route.current != one.nla]:
            self._counters.redirects_dropped += 1
            del self._known[known.nla]
