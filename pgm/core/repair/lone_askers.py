"""Long ranges that one child of a segment alone requests, whose repairs go to that child by unicast.

A node whose interface was down asks for thousands of packets that all of its neighbours have. Multicast repairs would be
duplicates for each of them. NCFs are multicast all the same, so a second node that lost the packets keeps silent, and
asks again when no repair comes. That second request makes the repair multicast, for all nodes that may wait.

A child is served alone once for each packet. If the child asks again, it may not hear unicast, and the repair is
multicast. Only receivers that the topology names are served alone: they have sockets for unicast repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from pgm.core.counters import Counters
from pgm.core.named_children import NamedChildren
from pgm.core.repair.responder import Responder
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, SqnRange, merged
from pgm.wire.formats import Nla

_MOST_RANGES = 8  # of a segment, fewer than nodes that get repairs by unicast at a time
_WAITS = 2  # of nak_max_ivl, within which a silent second node has asked again


@attrs.define(eq=False)
class _AskedRange(SqnRange):
    """Sqns from the first to the last that a child has asked for. The child is None after another child has asked, too."""

    child: Nla | None
    until_ns: int

    def widen(self, other: SqnRange) -> None:
        """Cover the other range as well, and what lies between."""
        self.first, self.end = min(self.first, other.first), max(self.end, other.end)


@attrs.frozen
class Responders:
    """Repairs for the nodes of a segment: for all, and for one of them."""

    to_all: Responder
    to_one: Callable[[Nla], Responder]


class LoneAskers:
    """The long ranges that children of one segment have asked for lately."""

    def __init__(self, context: SessionContext, children: NamedChildren, segment: Segment) -> None:
        parameters = context.parameters
        self._counters: Counters = context.counters
        self._receivers = children.addresses - children.elements - {segment.address}
        self._least = parameters.unicast_repair_min_sqns if self._receivers else 0
        self._lasts_ns = _WAITS * parameters.nak_max_ivl
        self._ranges: list[_AskedRange] = []

    def concerns(self, asked: int) -> bool:
        """Return whether a request for `asked` sqns may belong to a long range. Most requests are short, and do not."""
        return self._least > 0 and (asked >= self._least or bool(self._ranges))

    def take(self, spans: list[Span], asker: Nla, responders: Responders, now_ns: int) -> list[Span]:
        """Owe the repairs that are for this child alone. Return the spans that are for the segment, in order.

        `asker` is the name of the child's share of repairs: the address of a child that the topology names.
        """
        self._ranges = [known for known in self._ranges if known.until_ns > now_ns]
        whole = merged(spans)
        is_long = max(end - first for first, end in whole) >= self._least
        hull = SqnRange(whole[0][0], whole[-1][1])
        known = self._known(hull, asker, responders, now_ns, is_long=is_long)
        if known is None:
            return spans
        one = responders.to_one(asker)
        alone, for_all = _divided(whole, known, one, now_ns)
        known.widen(hull)
        if alone:
            owed = one.pending_sqns
            for_all += one.request(alone, now_ns, asker=asker)
            self._counters.unicast_repair_sqns += one.pending_sqns - owed
        return merged(for_all)

    def _known(
        self, hull: SqnRange, child: Nla, responders: Responders, now_ns: int, *, is_long: bool
    ) -> _AskedRange | None:
        """Return the range that this child alone asks for; None if the repairs are for the segment."""
        near = [known for known in self._ranges if known.first <= hull.end and hull.first <= known.end]
        if not near:
            may_be_alone = is_long and child in self._receivers and len(self._ranges) < _MOST_RANGES
            if not may_be_alone or responders.to_all.has_repaired_or_owes(hull.first, hull.end, now_ns):
                return None
            near = [_AskedRange(hull.first, hull.first, child, 0)]
        elif not is_long and any(known.child != child for known in near):
            return None  # a few packets, which another child lost for itself
        whole, *others = near
        self._ranges = [known for known in self._ranges if known not in near] + [whole]
        whole.until_ns = now_ns + self._lasts_ns
        for known in others:
            whole.widen(known)
        children = {known.child for known in near}
        if children == {child}:
            return whole
        for other in children - {child, None}:
            assert other is not None
            responders.to_one(other).heard_repair(hull.first, hull.end, now_ns)  # the repair for all serves it, too
        whole.widen(hull)
        whole.child = None
        return None


def _divided(spans: Sequence[Span], known: SqnRange, one: Responder, now_ns: int) -> tuple[list[Span], list[Span]]:
    """Return the spans for the child alone, and those that the child has asked for before, in vain."""
    alone: list[Span] = []
    for_all: list[Span] = []
    for first, end in spans:
        low, high = max(first, known.first), min(end, known.end)
        if low >= high:
            alone.append((first, end))
            continue
        alone += [(left, right) for left, right in ((first, low), (high, end)) if left < right]
        (alone if one.has_repaired_or_owes(low, high, now_ns) else for_all).append((low, high))
    return merged(alone), for_all
