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

import attrs

from pgm.core.congestion.acker_check import RTT_WEIGHT, AckerCheck
from pgm.core.congestion.link_reports import ALL_LOST, WorstLinks
from pgm.core.congestion.window import CongestionWindow, slowness
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.status import CongestionStatus, SessionStatus
from pgm.units import MILLISECOND, NEVER, SECOND, format_duration
from pgm.wire.control_packets import Ack, Nak
from pgm.wire.formats import Nla
from pgm.wire.options import Acker, Cr, Crqst, Members, Options, PgmccFeedback, find
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


@attrs.define
class _Acker:
    """Elected acker. Without an address there is none, and reports of any receiver elect one."""

    address: Nla = ""
    rtt_ns: int = 0  # smoothed round trip
    loss: float = 0.0  # reported loss rate
    slowness: float = 0.0
    has_acked: bool = False
    timeouts_before_ack: int = 0
    check: AckerCheck = attrs.field(factory=AckerCheck)


class CongestionControl:
    """Congestion window and acker election of one source."""

    has_feedback = True
    unstable_from = NEVER  # no packet is held for receivers

    def __init__(self, context: SessionContext, now_ns: int, *, is_ipv6: bool = False) -> None:
        self.window = CongestionWindow()
        self._parameters = context.parameters
        self._counters = context.counters
        self._no_acker = "::" if is_ipv6 else "0.0.0.0"
        self._acker = _Acker()
        self._timeouts = 0
        self._barred: OrderedDict[Nla, int] = OrderedDict()  # distrusted receivers, and the end of the distrust in ns
        self._worst = WorstLinks()
        self._waits_since_ns = now_ns  # time of the last ack, or of the first packet in flight after that
        self._is_announced = True  # an SPM has named the acker
        self._announced_ns = -NEVER  # time of the last SPM that announced an acker at once

    @property
    def acker(self) -> Nla:
        """Return the address of the acker; empty without one."""
        return self._acker.address

    @property
    def rtt_ns(self) -> int:
        """Return the smoothed round trip of the acker."""
        return self._acker.rtt_ns

    @property
    def loss(self) -> float:
        """Return the loss rate that the acker reports."""
        return self._acker.loss

    def spm_options(self) -> Options:
        """Return the options of an SPM that is sent now: the acker, and the request for reports (CC-01)."""
        self._is_announced = True
        return (Acker(acker=self.acker or self._no_acker), Crqst(wants_ne_wl=True, wants_ne_wp=True, wants_rx_wp=True))

    def wants_spm(self, now_ns: int) -> bool:
        """Return whether a new acker must be announced now, at most once in IHB_MIN.

        Reports may be forged, so the rate is bounded. A deferred announcement goes with the next SPM.
        """
        if self._is_announced or now_ns < self._announced_ns + self._parameters.ihb_min:
            return False
        self._announced_ns = now_ns
        return True

    def room(self, lead: int, now_ns: int) -> int:
        """Return how many packets may be sent now."""
        return max(0, min(int(self.window.tokens), _MOST_AT_ONCE))

    def data_sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA that was sent."""
        if not self.window.has_in_flight:
            self._waits_since_ns = now_ns
        self.window.sent(first, end, now_ns)

    # Reports

    def on_ack(self, ack: Ack, lead: int, segment: Segment, peer: Nla, now_ns: int) -> Effects:
        """Take an ack of the acker, or a report of another receiver. Return notices."""
        feedback, sqn = find(ack.options, PgmccFeedback), unwrap(ack.rx_max, lead)
        if feedback is None or sqn > lead:
            self._counters.foreign_packets += 1
            return NOTHING
        self._counters.cc_reports_in += 1
        if says_goodbye(ack):
            if feedback.reporter == self.acker:
                self._elect(_Acker(rtt_ns=self.rtt_ns))
            return NOTHING
        loss = feedback.loss_rate / ALL_LOST
        self._report(feedback.reporter, sqn, loss, now_ns - feedback.timestamp_ms * MILLISECOND, now_ns)
        if feedback.reporter != self.acker or not ack.bitmap:
            return NOTHING
        acker = self._acker
        acker.has_acked, acker.loss = True, loss
        acker.check.acked(sqn, ack.bitmap, loss, self.window.elapsed_ns(sqn, now_ns))
        got, lost = self.window.acked(sqn, ack.bitmap, lead)
        self._counters.cc_losses += lost
        if got or lost:
            self._timeouts, self._waits_since_ns = 0, now_ns
        if not acker.check.differs(loss, acker.rtt_ns):
            return NOTHING
        measured = f"{acker.check.loss:.1%} and {acker.check.rtt_ns / MILLISECOND:.1f} ms"
        reported = f"{loss:.1%} loss and a round trip of {acker.rtt_ns / MILLISECOND:.1f} ms"
        notice = self._distrust(acker.address, f"it reports {reported}, its acks show {measured}", now_ns)
        self._elect(_Acker(rtt_ns=acker.rtt_ns))
        return (notice,)

    def on_nak(self, nak: Nak, lead: int, now_ns: int) -> bool:
        """Take OPT_CR of a NAK: the worst receiver known to its sender (CC-08). Return True: NAKs are feedback."""
        cr = find(nak.options, Cr)
        if cr is None:
            return True
        self._counters.cc_reports_in += 1
        sqn = min(unwrap(cr.lead, lead), lead)
        self._worst.heard(cr, sqn)
        if cr.has_rx_wp:
            self._report(cr.receiver, sqn, cr.rx_wp / ALL_LOST, now_ns, now_ns)
        return True

    def _may_acknowledge(self, reporter: Nla, now_ns: int) -> bool:
        if self._barred and self._barred.get(reporter, -NEVER) > now_ns:
            return False
        return can_acknowledge(reporter)

    def _report(self, reporter: Nla, sqn: int, loss: float, at_ns: int, now_ns: int) -> None:
        if not self._may_acknowledge(reporter, now_ns):
            self._counters.cc_reports_refused += 1
            return
        elapsed_ns = self.window.elapsed_ns(sqn, at_ns)
        is_measured = elapsed_ns >= 0
        longest_ns = _LONGEST_RTT * self._parameters.cc_timeout_ivl
        acker = self._acker
        rtt_ns = min(longest_ns, elapsed_ns) if is_measured else acker.rtt_ns
        if reporter == acker.address:
            if is_measured:
                smoothed_ns = round((1 - RTT_WEIGHT) * acker.rtt_ns + RTT_WEIGHT * rtt_ns)
                acker.rtt_ns = smoothed_ns if acker.rtt_ns else rtt_ns
            acker.slowness = slowness(acker.rtt_ns / SECOND, loss)
            return
        candidate = slowness(rtt_ns / SECOND, loss)
        # T_i < C * T_acker (CC-35), as an inequality of the squared inverses.
        if not acker.address or candidate * self._parameters.cc_hysteresis**2 > acker.slowness:
            self._elect(_Acker(reporter, rtt_ns, loss, candidate))

    def _elect(self, acker: _Acker) -> None:
        self._counters.acker_changes += 1
        self._acker, self._is_announced = acker, False

    def with_status(self, row: SessionStatus) -> SessionStatus:
        """Return a status row with that of the congestion control. Reports of links are aged to the row's lead."""
        status = CongestionStatus(
            acker=self.acker,
            loss=round(self.loss, 6),
            round_trip_ns=self.rtt_ns,
            window=round(self.window.window, 3),
            worst_link=round(self._worst.link.aged(row.lead), 6),
            worst_path=round(self._worst.path.aged(row.lead), 6),
        )
        return attrs.evolve(row, congestion=status)

    # Time

    @property
    def deadline_ns(self) -> int:
        """Return when acks are overdue; NEVER without packets in flight."""
        return self._waits_since_ns + self._timeout_ns if self.window.has_in_flight else NEVER

    @property
    def _timeout_ns(self) -> int:
        # The reported round trip is believed only after an ack of the acker.
        rtt_ns = self.rtt_ns if self._acker.has_acked else 0
        return max(self._parameters.cc_timeout_ivl, 4 * rtt_ns) << min(self._timeouts, _TIMEOUTS)

    def handle_deadline(self, lead: int, now_ns: int) -> Effects:
        """Restart the window when acks are overdue; after the second timeout in a row elect anew. Return notices."""
        if now_ns < self.deadline_ns:
            return NOTHING
        self._counters.cc_timeouts += 1
        self.window.timed_out()
        self._waits_since_ns = now_ns
        self._timeouts += 1
        acker, self._is_announced = self._acker, False
        acker.timeouts_before_ack += not acker.has_acked
        if self._timeouts < _TIMEOUTS or not acker.address:
            return NOTHING
        is_silent = acker.timeouts_before_ack >= _TIMEOUTS
        notices = (self._distrust(acker.address, "it never acknowledged", now_ns),) if is_silent else NOTHING
        self._elect(_Acker(rtt_ns=acker.rtt_ns))
        return notices

    def _distrust(self, acker: Nla, why: str, now_ns: int) -> Notice:
        """Bar an acker with a dead address or false reports from election for `cc_bar_ivl` (SEC-08, CC-41)."""
        self._counters.ackers_distrusted += 1
        self._barred[acker] = now_ns + self._parameters.cc_bar_ivl
        self._barred.move_to_end(acker)
        if len(self._barred) > _MOST_BARRED:
            self._barred.popitem(last=False)
        ivl = format_duration(self._parameters.cc_bar_ivl)
        return Notice("acker-distrusted", f"{acker} cannot be the acker for at least {ivl}: {why}")
