"""Late joiners at whoever serves them: which NAKs are for history, and whether it goes to one of them or to all.

History that one alone wants goes to it by unicast, so that nobody else on the segment hears of it. Where several have come since the segment
was last quiet, it goes to the segment: a hundred that come at once cost one copy, and an NCF keeps all but one from asking.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from pgm.core.effects import Send, control
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak, Spmr, encode
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory, find
from pgm.wire.sequence_numbers import wrap

_MOST_JOINERS = 1024  # remembered; what an older one asks for is judged as any NAK


def held_packet(state: SessionState, held: HeldHistory) -> bytes:
    """A question about history, or an answer."""
    return encode(Spmr(tsi=state.tsi, data_port=state.data_port, options=(held,)))


@attrs.define
class _Company:
    """Who asks for history on one segment since nobody did."""

    asked_ns: int
    alone: Nla | None


class HistoryServer:
    """The late joiners of one session at one node."""

    def __init__(self, state: SessionState, parameters: Parameters, nak_limits: NakLimits) -> None:
        self._state = state
        self._nak_limits = nak_limits
        self._quiet_ivl = parameters.open_hold_ivl
        self._ends: OrderedDict[Nla, int] = OrderedDict()  # where each one's history ends
        self._companies: dict[int, _Company] = {}  # by segment

    def tell(self, held: HeldHistory, first: int | None, segment: Segment, peer: Nla, now_ns: int) -> Send:
        """Answer a question: history begins with `first`, or there is none."""
        number = held.amount if held.by_time else 0
        said = HeldHistory(0, number, answers=True, by_time=held.by_time, nothing=True)
        if first is not None:
            said = HeldHistory(wrap(first), number, answers=True, by_time=held.by_time)
            self._ends[peer] = self._state.lead + 1
            self._ends.move_to_end(peer)
            if len(self._ends) > _MOST_JOINERS:
                self._ends.popitem(last=False)
            self._note(segment, peer, now_ns)
        return control(segment, held_packet(self._state, said), to=peer)

    def is_history(self, nak: Nak, segment: Segment, peer: Nla, end: int, now_ns: int) -> bool:
        """Whether a NAK for sqns before `end` is for a late joiner's history: it says so, whoever was here when it was promised."""
        is_said = bool(nak.options) and find(nak.options, HeldHistory) is not None
        if not is_said and end > self._ends.get(peer, 0):
            return False
        self._note(segment, peer, now_ns)
        return True

    def splits(self, peer: Nla, spans: Sequence[Span]) -> bool:
        """Whether a train of NAKs is for this late joiner's history in one part only."""
        return spans[0][0] < self._ends.get(peer, 0) < spans[-1][1]

    def _note(self, segment: Segment, peer: Nla, now_ns: int) -> None:
        company = self._companies.get(segment.index)
        if company is None or now_ns - company.asked_ns > self._quiet_ivl:
            self._companies[segment.index] = _Company(now_ns, peer)
            return
        company.asked_ns = now_ns
        if company.alone != peer:
            company.alone = None

    def alone(self, segment: Segment) -> Nla | None:
        """The only one that history on a segment is for; None where it goes to all."""
        company = self._companies.get(segment.index)
        return None if company is None else company.alone

    def gone(self, spans: list[Span], segment: Segment, now_ns: int) -> list[Send]:
        """Say that nobody holds these, so that nobody waits for them; as much as the brake on NCFs lets go, the rest is asked for again."""
        to = self.alone(segment)
        told = [
            HeldHistory(wrap(first), end - first, answers=True, by_sqn=True, nothing=True)
            for first, end in spans
            if self._nak_limits.admit_ncf(now_ns)
        ]
        return [control(segment, held_packet(self._state, one), to=to) for one in told]
