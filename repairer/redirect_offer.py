"""A repairer that offers itself: designated local repairer upstream, off the tree, or both (RFC 9.5.2).

Upstream it hears its parent's NCFs: others on the segment have lost something that the parent answers for, so it says by a
redirecting POLR that they may ask here. Off the tree it has answered the parent's search, and repairs for segments that it
does not sit on: by unicast through the parent, which looks like a repair from above to everybody else. Either way
the source is told by null NAKs what it need not repair.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.poll_responder import PollResponder
from pgm.core.recovery.nak_packets import nak_packets
from pgm.core.recovery.recovery import Recovery
from pgm.core.session.state import SessionState
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.wire.control_packets import Polr, encode
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import Redirect


def searches_answered(setup: ElementSetup, parameters: Parameters) -> Nla | None:
    """The address that polls for repairers are answered with; None where the node offers none."""
    return setup.up.address if not setup.is_relay and parameters.dlr_mode in ("off-tree", "both") else None


class RedirectOffer:
    """What one session's repairer has offered, and to whom."""

    def __init__(
        self,
        state: SessionState,
        setup: ElementSetup,
        answers: PollResponder,
        parameters: Parameters,
        counters: Counters,
    ) -> None:
        self._state = state
        self._segment = setup.up
        self._answers = answers
        self._parameters = parameters
        self._counters = counters
        self._is_upstream = not setup.is_relay and parameters.dlr_mode in ("upstream", "both")
        self.has_parity = False  # whether the session can be repaired by parity here
        self._is_redirecting = False  # whether anybody was told to ask here
        self._free_at_ns = 0

    def on_ncf(self, spans: Iterable[Span], recovery: Recovery, now_ns: int) -> Effects:
        """An NCF of the parent that answers somebody else's NAK: whoever sent it may ask here next time (DLR-04, DLR-05).

        At most one offer in `redirect_ivl`: it holds until it fails.
        """
        if not self._is_upstream or now_ns < self._free_at_ns or _is_own(spans, recovery):
            return NOTHING
        self._free_at_ns = now_ns + self._parameters.redirect_ivl
        self._is_redirecting = True
        self._counters.redirects_sent += 1
        offer = Polr(
            tsi=self._state.tsi,
            data_port=self._state.data_port,
            poll_sqn=0,  # it answers no poll (E-17)
            poll_round=0,
            parity=self.has_parity,
            options=(Redirect(dlr_nla=self._segment.address),),
        )
        return (control(self._segment, encode(offer)),)

    def is_off_tree_for(self, peer: Nla) -> bool:
        """Whether this peer's search was answered: its NAKs are for segments we do not sit on (DLR-10, DLR-13)."""
        return peer in self._answers.searched_by

    def null_naks(self, repaired: Iterable[Span], to: Nla | None) -> list[Effect]:
        """Tell the source, hop by hop, what is repaired here (DLR-07)."""
        if to is None or not (self._is_redirecting or self._answers.searched_by or self._parameters.null_naks):
            return []
        return self._to_parent(repaired, PacketType.NNAK, to)

    def turn_down(self, lacking: Iterable[Span], to: Nla) -> list[Effect]:
        """Tell a parent at once that it must ask elsewhere (DLR-14)."""
        return self._to_parent(lacking, PacketType.NAK, to)

    def _to_parent(self, spans: Iterable[Span], kind: PacketType, to: Nla) -> list[Effect]:
        naks: list[Effect] = []
        for listed in nak_packets(self._state, self._segment.group, tuple(spans), kind):
            if kind is PacketType.NNAK:
                self._counters.nnak_packets += listed.packets
            else:
                self._counters.nak_packets += listed.packets
                self._counters.nak_sqns += listed.sqns
            naks.append(listed.send(self._segment, to))
        return naks


def _is_own(spans: Iterable[Span], recovery: Recovery) -> bool:
    """Whether a NAK of our own is under way for some of these sqns."""
    return any(recovery.has_asked(first, end) for first, end in spans)
