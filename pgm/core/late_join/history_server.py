"""Late joiners at a node that serves them.

The server decides which NAKs are for history, and whether history goes to one joiner or to the segment. A single joiner
gets history by unicast, so that no other node on the segment receives it. If several joiners came since the segment was
last idle, history goes to the segment. A hundred simultaneous joiners then cost one copy, and an NCF suppresses the
NAKs of all but one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import attrs

from pgm.core.effects import Send, control
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spmr, encode
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import HeldHistory, find
from pgm.wire.sequence_numbers import wrap

_MOST_JOINERS = 1024  # remembered joiners; NAKs of an older joiner are treated as any NAK


class HistorySession(Protocol):
    """Session whose history is served."""

    @property
    def tsi(self) -> Tsi:
        """Session of the packets."""

    @property
    def data_port(self) -> int:
        """Data port of the stream."""

    @property
    def lead(self) -> int:
        """Newest sqn known to be sent."""


def held_packet(state: HistorySession, held: HeldHistory) -> bytes:
    """Return a request for history, or an answer."""
    return encode(Spmr(tsi=state.tsi, data_port=state.data_port, options=(held,)))


def _unless_own(peer: Nla | None, segment: Segment) -> Nla | None:
    """Return a joiner's address; None, for the segment, if it is the own one: a unicast packet would come back."""
    return None if peer == segment.address else peer


@attrs.define
class _Requesters:
    """The joiners of one segment since the segment was last idle."""

    requested_ns: int
    alone: Nla | None


class HistoryServer:
    """The late joiners of one session at one node."""

    def __init__(self, state: HistorySession, parameters: Parameters, nak_limits: NakLimits) -> None:
        self._state = state
        self._nak_limits = nak_limits
        self._quiet_ivl = parameters.open_hold_ivl
        self._ends: OrderedDict[Nla, int] = OrderedDict()  # the end of each joiner's history
        self._requesters: dict[int, _Requesters] = {}  # by segment

    def tell(self, held: HeldHistory, first: int, segment: Segment, peer: Nla, now_ns: int) -> Send:
        """Answer a request: history begins with `first`; NEVER if there is none."""
        number = held.amount if held.by_time else 0
        answer = HeldHistory(0, number, answers=True, by_time=held.by_time, nothing=True)
        if first != NEVER:
            answer = HeldHistory(wrap(first), number, answers=True, by_time=held.by_time)
            self._ends[peer] = self._state.lead + 1
            self._ends.move_to_end(peer)
            if len(self._ends) > _MOST_JOINERS:
                self._ends.popitem(last=False)
            self._note(segment, peer, now_ns)
        return control(segment, held_packet(self._state, answer), to=_unless_own(peer, segment))

    def is_history(self, nak: Nak, segment: Segment, peer: Nla, end: int, now_ns: int) -> bool:
        """Return whether a NAK for sqns before `end` is for a late joiner's history.

        The NAK carries the option, or comes from a joiner whose promised history covers its sqns.
        """
        is_said = bool(nak.options) and find(nak.options, HeldHistory) is not None
        if not is_said and end > self._ends.get(peer, 0):
            return False
        self._note(segment, peer, now_ns)
        return True

    def splits(self, peer: Nla, spans: Sequence[Span]) -> bool:
        """Return whether only a part of a train of NAKs is for this joiner's history."""
        return spans[0][0] < self._ends.get(peer, 0) < spans[-1][1]

    def _note(self, segment: Segment, peer: Nla, now_ns: int) -> None:
        requesters = self._requesters.get(segment.index)
        if requesters is None or now_ns - requesters.requested_ns > self._quiet_ivl:
            self._requesters[segment.index] = _Requesters(now_ns, peer)
            return
        requesters.requested_ns = now_ns
        if requesters.alone != peer:
            requesters.alone = None

    def alone(self, segment: Segment) -> Nla | None:
        """Return the only joiner of a segment; None if history goes to the whole segment."""
        requesters = self._requesters.get(segment.index)
        return None if requesters is None else _unless_own(requesters.alone, segment)

    def gone(self, spans: list[Span], segment: Segment, now_ns: int) -> list[Send]:
        """Announce that no node holds these spans, so that no node waits for them.

        The number of announcements is limited like NCFs. The remaining spans will be requested again.
        """
        to = self.alone(segment)
        answers = [
            HeldHistory(wrap(first), end - first, answers=True, by_sqn=True, nothing=True)
            for first, end in spans
            if self._nak_limits.admit_ncf(now_ns)
        ]
        return [control(segment, held_packet(self._state, answer), to=to) for answer in answers]
