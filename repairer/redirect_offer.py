"""Offers of a repairer: as repairer upstream, off the tree, or both (RFC 9.5.2).

An upstream repairer hears its parent's NCFs. The NCFs show that other nodes of the segment have lost packets that the
parent repairs. The repairer sends a redirecting POLR to say that these nodes may send NAKs to it.

An off-tree repairer has answered the parent's search. The repairs are for segments that the repairer is not on, and
travel by unicast through the parent. To all other nodes, these repairs look like repairs from upstream. In both cases,
null NAKs tell the source which packets it need not repair.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.poll_responder import PollResponder
from pgm.core.recovery.nak_packets import nak_packets
from pgm.core.recovery.recovery import Recovery
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.wire.control_packets import Polr, encode
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import Redirect


def searches_answered(setup: ElementSetup, parameters: Parameters) -> Nla | None:
    """Return the address that answers polls for repairers; None without an offer."""
    return setup.up.address if not setup.is_relay and parameters.dlr_mode in ("off-tree", "both") else None


class RedirectOffer:
    """The offers of one session's repairer."""

    def __init__(
        self, context: SessionContext, state: SessionState, setup: ElementSetup, answers: PollResponder
    ) -> None:
        self._state = state
        self._segment = setup.up
        self._answers = answers
        self._parameters = context.parameters
        self._counters = context.counters
        self._is_upstream = not setup.is_relay and context.parameters.dlr_mode in ("upstream", "both")
        self.has_parity = False  # whether this node can repair the session by parity
        self._is_redirecting = False  # whether some node was redirected here
        self._free_at_ns = 0

    def on_ncf(self, spans: Iterable[Span], recovery: Recovery, now_ns: int) -> Effects:
        """Offer repairs after a parent's NCF for another node's NAK (DLR-04, DLR-05).

        At most one offer is sent in `redirect_ivl`. An offer holds until the repairer fails.
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
        """Return whether this peer's search was answered: its NAKs are for other segments (DLR-10, DLR-13)."""
        return peer in self._answers.searched_by

    def null_naks(self, repaired: Iterable[Span], to: Nla | None) -> list[Effect]:
        """Return null NAKs that report repairs made here (DLR-07). Null NAKs travel hop by hop to the source."""
        if to is None or not (self._is_redirecting or self._answers.searched_by or self._parameters.null_naks):
            return []
        return self._to_parent(repaired, PacketType.NNAK, to)

    def turn_down(self, lacking: Iterable[Span], to: Nla) -> list[Effect]:
        """Return NAKs that tell a parent at once to send its NAKs elsewhere (DLR-14)."""
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
    """Return whether an own NAK is in flight for some of these sqns."""
    return any(recovery.has_asked(first, end) for first, end in spans)
