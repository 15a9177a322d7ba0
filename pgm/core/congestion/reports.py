"""Reports of congestion below a source with congestion control (RFC 12; PGMCC 4).

The loss rate of a receiver is a moving average over sqns. The acker acknowledges every train at once. Other receivers
report their loss rates on NAKs (OPT_CR). An element ages the worst report by the sqns since then. The element passes the
report on if it differs by more than a twentieth from the last one. The answer of a local repairer therefore hides no
congestion.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from pgm.core.congestion.control import can_acknowledge, says_goodbye
from pgm.core.congestion.link_reports import ALL_LOST, CHANGE, LinkLoss, LinkReports, LossReport, rounded
from pgm.core.congestion.window import MAP_BITS
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, control
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.units import MILLISECOND, NEVER
from pgm.wire.control_packets import Ack, Nak, Spm, encode
from pgm.wire.formats import AFI_IPV4, AFI_IPV6, Nla
from pgm.wire.options import NO_OPTIONS, Acker, Cr, Crqst, Members, Option, Options, PgmccFeedback, find
from pgm.wire.sequence_numbers import wrap

_NO_ACKER = frozenset({"0.0.0.0", "::"})
_NOT_SENT = (-math.inf, "")  # any report is news
_NOTHING_WANTED = Crqst()  # compared by identity: an SPM without OPT_CRQST
_NO_REPORT = Cr(lead=0, ne_wl=0, ne_wp=0, rx_wp=0, receiver="0.0.0.0")  # of a NAK without OPT_CR


def report_packet(
    state: SessionState, sqn: int, bitmap: int, loss: float, reporter: Nla, held_ns: int = 0, *, leaves: bool = False
) -> bytes:
    """Return an ack with PGMCC feedback.

    With an empty map the packet is a report and acknowledges nothing (CC-31). `loss` is a loss rate, 0 to 1. With
    `leaves` the reporter leaves, and another acker must be elected (CC-39).
    """
    feedback = PgmccFeedback(
        timestamp_ms=held_ns // MILLISECOND,
        afi=AFI_IPV6 if ":" in reporter else AFI_IPV4,
        loss_rate=round(min(1.0, loss) * ALL_LOST),
        reporter=reporter,
    )
    options: tuple[Option, ...] = (feedback,)
    if leaves:
        options += (Members(members=0, holder=reporter, leaves=True),)
    return encode(Ack(tsi=state.tsi, data_port=state.data_port, rx_max=wrap(sqn), bitmap=bitmap, options=options))


def _report_option(wanted: Crqst, sqn: int, loss: float, receiver: Nla, link: float = 0.0, path: float = 0.0) -> Cr:
    """Return the reports of a NAK that the source wants (CC-02). The losses are 0 to 1."""
    return Cr(
        lead=wrap(sqn),
        ne_wl=rounded(link),
        ne_wp=rounded(path),
        rx_wp=rounded(loss) if wanted.wants_rx_wp else 0,
        receiver=receiver,
        has_ne_wl=wanted.wants_ne_wl,
        has_ne_wp=wanted.wants_ne_wp,
        has_rx_wp=wanted.wants_rx_wp,
    )


class Reporter:
    """Reports of one receiver about its losses in one session; idle until an SPM has OPT_ACKER."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        segment: Segment,
        is_missing: Callable[[int], bool],
    ) -> None:
        self._state = state
        self._parents = parents
        self._segment = segment
        self._bo_ivl = context.parameters.cc_bo_ivl
        self._rng = context.rng
        self._counters = context.counters
        self._is_missing = is_missing
        self.is_wanted = False
        self.is_acker = False
        self.deadline_ns = NEVER  # when to report because there is no acker, or a new one
        self._wanted = _NOTHING_WANTED
        self._link = LinkLoss()
        self._newest_ns = 0
        self._has_left = False

    @property
    def loss(self) -> float:
        """Return the loss rate, 0 to 1."""
        return self._link.loss

    @property
    def options(self) -> tuple[Cr, ...]:
        """Return the option of every NAK at its departure, if the source wants reports (CC-02)."""
        if self._wanted is _NOTHING_WANTED:
            return ()
        return (_report_option(self._wanted, self._state.lead, self.loss, self._segment.address),)

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take the acker and the wanted reports from an SPM."""
        acker = find(spm.options, Acker)
        self.is_wanted = self.is_wanted or acker is not None
        if self.is_wanted:
            self._wanted = find(spm.options, Crqst) or _NOTHING_WANTED
        if acker is None or self._has_left:
            return
        was_acker, self.is_acker = self.is_acker, acker.acker == self._segment.address
        has_data = self._link.end >= 0
        if acker.acker not in _NO_ACKER:
            # A new acker sends an ack at once, because the source may have no token left for a packet.
            self.deadline_ns = now_ns if has_data and self.is_acker and not was_acker else NEVER
        elif has_data and self.deadline_ns == NEVER:
            # A random delay spreads the reports of thousands of receivers, and the first one elects the acker (CC-37).
            self.deadline_ns = now_ns + self._rng.randint(0, self._bo_ivl)

    def on_data(self, first: int, end: int, now_ns: int) -> Effects:
        """Count the losses before these data.

        The acker acknowledges data and repairs at once (CC-42). In a window of a few packets a lost packet is not
        followed by three others. Only the ack of its repair then avoids a timeout.
        """
        if self._link.came(first, end):
            self._newest_ns = now_ns
        return (self._ack(now_ns, self._bitmap()),) if self.is_acker else NOTHING

    def _bitmap(self) -> int:
        rx_max = self._link.end - 1
        most = min(MAP_BITS, self._link.end - self._link.first)
        return sum(1 << back for back in range(most) if not self._is_missing(rx_max - back))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send the due report. Without an acker this receiver is a candidate. A new acker sends its first ack."""
        if now_ns < self.deadline_ns:
            return NOTHING
        self.deadline_ns = NEVER
        return (self._ack(now_ns, self._bitmap() if self.is_acker else 0),)

    def leave(self, now_ns: int) -> Effects:
        """Stop reports. An acker says goodbye, so that the source does not wait for its acks (CC-39)."""
        was_acker, self.is_acker, self._has_left, self.deadline_ns = self.is_acker, False, True, NEVER
        return (self._ack(now_ns, 0, leaves=True),) if was_acker and self._link.end >= 0 else NOTHING

    def _ack(self, now_ns: int, bitmap: int, *, leaves: bool = False) -> Effect:
        self._counters.cc_reports += 1
        held_ns, own = now_ns - self._newest_ns, self._segment.address
        packet = report_packet(self._state, self._link.end - 1, bitmap, self.loss, own, held_ns, leaves=leaves)
        return control(self._segment, packet, to=self._parents.current)


class WorstReport:
    """Worst report of losses below one element in a session (CC-04, CC-05, CC-08)."""

    def __init__(self) -> None:
        self.acker: Nla = ""  # empty before an SPM with OPT_ACKER
        self.receiver: Nla = ""
        self._report = LossReport()
        self._sent = _NOT_SENT

    @property
    def loss(self) -> float:
        """Return the loss rate of the worst receiver."""
        return self._report.loss

    def on_spm(self, spm: Spm) -> None:
        """Take the acker from an SPM. The acker's acks pass unchanged."""
        acker = find(spm.options, Acker)
        if acker is None:
            return
        if acker.acker in _NO_ACKER:
            self._sent = _NOT_SENT  # the source needs any report, so the next one counts as news
        self.acker = acker.acker

    def forget(self, receiver: Nla) -> None:
        """Forget the report of a receiver that leaves."""
        if receiver == self.receiver:
            self._report.loss, self.receiver, self._sent = 0.0, "", _NOT_SENT

    def hear(self, loss: float, receiver: Nla, sqn: int) -> bool:
        """Take a report. Return whether the worst report now differs from the last one passed on (CC-15)."""
        aged = self._report.aged(sqn)
        if loss >= aged or receiver == self.receiver:
            aged, self.receiver = loss, receiver
        self._report.record(aged, sqn)
        before, receiver_before = self._sent
        is_other = receiver_before != self.receiver and self.loss > before
        is_new = is_other or abs(self.loss - before) > CHANGE * before
        if is_new:
            self._sent = (self.loss, self.receiver)
        return is_new


class ReportRelay:
    """Relay of reports at one element in one session; idle until an SPM has OPT_ACKER."""

    def __init__(self, state: SessionState, parents: Parents, up: Segment, counters: Counters) -> None:
        self._state = state
        self._parents = parents
        self._up = up
        self._counters = counters
        self._links = LinkReports()
        self._wanted = _NOTHING_WANTED
        self._worst = WorstReport()

    def on_spm(self, spm: Spm) -> None:
        """Take the request for reports, and the acker, from an SPM."""
        self._wanted = find(spm.options, Crqst) or _NOTHING_WANTED
        self._worst.on_spm(spm)

    def came(self, first: int, end: int) -> None:
        """Note ODATA from above."""
        if self._wanted is not _NOTHING_WANTED:
            self._links.above.came(first, end)

    def on_ack(self, ack: Ack, feedback: PgmccFeedback) -> Effects:
        """Pass up an ack of the acker, or another receiver's report if it is news. Both are unchanged."""
        worst = self._worst
        if not worst.acker or not self._state.has_edges or self._parents.current is None:
            self._counters.foreign_packets += 1
            return NOTHING
        sqn = self._state.unwrap(ack.rx_max)
        loss = feedback.loss_rate / ALL_LOST
        if not can_acknowledge(feedback.reporter):
            self._counters.cc_reports_refused += 1
            return NOTHING
        if says_goodbye(ack):
            worst.forget(feedback.reporter)
            is_news = False
        else:
            is_news = self._state.reveals(sqn + 1) and worst.hear(loss, feedback.reporter, sqn)
        if feedback.reporter != worst.acker and not is_news:
            return NOTHING
        self._counters.cc_reports += 1
        return (control(self._up, ack.octets, to=self._parents.current),)

    def on_nak(self, nak: Nak) -> Effects:
        """Pass up the report in a NAK's OPT_CR, if it is news (CC-15). The NAK itself is handled elsewhere."""
        cr, worst = find(nak.options, Cr) or _NO_REPORT, self._worst
        if not worst.acker:
            return NOTHING
        self._links.below.heard(cr, self._state.lead)
        if not cr.has_rx_wp or self._parents.current is None:
            return NOTHING
        if not can_acknowledge(cr.receiver):
            self._counters.cc_reports_refused += 1
            return NOTHING
        sqn = min(self._state.unwrap(cr.lead), self._state.lead)
        if not worst.hear(cr.rx_wp / ALL_LOST, cr.receiver, sqn):
            return NOTHING
        self._counters.cc_reports += 1
        packet = report_packet(self._state, sqn, 0, worst.loss, worst.receiver)
        return (control(self._up, packet, to=self._parents.current),)

    def renewed(self, nak: Nak) -> tuple[Nak, bool]:
        """Return a NAK with the worst known report, and whether it must go up (NE-35) because its links are news."""
        cr = find(nak.options, Cr)
        if cr is None or self._wanted is _NOTHING_WANTED:
            return nak, False
        worst, is_known = self._worst, can_acknowledge(cr.receiver)
        new, is_news = self._links.renewed(cr, self._state.lead)
        if cr.has_rx_wp and worst.receiver and (worst.loss > cr.rx_wp / ALL_LOST or not is_known):
            new = attrs.evolve(new, rx_wp=rounded(worst.loss), receiver=worst.receiver)
        options = tuple(new if option is cr else option for option in nak.options if nak.type in option.CARRIERS)
        return attrs.evolve(nak, options=options, octets=b""), is_news

    def sent(self, nak: Nak) -> None:
        """Note that a NAK with OPT_CR went up."""
        cr = find(nak.options, Cr) or _NO_REPORT
        if self._wanted is not _NOTHING_WANTED:
            self._links.sent(cr, self._state.unwrap(cr.lead))

    @property
    def nak_options(self) -> Options:
        """Return the options of the element's own NAKs (CC-06, CC-07). The options hold the worst known reports."""
        worst, wanted, sqn = self._worst, self._wanted, self._state.lead
        if wanted is _NOTHING_WANTED or not worst.acker:
            return NO_OPTIONS
        if not worst.receiver:
            wanted = attrs.evolve(wanted, wants_rx_wp=False)
        link, path = self._links.below.link.aged(sqn), self._links.below.path.aged(sqn)
        own = _report_option(wanted, sqn, worst.loss, worst.receiver or self._up.address, link, path)
        new, _ = self._links.renewed(own, sqn)
        self._links.sent(new, sqn)
        return (new,)
