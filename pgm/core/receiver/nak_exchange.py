"""NAKs of one session, and the packets of other nodes that answer, suppress or forbid them."""

from __future__ import annotations

from pgm.core.effects import CloseCause, Effect, Effects, LossCause, control
from pgm.core.receiver.data_path import DataPath
from pgm.core.receiver.delivery import Delivery
from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.nak_control import NakControl, is_for_asker, unreachable_neighbour
from pgm.core.recovery.nak_self_limit import NakSelfLimit
from pgm.core.recovery.nak_sender import NO_SELF_LIMIT, NakSender, NoSelfLimit
from pgm.core.recovery.redirect import is_elsewhere, offered
from pgm.core.segment import Channel
from pgm.core.session_context import SessionContext
from pgm.wire.control_packets import Nak, Polr, Spm
from pgm.wire.formats import Nla, tsi_text


class NakExchange:
    """NAKs of one session, with the rules of parents, source and repairers for them."""

    def __init__(
        self,
        context: SessionContext,
        setup: ReceiverSetup,
        delivery: Delivery,
        data_path: DataPath,
        nak_sender: NakSender,
    ) -> None:
        self._setup = setup
        self._parameters = context.parameters
        self._counters = context.counters
        self._state = nak_sender.state
        self._recovery = nak_sender.recovery
        self._nak_sender = nak_sender
        self._delivery = delivery
        self._window = delivery.window
        self._data_path = data_path
        self.nak_control = NakControl(context, nak_sender.state, nak_sender.parents, nak_sender.recovery, setup.segment)
        self.self_limit: NakSelfLimit | NoSelfLimit = NO_SELF_LIMIT
        if context.parameters.excess_nak_window_ivl:
            self.self_limit = NakSelfLimit(f"session {tsi_text(context.tsi)}", self._recovery, context.parameters)
        self._is_unreliable = context.data_port in setup.unreliable_ports
        if self._is_unreliable:
            self._recovery.allow_asking(0)  # the stream's timers still run, but no NAKs are sent

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take a regular SPM: the path is known, and the parents may ask for other back-offs."""
        self._nak_sender.parents.learn_path(spm.path_nla)
        self.nak_control.on_spm(spm, now_ns)

    def on_ncf(self, ncf: Nak, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take an NCF from any node (RCV-34, RCV-43).

        The NCF suppresses NAKs for the same sqns. The NCF is no sign of the source: a cache confirms NAKs without one.
        An NCF that came by unicast, because its sender cannot be heard, is passed on to the other nodes of the subnet
        (RCV-53).
        """
        self._counters.ncf_packets_in += ncf.packets
        if not self._delivery.is_receiving or not self.nak_control.on_ncf(ncf, peer, now_ns):
            return ()
        self._nak_sender.parents.answered(peer)
        effects: list[Effect] = []
        is_ours_alone = not channel.is_group and channel.segment.peers is None
        if is_ours_alone and unreachable_neighbour(ncf) is not None:
            effects.append(control(channel.segment, ncf.octets, hops=1))
        if ncf.parity:
            self._recovery.confirmed(self._data_path.parity.answered(ncf), now_ns, peer)
            return effects
        for part in self._state.parts_of(ncf):
            spans = self._state.spans_of(part)
            effects += self._reveal(spans[-1][1], now_ns)
            self._recovery.confirmed(spans, now_ns, peer, is_for_asker=is_for_asker(ncf))
        return effects

    def _reveal(self, end: int, now_ns: int) -> Effects:
        """Note that all sqns below the end of an NCF were sent."""
        if end <= self._window.gap_detector.end or not self._state.reveals(end):
            return ()
        self._window.reveal(end, now_ns)
        self._state.revealed(end)
        return self._delivery.advance()

    def on_nak_heard(self, nak: Nak, now_ns: int) -> None:
        """Take another receiver's multicast NAK (RCV-35)."""
        if self._delivery.phase is SessionPhase.OPEN:
            spans = self._data_path.parity.answered(nak) if nak.parity else self._state.spans_of(nak)
            self._recovery.overheard(spans, now_ns)

    def on_offer(self, polr: Polr, peer: Nla) -> None:
        """Take a POLR that offers to take NAKs (RFC 9.5.4). A POLR is no NCF, so pending requests continue."""
        nla = offered(polr, peer)
        if nla is None or not self._parameters.honour_redirects or not is_elsewhere(nla, self._setup.segment):
            self._counters.redirects_ignored += 1
        elif self._nak_sender.follow_redirect(nla, has_parity=polr.parity):
            self._counters.redirects_taken += 1

    def review_own_naks(self, now_ns: int) -> Effects:
        """Return a notice if this receiver's excessive NAKs are over."""
        return self.self_limit.asked((), self._state.lead, now_ns)

    def send(self, now_ns: int) -> Effects:
        """Send NAKs for packets whose back-off is over, or give packets up."""
        if self._is_unreliable:
            self._window.give_up(self._recovery.give_up_due(now_ns), LossCause.UNREPAIRED)
            return self._delivery.advance()
        limit = self.self_limit
        limit.begin(self._state.lead, now_ns)
        naks, actions = self._nak_sender.ask(self._setup.segment, now_ns, limit)
        has_given_up = self._window.end_asking(actions, self._state.trail)
        if limit.wants_close:
            return [*naks, *self._delivery.end(CloseCause.EXCESS_NAKS)]
        return [*naks, *self._delivery.advance()] if has_given_up else naks
