"""Late joiners: what a repairer tells them that it holds, and which NAKs are theirs.

History goes to the joiner alone, by unicast and at `join_share` of the rate, so that nobody else hears of it or waits for it.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from pgm.core.channel import Segment
from pgm.core.effects import Effects, control
from pgm.core.pacer import Pacer
from pgm.core.path import Path
from pgm.parameters import Parameters
from pgm.units import MILLISECOND
from pgm.wire.formats import Nla
from pgm.wire.options import Held
from pgm.wire.packets import Spmr, encode
from pgm.wire.serial import unwrap, wrap
from repairer.cache import SessionCache

_MOST_JOINERS = 1024  # remembered; an older one's history is served as any repair


class Joiners:
    """The late joiners of one session."""

    def __init__(self, path: Path, cache: SessionCache, parameters: Parameters) -> None:
        self._path = path
        self._cache = cache
        self._parameters = parameters
        self._ends: OrderedDict[Nla, int] = OrderedDict()  # where each one's history ends
        self._pacers: dict[int, Pacer] = {}

    def answer(self, held: Held, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Say from where on it can be had."""
        first = self._first(held, now_ns)
        if first is None:
            said = Held(amount=0, answers=True, nothing=True)
        else:
            self._ends[peer] = self._path.lead + 1
            self._ends.move_to_end(peer)
            if len(self._ends) > _MOST_JOINERS:
                self._ends.popitem(last=False)
            said = Held(amount=wrap(first), answers=True)
        packet = encode(Spmr(tsi=self._path.tsi, data_port=self._path.data_port, options=(said,)))
        return (control(segment, packet, to=peer),)

    def _first(self, held: Held, now_ns: int) -> int | None:
        oldest = self._cache.store.oldest
        if oldest is None:
            return None
        lead = self._path.lead
        if held.by_sqn:
            wanted = unwrap(held.amount, lead)
        elif held.by_count:
            wanted = lead + 1 - held.amount
        elif held.by_time:
            since_ns = now_ns - held.amount * MILLISECOND
            before = [end for at_ns, end in self._cache.ages if at_ns < since_ns]
            wanted = before[-1] if before else oldest.first
        else:
            wanted = oldest.first
        return min(max(wanted, oldest.first), lead + 1)

    def is_history(self, peer: Nla, end: int) -> bool:
        """Whether a NAK for sqns before `end` is for this late joiner's history."""
        return end <= self._ends.get(peer, 0)

    def pacer(self, segment: Segment) -> Pacer:
        """The rate of all history on a segment."""
        found = self._pacers.get(segment.index)
        if found is None:
            slow = attrs.evolve(self._parameters, rdata_share=self._parameters.join_share)
            found = self._pacers[segment.index] = Pacer(slow)
        return found
