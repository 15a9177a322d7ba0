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
from pgm.core.congestion.link_reports import ALL_LOST, CHANGE, LinkReports, moved, rounded
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


class Reporter:
    """Reports of one receiver about its losses in one session."""

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
        self._parameters = context.parameters
        self._rng = context.rng
        self._counters = context.counters
        self._is_missing = is_missing
        self.loss = 0.0
        self.is_acker = False
        self._wanted: Crqst | None = None
        self._first = 0
        self._next: int | None = None  # one more than the newest sqn
        self._newest_ns = 0
        self._due_ns = NEVER
        self._has_left = False

    @property
    def deadline_ns(self) -> int:
        """Return when to report because there is no acker, or a new one."""
        return self._due_ns

    @property
    def options(self) -> tuple[Cr, ...]:
        """Return the option of every NAK, if the source wants reports (CC-02).

        The values are those at the departure of the NAK.
        """
        wanted = self._wanted
        if wanted is None:
            return ()
        return (
            Cr(
                lead=wrap(self._state.lead),
                ne_wl=0,
                ne_wp=0,
                rx_wp=rounded(self.loss) if wanted.wants_rx_wp else 0,
                receiver=self._segment.address,
                has_ne_wl=wanted.wants_ne_wl,
                has_ne_wp=wanted.wants_ne_wp,
                has_rx_wp=wanted.wants_rx_wp,
            ),
        )

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take the acker and the wanted reports from an SPM."""
        wanted, acker = find(spm.options, Crqst), find(spm.options, Acker)
        self._wanted = wanted
        if acker is None or self._has_left:
            return
        was_acker, self.is_acker = self.is_acker, acker.acker == self._segment.address
        if acker.acker not in _NO_ACKER:
            # A new acker sends an ack at once, because the source may have no token left for a packet.
            is_new = self.is_acker and not was_acker and self._next is not None
            self._due_ns = now_ns if is_new else NEVER
        elif self._due_ns == NEVER and self._next is not None:
            # A random delay spreads the reports of thousands of receivers, and the first one elects the acker (CC-37).
            self._due_ns = now_ns + self._rng.randint(0, self._parameters.cc_bo_ivl)

    def on_data(self, first: int, end: int, now_ns: int) -> Effects:
        """Count the losses before these data.

        The acker acknowledges data and repairs at once (CC-42). In a window of a few packets a lost packet is not
        followed by three others. Only the ack of its repair then avoids a timeout.
        """
        if self._next is None:
            self._first = self._next = first
        if end > self._next:
            missed, got = max(0, first - self._next), end - max(first, self._next)
            self.loss = moved(self.loss, missed, got)
            self._next, self._newest_ns = end, now_ns
        return (self._ack(now_ns, self._bitmap(self._next - 1)),) if self.is_acker else NOTHING

    def _bitmap(self, rx_max: int) -> int:
        most = min(MAP_BITS, rx_max + 1 - self._first)
        return sum(1 << back for back in range(most) if not self._is_missing(rx_max - back))

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send the due report.

        Without an acker this receiver is a candidate. A new acker sends its first ack.
        """
        if now_ns < self._due_ns or self._next is None:
            return NOTHING
        self._due_ns = NEVER
        return (self._ack(now_ns, self._bitmap(self._next - 1) if self.is_acker else 0),)

    def leave(self, now_ns: int) -> Effects:
        """Stop reports.

        An acker says goodbye, so that the source does not wait for its acks (CC-39).
        """
        was_acker, self.is_acker, self._has_left, self._due_ns = self.is_acker, False, True, NEVER
        return (self._ack(now_ns, 0, leaves=True),) if was_acker and self._next is not None else NOTHING

    def _ack(self, now_ns: int, bitmap: int, *, leaves: bool = False) -> Effect:
        self._counters.cc_reports += 1
        assert self._next is not None
        held_ns, own = now_ns - self._newest_ns, self._segment.address
        packet = report_packet(self._state, self._next - 1, bitmap, self.loss, own, held_ns, leaves=leaves)
        return control(self._segment, packet, to=self._parents.current)


class WorstReport:
    """Worst report of losses below one element in a session (CC-04, CC-05, CC-08)."""

    def __init__(self) -> None:
        self.acker: Nla | None = None
        self.loss = 0.0
        self.receiver: Nla = ""
        self._sqn = 0
        self._sent: tuple[float, Nla] | None = None

    def on_spm(self, spm: Spm) -> None:
        """Take the acker from an SPM. The acker's acks pass unchanged."""
        acker = find(spm.options, Acker)
        if acker is None:
            return
        if acker.acker in _NO_ACKER:
            self._sent = None  # the source needs any report, so the next one counts as news
        self.acker = acker.acker

    def forget(self, receiver: Nla) -> None:
        """Forget the report of a receiver that leaves."""
        if receiver == self.receiver:
            self.loss, self.receiver, self._sent = 0.0, "", None

    def hear(self, loss: float, receiver: Nla, sqn: int) -> bool:
        """Take a report.

        Return whether the worst report now differs from the last one passed on (CC-15).
        """
        passed = max(0, sqn - self._sqn)
        aged = self.loss * math.exp(-passed * self.loss / 2)
        self._sqn = max(self._sqn, sqn)
        if loss >= aged or receiver == self.receiver:
            self.loss, self.receiver = loss, receiver
        else:
            self.loss = aged
        if self._sent is None:
            is_new = True
        else:
            before, receiver_before = self._sent
            is_other = receiver_before != self.receiver and self.loss > before
            is_new = is_other or abs(self.loss - before) > CHANGE * before
        if is_new:
            self._sent = (self.loss, self.receiver)
        return is_new


class ReportRelay:
    """Relay of reports at one element in one session."""

    def __init__(self, state: SessionState, parents: Parents, up: Segment, counters: Counters) -> None:
        self._state = state
        self._parents = parents
        self._up = up
        self._counters = counters
        self.links = LinkReports()
        self.wanted: Crqst | None = None
        self._worst: WorstReport | None = None  # None before an SPM with OPT_ACKER

    def on_spm(self, spm: Spm) -> None:
        """Take the request for reports, and the acker, from an SPM."""
        self.wanted = find(spm.options, Crqst)
        if self._worst is None and find(spm.options, Acker) is not None:
            self._worst = WorstReport()
        if self._worst is not None:
            self._worst.on_spm(spm)

    def on_ack(self, ack: Ack, feedback: PgmccFeedback) -> Effects:
        """Pass up an ack of the acker, or another receiver's report if it is news.

        Both are unchanged.
        """
        worst = self._worst
        if worst is None or not self._state.has_edges or self._parents.current is None:
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
        """Pass up the report in a NAK's OPT_CR, if it is news (CC-15).

        The NAK itself is handled elsewhere.
        """
        cr, worst = find(nak.options, Cr), self._worst
        if cr is not None and worst is not None:
            self.links.heard(cr, self._state.lead)
        if cr is None or worst is None or not cr.has_rx_wp or self._parents.current is None:
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
        """Return a NAK with the worst known report, and whether it must go up (NE-35).

        A NAK must go up if its links are news.
        """
        cr = find(nak.options, Cr)
        if cr is None or self.wanted is None:
            return nak, False
        sqn = self._state.lead
        worst, is_known = self._worst, can_acknowledge(cr.receiver)
        new, is_news = self.links.renewed(cr, sqn)
        if cr.has_rx_wp and worst is not None and worst.receiver and (worst.loss > cr.rx_wp / ALL_LOST or not is_known):
            new = attrs.evolve(new, rx_wp=rounded(worst.loss), receiver=worst.receiver)
        options = tuple(new if option is cr else option for option in nak.options if nak.type in option.CARRIERS)
        return attrs.evolve(nak, options=options, octets=b""), is_news

    def sent(self, nak: Nak) -> None:
        """Note that a NAK with OPT_CR went up."""
        cr = find(nak.options, Cr)
        if cr is not None and self.wanted is not None:
            self.links.sent(cr, self._state.unwrap(cr.lead))

    @property
    def nak_options(self) -> Options:
        """Return the options of the element's own NAKs (CC-06, CC-07).

        The options hold the worst known reports.
        """
        worst, wanted = self._worst, self.wanted
        if worst is None or wanted is None:
            return NO_OPTIONS
        sqn, is_known = self._state.lead, bool(worst.receiver)
        own = Cr(
            lead=wrap(sqn),
            ne_wl=rounded(self.links.link_below.aged(sqn)),
            ne_wp=rounded(self.links.path_below.aged(sqn)),
            rx_wp=rounded(worst.loss) if is_known and wanted.wants_rx_wp else 0,
            receiver=worst.receiver or self._up.address,
            has_ne_wl=wanted.wants_ne_wl,
            has_ne_wp=wanted.wants_ne_wp,
            has_rx_wp=wanted.wants_rx_wp and is_known,
        )
        new, _ = self.links.renewed(own, sqn)
        self.links.sent(new, sqn)
        return (new,)
