"""Storm brakes: budgets per child and per session, on by default (RFC 5.2, 7.6, 10, 13.4).

A budget that is used up drops and counts; the timers of whoever asked repeat the request. A child that asks all the time, a
crying baby, gets a small budget of its own until it is quiet, so that repairs for it do not become everybody's traffic.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.status import AskerStatus
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi, tsi_text

_MOST_ASKERS = 16  # children that are shown


@attrs.define(eq=False)
class _Child:
    """A child's budget of NAKs, and what is thought of it. `crying` is its budget of sqns while it asks all the time."""

    naks: TokenBucket
    monitor: ExcessiveNakMonitor
    crying: TokenBucket | None = None
    nak_packets: int = 0
    nak_sqns: int = 0
    braked: int = 0


class NakLimits:
    """The budgets of one session at a parent."""

    def __init__(self, parameters: Parameters, counters: Counters, tsi: Tsi = b"") -> None:
        self._parameters = parameters
        self._counters = counters
        self._name = f"session {tsi_text(tsi)}" if tsi else "the session"
        self._naks = self._bucket(parameters.session_nak_rte)
        self._ncfs = self._bucket(parameters.session_ncf_rte)
        self._spmr_free_at_ns = 0
        self._children: OrderedDict[Nla, _Child] = OrderedDict()
        self._crying: dict[Nla, _Child] = {}
        self._lead = 0
        self._notices: list[Notice] = []
        self._told_ns = -NEVER

    def _bucket(self, rate: int) -> TokenBucket:
        return TokenBucket(rate, self._parameters.brake_burst_ivl)

    @property
    def crying(self) -> tuple[Nla, ...]:
        """The children that ask all the time."""
        return tuple(self._crying)

    def askers(self) -> list[AskerStatus]:
        """The children that have asked for most packets, of those that are remembered."""
        most = heapq.nlargest(_MOST_ASKERS, self._children.items(), key=lambda item: (item[1].nak_sqns, item[0]))
        return [
            AskerStatus(
                address=child,
                nak_packets=one.nak_packets,
                nak_sqns=one.nak_sqns,
                braked=one.braked,
                is_crying=child in self._crying,
            )
            for child, one in most
        ]

    def is_crying(self, child: Nla) -> bool:
        """Whether a child asks all the time."""
        return child in self._crying

    def release(self, child: Nla, now_ns: int) -> bool:
        """Give a child that asks all the time its normal budget back, until that is found of it anew; says whether it was one."""
        known = self._crying.pop(child, None)
        if known is None:
            return False
        known.crying, known.monitor = None, ExcessiveNakMonitor(self._parameters, self._lead, now_ns)
        self._notices.append(Notice("crying-child-over", f"{self._name}: {child} was released"))
        return True

    @property
    def deadline_ns(self) -> int:
        """When a crying child may have become quiet, or something is to be told."""
        if self._notices:
            return 0
        return min((one.monitor.ends_ns for one in self._crying.values()), default=NEVER) if self._crying else NEVER

    def handle_deadline(self, now_ns: int) -> Effects:
        """Release children that are quiet, and tell what there is to tell."""
        for child, one in tuple(self._crying.items()):
            if one.monitor.look(self._lead, now_ns):
                self._changed(child, one)
        if not self._notices:
            return NOTHING
        notices, self._notices = self._notices, []
        return notices

    def admit_nak(
        self, child: Nla, now_ns: int, sqns: int = 0, lead: int = 0, packets: int = 1, *, is_watched: bool = True
    ) -> bool:
        """Whether a NAK of this child for `sqns` packets is taken in, or a train of so many `packets`.

        `lead` is the newest sqn sent. Who asks for others, or for history, is counted and not watched.
        """
        known = self._children.get(child)
        if known is None:
            known = self._children[child] = _Child(
                self._bucket(self._parameters.child_nak_rte), ExcessiveNakMonitor(self._parameters, lead, now_ns)
            )
            if len(self._children) > self._parameters.max_children:
                forgotten, _ = self._children.popitem(last=False)
                self._crying.pop(forgotten, None)
        self._children.move_to_end(child)
        known.nak_packets += packets
        known.nak_sqns += sqns
        if sqns and is_watched and self._parameters.nagging_window_ivl:
            self._lead = lead
            if known.monitor.asked(sqns, lead, now_ns):
                self._changed(child, known)
            if known.crying is not None and not known.crying.take(sqns, now_ns):
                self._counters.nak_packets_of_crying += packets
                known.braked += packets
                return False
        if known.naks.take(packets, now_ns) and self._naks.take(packets, now_ns):
            return True
        self._counters.nak_packets_braked += packets
        known.braked += packets
        self._tell("NAKs", child, now_ns)
        return False

    def _changed(self, child: Nla, known: _Child) -> None:
        if known.monitor.is_nagging:
            self._counters.children_crying += 1
            rate = self._parameters.crying_sqn_rte
            known.crying = self._bucket(rate)
            self._crying[child] = known
            text = f"{self._name}: {child} asks for repairs all the time, and gets {rate} a second from now on"
            self._notices.append(Notice("crying-child", text))
        else:
            known.crying = None
            self._crying.pop(child, None)
            self._notices.append(Notice("crying-child-over", f"{self._name}: {child} asks no more than others"))

    def _tell(self, what: str, child: Nla, now_ns: int) -> None:
        """Say that a brake holds: now and then, for it is a storm."""
        if now_ns - self._told_ns >= self._parameters.notice_ivl:
            self._told_ns = now_ns
            text = f"{self._name}: {what} are more than their budget, the last one of {child}; the rest is dropped"
            self._notices.append(Notice("storm-brake", text))

    def admit_ncf(self, now_ns: int, packets: int = 1) -> bool:
        """Whether an NCF may leave, or a train of them."""
        if self._ncfs.take(packets, now_ns):
            return True
        self._counters.ncf_packets_braked += packets
        return False

    def admit_spmr(self, now_ns: int) -> bool:
        """Whether an SPMR is answered: once in IHB_MIN (SRC-26)."""
        if now_ns >= self._spmr_free_at_ns:
            self._spmr_free_at_ns = now_ns + self._parameters.ihb_min
            return True
        self._counters.spmr_packets_braked += 1
        return False
