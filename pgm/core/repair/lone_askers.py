"""Long ranges that one child of a segment alone requests, whose repairs go to that child by unicast.

A node whose interface was down asks for thousands of packets that all of its neighbours have. Multicast repairs would be
duplicates for each of them. NCFs are multicast all the same. OPT_PGM_ASKER in such an NCF says that no repair comes for
others, so a second node that lost the packets asks within its back-off. A node that skips the option keeps silent, and
asks again when no repair comes. The second request makes the repair multicast, for all nodes that may wait.

Each packet is sent once to a child alone. If the child asks for it again, it may not hear unicast, and the repair is
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
from pgm.core.structures.ranges import Span, SqnRange, merged, without
from pgm.wire.formats import Nla

_MOST_RANGES = 8  # of a segment, fewer than nodes that get repairs by unicast at a time
_MOST_PARTS = 256  # of the packets that were sent in a range; beyond, what lies between counts as sent
_WAITS = 2  # longest waits of a receiver, within which a node that got nothing has asked again


@attrs.define(eq=False)
class _AskedRange(SqnRange):
    """Sqns from the first to the last that a child has asked for. The child is None after another child has asked, too."""

    child: Nla | None
    until_ns: int
    owed: list[Span] = attrs.field(factory=list)  # to the child alone, after its last request
    sent: list[Span] = attrs.field(factory=list)  # of these, what was sent since

    def widen(self, other: SqnRange) -> None:
        """Cover the other range as well, and what lies between."""
        self.first, self.end = min(self.first, other.first), max(self.end, other.end)

    def note_sent(self, one: Responder) -> None:
        """Note which owed packets have left. A request may drop owed ones, so the caller does this before each."""
        if self.owed:
            gone = without(self.owed, one.owed_within(self.first, self.end))
            self.sent = merged([*self.sent, *gone])
            if len(self.sent) > _MOST_PARTS:
                self.sent = [(self.sent[0][0], self.sent[-1][1])]


@attrs.frozen
class Responders:
    """Repairs for the nodes of a segment: for all, and for one of them."""

    to_all: Responder
    to_one: Callable[[Nla], Responder]


class LoneAskers:
    """The long ranges that children of one segment have asked for lately."""

    def __init__(self, context: SessionContext, children: NamedChildren, segment: Segment) -> None:
        self._counters: Counters = context.counters
        self._parameters = context.parameters  # these and the children may change in place
        self._children = children
        self._own = segment.address
        self._ranges: list[_AskedRange] = []

    def concerns(self, asked: int) -> bool:
        """Return whether a request for `asked` sqns may belong to a long range. Most requests are short, and do not."""
        least = self._parameters.unicast_repair_min_sqns
        return least > 0 and (asked >= least or bool(self._ranges))

    def take(self, spans: list[Span], asker: Nla, responders: Responders, now_ns: int) -> list[Span]:
        """Owe the repairs that are for this child alone. Return the spans that are for the segment, in order.

        `asker` is the name of the child's share of repairs: the address of a child that the topology names.
        """
        self._ranges = [known for known in self._ranges if known.until_ns > now_ns]
        whole = merged(spans)
        is_long = max(end - first for first, end in whole) >= self._parameters.unicast_repair_min_sqns
        known = self._known(whole, asker, responders, now_ns, is_long=is_long)
        if known is None:
            return spans
        one = responders.to_one(asker)
        known.note_sent(one)
        alone, for_all = _divided(whole, known.sent, one, now_ns)
        if alone:
            owed = one.pending_sqns
            for_all += one.request(alone, now_ns, asker=asker)
            self._counters.unicast_repair_sqns += max(0, one.pending_sqns - owed)
        known.owed = one.owed_within(known.first, known.end)
        return merged(for_all)

    def _is_receiver(self, child: Nla) -> bool:
        named = self._children
        return child in named.addresses and child not in named.elements and child != self._own

    def _known(
        self, asked: list[Span], child: Nla, responders: Responders, now_ns: int, *, is_long: bool
    ) -> _AskedRange | None:
        """Return the range that this child alone asks for; None if the repairs are for the segment."""
        hull = SqnRange(asked[0][0], asked[-1][1])
        near = [known for known in self._ranges if known.first <= hull.end and hull.first <= known.end]
        if not near:
            may_be_alone = is_long and self._is_receiver(child) and len(self._ranges) < _MOST_RANGES
            if not may_be_alone or responders.to_all.has_repaired_or_owes(hull.first, hull.end, now_ns):
                return None
            near = [_AskedRange(hull.first, hull.first, child, 0)]
        elif not is_long and any(known.child != child for known in near):
            return None  # a few packets, which another child lost for itself
        whole, *others = near
        self._ranges = [known for known in self._ranges if known not in near] + [whole]
        whole.widen(hull)
        parameters = self._parameters
        whole.until_ns = now_ns + _WAITS * max(parameters.nak_max_ivl, parameters.nak_rdata_ivl)
        for known in others:
            whole.widen(known)
            whole.owed, whole.sent = merged([*whole.owed, *known.owed]), merged([*whole.sent, *known.sent])
        children = {known.child for known in near}
        if children == {child}:
            return whole
        for other in children - {child, None}:
            assert other is not None
            for first, end in asked:  # the repair for all serves the other child, too
                responders.to_one(other).heard_repair(first, end, now_ns)
        whole.child = None
        return None


def _divided(spans: Sequence[Span], sent: Sequence[Span], one: Responder, now_ns: int) -> tuple[list[Span], list[Span]]:
    """Return the spans for the child alone, and those that were sent to it before, in vain.

    Packets whose repairs are owed or on their way stay with the child: a request for these is an echo.
    """
    before = without(spans, without(spans, sent))
    for_all = [gap for first, end in before for gap in one.unanswered(first, end, now_ns)]
    return without(spans, for_all), for_all
