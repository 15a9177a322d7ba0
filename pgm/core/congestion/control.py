"""Congestion control of a source (flow = "pgmcc"): elects the receiver with the worst path, and goes at the pace that its acks allow.

Reports come in acks of the acker, in NAKs with OPT_CR, and in acks that acknowledge nothing, which is how elements pass on what they
hear. Round trips are measured by sqns (implicit time stamps, draft 2.5.2), and SPMs name the acker, so that data packets are
built as for any other stream.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import OrderedDict

from pgm.core.congestion.acker_check import RTT_WEIGHT, AckerCheck
from pgm.core.congestion.link_reports import ALL_LOST, LossReport
from pgm.core.congestion.window import CongestionWindow, slowness
from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.status import CongestionStatus
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, NEVER, SECOND, format_duration
from pgm.wire.control_packets import Ack, Nak
from pgm.wire.formats import Nla
from pgm.wire.options import Acker, Cr, Crqst, Members, Option, PgmccFeedback, find
from pgm.wire.sequence_numbers import unwrap

_TIMEOUTS = 2  # in a row: then another acker is looked for (CC-38)
_MOST_AT_ONCE = 16  # packets of a train: an ack's map tells of two such trains
_LONGEST_RTT = 2  # of cc_timeout_ivl: what a report about an old packet may claim; waits for acks follow it
_MOST_BARRED = 64  # receivers that are distrusted; of more the earliest is forgotten
_MOST_ADDRESSES = 4096  # whose look is remembered


@functools.lru_cache(maxsize=_MOST_ADDRESSES)
def can_acknowledge(reporter: Nla) -> bool:
    """Whether an address is one that a receiver can have."""
    address = ipaddress.ip_address(reporter)
    return not (address.is_unspecified or address.is_multicast or address == _BROADCAST)


_BROADCAST = ipaddress.ip_address("255.255.255.255")


def says_goodbye(ack: Ack) -> bool:
    """Whether whoever reports leaves (CC-39)."""
    said = find(ack.options, Members)
    return said is not None and said.leaves


class CongestionControl:
    """Window and election of one source."""

    def __init__(self, parameters: Parameters, counters: Counters, now_ns: int, *, is_ipv6: bool = False) -> None:
        self.window = CongestionWindow()
        self._parameters = parameters
        self._counters = counters
        self._nobody = "::" if is_ipv6 else "0.0.0.0"
        self.acker: Nla | None = None
        self.rtt_ns = 0  # of the acker, smoothed
        self.loss = 0.0  # as the acker says it
        self._slowness = 0.0
        self._timeouts = 0
        self._has_acked = False  # the acker, since it was elected
        self._in_vain = 0  # times that its acks were overdue before the first one came
        self._barred: OrderedDict[Nla, int] = OrderedDict()  # until when: distrusted
        self._worst_link = LossReport()
        self._worst_path = LossReport()
        self._check = AckerCheck()
        self._notices: list[Notice] = []
        self._waits_since_ns = now_ns  # when the last ack came, or the first packet since left
        self.wants_spm = False  # the acker is another one: say so at once

    @property
    def options(self) -> tuple[Option, ...]:
        """What SPMs say: who acknowledges, and that reports are wanted (CC-01)."""
        return (Acker(acker=self.acker or self._nobody), Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True))

    @property
    def unstable_from(self) -> int:
        """Nothing is held."""
        return NEVER

    def room(self, lead: int, now_ns: int) -> int:
        """Packets that may be sent now."""
        return max(0, min(int(self.window.tokens), _MOST_AT_ONCE))

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA."""
        if not self.window.has_in_flight:
            self._waits_since_ns = now_ns
        self.window.sent(first, end, now_ns)

    # Reports

    def on_report(self, item: Ack | Nak, lead: int, now_ns: int) -> None:
        """What came from below, either way."""
        if isinstance(item, Ack):
            self.on_ack(item, lead, now_ns)
        else:
            self.on_nak(item, lead, now_ns)

    def on_ack(self, ack: Ack, lead: int, now_ns: int) -> None:
        """An ack of the acker, or somebody's report."""
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
            seen = f"{self._check.loss:.1%} and {self._check.rtt_ns / MILLISECOND:.1f} ms"
            said = f"{loss:.1%} lost and {self.rtt_ns / MILLISECOND:.1f} ms of round trip"
            self._distrust(feedback.reporter, f"it says {said}, its acks say {seen}", now_ns)
            self._elect(None, self.rtt_ns, 0.0, 0.0)

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> None:
        """OPT_CR on a NAK: the worst receiver that whoever sent it knows of (CC-08)."""
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
        found = slowness(rtt_ns / SECOND, loss)
        # T_i < C * T_acker, of squares of the inverse (CC-35).
        if self.acker is None or found * self._parameters.cc_hysteresis**2 > self._slowness:
            self._elect(reporter, rtt_ns, loss, found)

    def _elect(self, reporter: Nla | None, rtt_ns: int, loss: float, found: float) -> None:
        self._counters.acker_changes += 1
        self.acker, self.rtt_ns, self.loss, self._slowness = reporter, rtt_ns, loss, found
        self._has_acked, self._in_vain = False, 0
        self._check = AckerCheck()
        self.wants_spm = True

    def status(self, lead: int) -> CongestionStatus:
        """What operators see of it; reports of links age."""
        return CongestionStatus(
            acker=self.acker or "",
            loss=round(self.loss, 6),
            round_trip_ns=self.rtt_ns,
            window=round(self.window.window, 3),
            worst_link=round(self._worst_link.aged(lead), 6),
            worst_path=round(self._worst_path.aged(lead), 6),
        )

    def take_notices(self) -> list[Notice]:
        """What is to be told, once."""
        taken, self._notices = self._notices, []
        return taken

    # Time

    @property
    def deadline_ns(self) -> int:
        """When acks are overdue."""
        return self._waits_since_ns + self._patience_ns if self.window.has_in_flight else NEVER

    @property
    def _patience_ns(self) -> int:
        # What a round trip is said to take is believed of who has acknowledged.
        rtt_ns = self.rtt_ns if self._has_acked else 0
        return max(self._parameters.cc_timeout_ivl, 4 * rtt_ns) << min(self._timeouts, _TIMEOUTS)

    def handle_deadline(self, now_ns: int) -> None:
        """Acks are overdue: begin anew, and the second time with another acker."""
        if now_ns < self.deadline_ns:
            return
        self._counters.cc_timeouts += 1
        self.window.timed_out()
        self._waits_since_ns = now_ns
        self._timeouts += 1
        self.wants_spm = True
        self._in_vain += not self._has_acked
        if self._timeouts >= _TIMEOUTS and self.acker is not None:
            if self._in_vain >= _TIMEOUTS:
                self._distrust(self.acker, "it never acknowledged", now_ns)
            self._elect(None, self.rtt_ns, 0.0, 0.0)

    def _distrust(self, acker: Nla, why: str, now_ns: int) -> None:
        """It shall not be elected again for a while: perhaps it does not exist, or it lies (SEC-08, CC-41)."""
        self._counters.ackers_distrusted += 1
        ivl = format_duration(self._parameters.cc_bar_ivl)
        self._notices.append(
            Notice("acker-distrusted", f"{acker} is not the acker any more, for {ivl} at least: {why}")
        )
        self._barred[acker] = now_ns + self._parameters.cc_bar_ivl
        self._barred.move_to_end(acker)
        if len(self._barred) > _MOST_BARRED:
            self._barred.popitem(last=False)
