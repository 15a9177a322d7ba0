"""Repair state of a network element (RFC 7.2 - 7.5).

The state records which segments requested which sqns, and the answers from upstream; see `aggregator.nak_forwarder` for
states and timers. The first duplicate of an outstanding NAK after NAK_ELIM_IVL is forwarded like a new NAK. An upstream
NCF without a NAK from downstream makes an outstanding range without segments (anticipation). RDATA for such a range goes
nowhere until a NAK adds a segment.

ODATA changes nothing here (NE-15); only RDATA ends a repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import attrs

from aggregator.nak_forwarder import NOBODY, ForwardedRange, NakForwarder
from pgm.core.recovery.parents import Parents
from pgm.core.repair.null_naks import NullNaks
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.wire.formats import Nla


@attrs.define(eq=False)
class Repair(ForwardedRange):
    """Repair state of a range of sqns. `segments` has one bit for each downstream segment that sent a NAK."""

    segments: int = 0
    joiner: Nla | None = None  # the late joiner that sent the only NAKs
    is_history: bool = False  # only late joiners sent NAKs


@attrs.define
class Repeat:
    """NAKs to repeat: their target and their sqns."""

    target: Nla
    is_history: bool
    spans: list[Span]


class Elimination:
    """Repair state of one session at one element."""

    def __init__(self, context: SessionContext) -> None:
        self.forwarder: NakForwarder[Repair] = NakForwarder(context)
        self.repairs = self.forwarder.repairs
        self.null_naks = NullNaks(context.parameters)

    def admit(
        self,
        spans: Iterable[Span],
        segment_bit: int,
        route: Parents,
        now_ns: int,
        joiner: Nla | None = None,
        *,
        is_history: bool = False,
    ) -> Nla:
        """Take a NAK, and return the target to forward it to (NE-20, NE-21, NE-28).

        Return `NOBODY` if all sqns of the NAK are in flight. `joiner` is a late joiner that alone requests history on its
        segment.
        """
        forward_to = NOBODY
        for first, end in spans:
            for repair in self.repairs.within(first, end):
                repair.joiner = joiner if repair.segments in (0, segment_bit) and joiner == repair.joiner else None
                repair.is_history = repair.is_history and is_history
                repair.segments |= segment_bit
                if now_ns >= repair.elim_until_ns:
                    forward_to = self.forwarder.ask(repair, route, now_ns) or forward_to
            for low, high in self.repairs.uncovered(first, end):
                if self.forwarder.admits():
                    new = Repair(low, high, route, segments=segment_bit, joiner=joiner, is_history=is_history)
                    forward_to = self.forwarder.ask(self.repairs.add(new), route, now_ns) or forward_to
        self.forwarder.keep_bound()
        return forward_to

    def segments_of(self, spans: Iterable[Span]) -> int:
        """Return the bits of the segments that requested any of these sqns."""
        bits = 0
        for first, end in spans:
            for repair in self._overlapping(first, end):
                bits |= repair.segments
        return bits

    def has_asked(self, target: Nla, spans: Iterable[Span]) -> bool:
        """Return whether this target was asked for any of these sqns."""
        return any(repair.target == target for first, end in spans for repair in self._overlapping(first, end))

    def unasked(self, first: int, end: int, now_ns: int) -> list[Span]:
        """Return the spans `admit` would request now: new ones, and those confirmed over NAK_ELIM_IVL ago."""
        again = [
            (max(first, repair.first), min(end, repair.end))
            for repair in self._overlapping(first, end)
            if now_ns >= repair.elim_until_ns
        ]
        return sorted([*self.repairs.uncovered(first, end), *again])

    def covers(self, spans: Iterable[Span]) -> bool:
        """Return whether there is repair state for all of these sqns."""
        return not any(self.repairs.uncovered(first, end) for first, end in spans)

    def are_uniform(self, spans: Iterable[Span], now_ns: int) -> bool:
        """Return whether all sqns are new, or all in flight: their NAKs can be forwarded whole or not at all."""
        overlapping = [repair for first, end in spans for repair in self._overlapping(first, end)]
        if not overlapping:
            return True
        is_under_way = all(now_ns < repair.elim_until_ns for repair in overlapping)
        return is_under_way and self.covers(spans)

    def _overlapping(self, first: int, end: int) -> Iterator[Repair]:
        return itertools.takewhile(lambda repair: repair.first < end, self.repairs.reaching(first))

    def redirect_up(self, spans: Iterable[Span], asker: Nla, upstream: Parents, now_ns: int) -> None:
        """Redirect a repairer's own NAK upstream (DLR-34, DLR-36). The repairer itself was asked for these sqns."""
        for first, end in spans:
            self.forwarder.redirect_up(first, end, asker, upstream, now_ns)
        self.forwarder.keep_bound()

    def confirm(
        self, spans: Iterable[Span], now_ns: int, answers: Callable[[Repair], bool], *, anticipate: bool
    ) -> None:
        """Take an NCF: matching repairs become outstanding, and their times restart.

        The rules are NE-13, NE-22 and NE-25. With `anticipate`, unknown sqns become outstanding without a segment.
        """
        for first, end in spans:
            for repair in self.repairs.within(first, end):
                if answers(repair):
                    self.forwarder.confirm(repair, now_ns)
            if not anticipate:
                continue
            for low, high in self.repairs.uncovered(first, end):
                if self.forwarder.admits():
                    self.forwarder.confirm(self.repairs.add(Repair(low, high, self.forwarder.no_route)), now_ns)
        self.forwarder.keep_bound()

    def repaired_from_above(self, first: int, end: int) -> list[Repair]:
        """End the repair of sqns by RDATA from upstream (NE-30, NE-31). Return the requested repairs and segments."""
        repaired = self.repairs.discard(first, end)
        self.forwarder.keep_bound()
        return repaired

    def repaired_below(self, first: int, end: int, segment_bit: int) -> None:
        """End a segment's part of a repair: a local repairer sent RDATA there."""
        for repair in self.repairs.within(first, end):
            repair.segments &= ~segment_bit
            if not repair.segments:
                self.repairs.remove(repair)
        self.forwarder.keep_bound()

    def take_repeats(self, now_ns: int) -> list[Repeat]:
        """Return the NAKs to repeat; see `NakForwarder.take_repeats`."""
        repeats: dict[tuple[Nla, bool], Repeat] = {}
        for repair in self.forwarder.take_repeats(now_ns):
            key = (repair.target, repair.is_history)
            repeat = repeats.setdefault(key, Repeat(*key, []))
            repeat.spans.append((repair.first, repair.end))
        return list(repeats.values())
