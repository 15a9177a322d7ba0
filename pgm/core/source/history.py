"""Late joiners of a source: history from the transmit window, for receivers that know no repairer.

History takes `join_share` of the source's rate, within the share of repairs. The window moves on meanwhile. History of
`join_share` of a full window is sent in the time in which the window passes that history. Half as much is promised.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs

from pgm.core.effects import NOTHING, Effects, Send
from pgm.core.late_join.history_server import HistoryServer
from pgm.core.late_join.upstream_history import begins_at
from pgm.core.pacing.pacer import Pacer
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.repair.outlets import TO_JOINERS, Outlets
from pgm.core.repair.responder import Responder
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.core.window.transmit_window import TransmitWindow
from pgm.units import MILLISECOND, NEVER
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import HeldHistory

_PROMISED = 0.5  # of the history that could be sent in time: requests and other repairs take time too


def _always(pacer: Pacer, _segment: Segment) -> Pacer:
    return pacer


class SourceHistory:
    """History of one stream at its source."""

    def __init__(
        self, context: SessionContext, segment: Segment, window: TransmitWindow, pacer: Pacer, limits: NakLimits
    ) -> None:
        self.tsi: Tsi = context.tsi
        self.data_port = context.data_port
        self._window = window
        self._segment = segment
        self._limits = limits
        self._promised_octets = round(window.capacity.octets * context.parameters.join_share * _PROMISED)
        self._server = HistoryServer(self, context.parameters, limits)
        self._slow = Pacer(attrs.evolve(context.parameters, rdata_share=context.parameters.join_share))
        self._outlets = Outlets(context, window, (segment,), (pacer,), functools.partial(_always, self._slow))

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Send history at its share of another total rate, in octets per second."""
        self._slow.set_rate(rate, now_ns)

    @property
    def lead(self) -> int:
        """Return the newest sqn that was sent."""
        return self._window.lead

    @property
    def ready_ns(self) -> int:
        """When a packet of history may be sent; NEVER when none is owed."""
        return self._outlets.ready_ns

    def on_question(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Answer where the requested history begins, within what can be sent in time."""
        if not self._limits.admit_nak(peer, now_ns):
            return NOTHING
        window = self._window
        oldest = NEVER
        if window.trail <= window.lead:
            oldest = max(window.trail, window.first_within(self._promised_octets))
            if held.by_time:
                oldest = max(oldest, window.sent_since(held.amount * MILLISECOND, now_ns))
        return (self._server.tell(held, begins_at(held, oldest, window.lead), self._segment, peer, now_ns),)

    def covers(self, nak: Nak, peer: Nla, end: int, now_ns: int) -> bool:
        """Return whether a NAK for sqns before `end` is for history."""
        return self._server.is_history(nak, self._segment, peer, end, now_ns)

    def request(self, spans: Sequence[Span], peer: Nla, now_ns: int) -> list[Send]:
        """Owe history. Return the announcements of sqns that have left the window."""
        joiner = self._server.alone(self._segment)
        responder = self._outlets.responder(self._segment, joiner or TO_JOINERS, is_history=True)
        gone = responder.request(spans, now_ns, asker=peer)
        return self._server.gone(gone, self._segment, now_ns) if gone else []

    def responder_of(self, child: Nla) -> Responder:
        """Return the repairs for one node, which are paced like all repairs."""
        return self._outlets.responder(self._segment, child, is_history=False)

    def owes_alone(self, first: int, end: int) -> bool:
        """Return whether a repair of any of `first` to `end - 1` is owed to one node alone. History does not count."""
        return self._outlets.owes(first, end)

    def joiner(self) -> Nla | None:
        """Return the only joiner, who gets NCFs alone; None if all receivers get them."""
        return self._server.alone(self._segment)

    def next_train(self, now_ns: int) -> Send | None:
        """Return one train of history if one is due and the rate allows it."""
        return self._outlets.next_train(self._window.trail, now_ns)
