"""Congestion control of a source (flow = "pgmcc"): acker election and window.

The source elects the receiver with the worst path as acker, and sends at the rate that the acker's acks allow. Reports
arrive in acks of the acker, in NAKs with OPT_CR, and in acks with an empty map. Elements use the latter to pass on
reports. Round trips are measured by sqns (implicit time stamps, draft 2.5.2). SPMs name the acker, so data packets are
the same as in any other stream.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import OrderedDict

from pgm.core.congestion.acker_check import RTT_WEIGHT, AckerCheck
from pgm.core.congestion.link_reports import ALL_LOST, LossReport
from pgm.core.congestion.window import CongestionWindow, slowness
from pgm.core.effects import Notice
from pgm.core.session_context import SessionContext
from pgm.core.status import CongestionStatus
from pgm.units import MILLISECOND, NEVER, SECOND, format_duration
from pgm.wire.control_packets import Ack, Nak
from pgm.wire.formats import Nla
from pgm.wire.options import Acker, Cr, Crqst, Members, Option, PgmccFeedback, find
from pgm.wire.sequence_numbers import unwrap

_TIMEOUTS = 2  # timeouts in a row before another acker is elected (CC-38)
_MOST_AT_ONCE = 16  # packets in a train: the map of an ack covers two such trains
_LONGEST_RTT = 2  # limit on a reported round trip, in cc_timeout_ivl, because the wait for acks depends on it
_MOST_BARRED = 64  # distrusted receivers, the oldest of which makes place for a new one
_MOST_ADDRESSES = 4096  # cached results of `can_acknowledge`


@functools.lru_cache(maxsize=_MOST_ADDRESSES)
def can_acknowledge(reporter: Nla) -> bool:
    """Return whether a receiver can have this address."""
    address = ipaddress.ip_address(reporter)
    return not (address.is_unspecified or address.is_multicast or address == _BROADCAST)


_BROADCAST = ipaddress.ip_address("255.255.255.255")


def says_goodbye(ack: Ack) -> bool:
    """Return whether an ack says that its reporter leaves (CC-39)."""
    said = find(ack.options, Members)
    return said is not None and said.leaves


class CongestionControl:
    """Congestion window and acker election of one source."""

    def __init__(self, context: SessionContext, now_ns: int, *, is_ipv6: bool = False) -> None:
        self.window = CongestionWindow()
        self._parameters = context.parameters
        self._counters = context.counters
        self._no_acker = "::" if is_ipv6 else "0.0.0.0"
        self.acker: Nla | None = None
        self.rtt_ns = 0  # round trip of the acker, smoothed
        self.loss = 0.0  # loss rate that the acker reports
        self._slowness = 0.0
        self._timeouts = 0
        self._has_acked = False  # the acker has sent an ack since its election
        self._timeouts_before_ack = 0  # timeouts since the election and before the acker's first ack
        self._barred: OrderedDict[Nla, int] = OrderedDict()  # distrusted receivers, and the end of the distrust in ns
        self._worst_link = LossReport()
        self._worst_path = LossReport()
        self._check = AckerCheck()
        self._notices: list[Notice] = []
        self._waits_since_ns = now_ns  # time of the last ack, or of the first packet in flight after that
        self.wants_spm = False  # the acker has changed, so an SPM must go at once

    @property
    def options(self) -> tuple[Option, ...]:
        """Return the options of SPMs: the acker, and the request for reports (CC-01)."""
        return (Acker(acker=self.acker or self._no_acker), Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True))

    @property
    def unstable_from(self) -> int:
        """Return NEVER: no packet is held for receivers."""
        return NEVER

    def room(self, lead: int, now_ns: int) -> int:
        """Return how many packets may be sent now."""
        return max(0, min(int(self.window.tokens), _MOST_AT_ONCE))

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA that was sent."""
        if not self.window.has_in_flight:
            self._waits_since_ns = now_ns
        self.window.sent(first, end, now_ns)

    # Reports

    def on_report(self, item: Ack | Nak, lead: int, now_ns: int) -> None:
        """Take a report from below, in an ack or a NAK."""
        if isinstance(item, Ack):
            self.on_ack(item, lead, now_ns)
        else:
            self.on_nak(item, lead, now_ns)

    def on_ack(self, ack: Ack, lead: int, now_ns: int) -> None:
        """Take an ack of the acker, or a report of another receiver."""
        feedback, sqn = find(ack.options, PgmccFeedback), unwrap(ack.rx_max, lead)
        if feedback is None or sqn > lead:
            self._counters.foreign_packets += 1
            return
        self._counters.cc_reports_in += 1
        if says_goodbye(ack):
            if feedback.reporter == self.acker:
                self._elect(None, self.rtt_ns, 0.0, 0.0)
            return
        loss = feedback.loss_rate / ALL_LOST
        self._report(feedback.reporter, sqn, loss, now_ns - feedback.timestamp_ms * MILLISECOND, now_ns)
        if feedback.reporter != self.acker or not ack.bitmap:
            return
        self._has_acked = True
        self.loss = loss
        sent_ns = self.window.sent_at(sqn)
        self._check.acked(sqn, ack.bitmap, loss, None if sent_ns is None else max(0, now_ns - sent_ns))
        got, lost = self.window.acked(sqn, ack.bitmap, lead)
        self._counters.cc_losses += lost
        if got or lost:
            self._timeouts, self._waits_since_ns = 0, now_ns
        if self._check.differs(loss, self.rtt_ns):
            measured = f"{self._check.loss:.1%} and {self._check.rtt_ns / MILLISECOND:.1f} ms"
            reported = f"{loss:.1%} loss and a round trip of {self.rtt_ns / MILLISECOND:.1f} ms"
            self._distrust(feedback.reporter, f"it reports {reported}, its acks show {measured}", now_ns)
            self._elect(None, self.rtt_ns, 0.0, 0.0)

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> None:
        """Take OPT_CR of a NAK: the worst receiver known to the NAK's sender (CC-08)."""
        cr = find(nak.options, Cr)
        if cr is None:
            return
        self._counters.cc_reports_in += 1
        sqn = min(unwrap(cr.lead, lead), lead)
        if cr.has_ne_wl:
            self._worst_link.send(max(self._worst_link.aged(sqn), cr.ne_wl / ALL_LOST), sqn)
        if cr.has_ne_wp:
            self._worst_path.send(max(self._worst_path.aged(sqn), cr.ne_wp / ALL_LOST), sqn)
        if cr.has_rx_wp:
            self._report(cr.receiver, sqn, cr.rx_wp / ALL_LOST, now_ns, now_ns)

    def _may_acknowledge(self, reporter: Nla, now_ns: int) -> bool:
        if self._barred and self._barred.get(reporter, -NEVER) > now_ns:
            return False
        return can_acknowledge(reporter)

    def _report(self, reporter: Nla, sqn: int, loss: float, at_ns: int, now_ns: int) -> None:
        if not self._may_acknowledge(reporter, now_ns):
            self._counters.cc_reports_refused += 1
            return
        sent_ns = self.window.sent_at(sqn)
        longest_ns = _LONGEST_RTT * self._parameters.cc_timeout_ivl
        rtt_ns = min(longest_ns, max(0, at_ns - sent_ns)) if sent_ns is not None else self.rtt_ns
        if reporter == self.acker:
            if sent_ns is not None:
                self.rtt_ns = round((1 - RTT_WEIGHT) * self.rtt_ns + RTT_WEIGHT * rtt_ns) if self.rtt_ns else rtt_ns
            self._slowness = slowness(self.rtt_ns / SECOND, loss)
            return
        candidate = slowness(rtt_ns / SECOND, loss)
        # T_i < C * T_acker (CC-35), as an inequality of the squared inverses.
        if self.acker is None or candidate * self._parameters.cc_hysteresis**2 > self._slowness:
            self._elect(reporter, rtt_ns, loss, candidate)

    def _elect(self, reporter: Nla | None, rtt_ns: int, loss: float, new_slowness: float) -> None:
        self._counters.acker_changes += 1
        self.acker, self.rtt_ns, self.loss, self._slowness = reporter, rtt_ns, loss, new_slowness
        self._has_acked, self._timeouts_before_ack = False, 0
        self._check = AckerCheck()
        self.wants_spm = True

    def status(self, lead: int) -> CongestionStatus:
        """Return the status for operators. Reports of links are aged to `lead`."""
        return CongestionStatus(
            acker=self.acker or "",
            loss=round(self.loss, 6),
            round_trip_ns=self.rtt_ns,
            window=round(self.window.window, 3),
            worst_link=round(self._worst_link.aged(lead), 6),
            worst_path=round(self._worst_path.aged(lead), 6),
        )

    def take_notices(self) -> list[Notice]:
        """Return the notices since the last call."""
        notices, self._notices = self._notices, []
        return notices

    # Time

    @property
    def deadline_ns(self) -> int:
        """Return when acks are overdue; NEVER without packets in flight."""
        return self._waits_since_ns + self._timeout_ns if self.window.has_in_flight else NEVER

    @property
    def _timeout_ns(self) -> int:
        # The reported round trip is believed only after an ack of the acker.
        rtt_ns = self.rtt_ns if self._has_acked else 0
        return max(self._parameters.cc_timeout_ivl, 4 * rtt_ns) << min(self._timeouts, _TIMEOUTS)

    def handle_deadline(self, now_ns: int) -> None:
        """Restart the window when acks are overdue.

        After the second timeout in a row another acker is elected.
        """
        if now_ns < self.deadline_ns:
            return
        self._counters.cc_timeouts += 1
        self.window.timed_out()
        self._waits_since_ns = now_ns
        self._timeouts += 1
        self.wants_spm = True
        self._timeouts_before_ack += not self._has_acked
        if self._timeouts >= _TIMEOUTS and self.acker is not None:
            if self._timeouts_before_ack >= _TIMEOUTS:
                self._distrust(self.acker, "it never acknowledged", now_ns)
            self._elect(None, self.rtt_ns, 0.0, 0.0)

    def _distrust(self, acker: Nla, why: str, now_ns: int) -> None:
        """Bar an acker from election for `cc_bar_ivl` (SEC-08, CC-41).

        The address may not exist, or its reports may be false.
        """
        self._counters.ackers_distrusted += 1
        ivl = format_duration(self._parameters.cc_bar_ivl)
        self._notices.append(Notice("acker-distrusted", f"{acker} cannot be the acker for at least {ivl}: {why}"))
        self._barred[acker] = now_ns + self._parameters.cc_bar_ivl
        self._barred.move_to_end(acker)
        if len(self._barred) > _MOST_BARRED:
            self._barred.popitem(last=False)
