"""Storm brakes: budgets per child and session (RFC 5.2, 7.6, 10, 13.4).

The budgets are on by default. NAKs beyond a budget are dropped and counted, and the asker's timers repeat the request.
A child with excessive NAKs gets a small budget of its own until its NAKs are no longer excessive. Repairs for such a
child therefore do not burden all other children.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict

import attrs

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket, unlimited
from pgm.core.session_context import SessionContext
from pgm.core.status import AskerStatus
from pgm.units import NEVER
from pgm.wire.formats import Nla, tsi_text

_MOST_ASKERS = 16  # children in the status


@attrs.define(eq=False)
class _Child:
    """Budget and monitor of one child's NAKs. `small_budget` limits requested sqns while the NAKs are excessive."""

    naks: TokenBucket
    monitor: ExcessiveNakMonitor
    small_budget: TokenBucket = attrs.field(factory=unlimited)
    nak_packets: int = 0
    nak_sqns: int = 0
    braked: int = 0


class NakLimits:
    """Budgets of one session at a parent."""

    def __init__(self, context: SessionContext) -> None:
        parameters = context.parameters
        self._parameters = parameters
        self._counters = context.counters
        self._name = f"session {tsi_text(context.tsi)}"
        self._naks = self._bucket(parameters.session_nak_rte)
        self._ncfs = self._bucket(parameters.session_ncf_rte)
        self._spmr_free_at_ns = 0
        self._children: OrderedDict[Nla, _Child] = OrderedDict()
        self._excessive: dict[Nla, _Child] = {}
        self._lead = 0
        self._notices: list[Notice] = []
        self._noticed_ns = -NEVER  # when the last notice of a storm was made

    def _bucket(self, rate: int) -> TokenBucket:
        return TokenBucket(rate, self._parameters.brake_burst_ivl)

    def askers(self) -> list[AskerStatus]:
        """Return the remembered children that have requested the most packets."""
        most = heapq.nlargest(_MOST_ASKERS, self._children.items(), key=lambda item: (item[1].nak_sqns, item[0]))
        return [
            AskerStatus(
                address=child,
                nak_packets=known.nak_packets,
                nak_sqns=known.nak_sqns,
                braked=known.braked,
                has_excess_naks=child in self._excessive,
            )
            for child, known in most
        ]

    def has_excess_naks(self, child: Nla) -> bool:
        """Return whether a child's NAKs are excessive."""
        return child in self._excessive

    def release(self, child: Nla, now_ns: int) -> bool:
        """Restore the normal budget of a child, and its monitor. Return whether the child's NAKs were excessive."""
        known = self._excessive.pop(child, None)
        if known is None:
            return False
        known.small_budget, known.monitor = unlimited(), ExcessiveNakMonitor(self._parameters, self._lead, now_ns)
        self._notices.append(Notice("child-excess-naks-over", f"{self._name}: {child} was released"))
        return True

    @property
    def deadline_ns(self) -> int:
        """Return when a child's NAKs may be no longer excessive, or a notice waits."""
        if self._notices:
            return 0
        return (
            min((known.monitor.ends_ns for known in self._excessive.values()), default=NEVER)
            if self._excessive
            else NEVER
        )

    def handle_deadline(self, now_ns: int) -> Effects:
        """Release children whose NAKs are no longer excessive. Return the notices."""
        for child, known in tuple(self._excessive.items()):
            if known.monitor.look(self._lead, now_ns):
                self._changed(child, known)
        if not self._notices:
            return NOTHING
        notices, self._notices = self._notices, []
        return notices

    def admit_nak(
        self, child: Nla, now_ns: int, sqns: int = 0, lead: int = 0, packets: int = 1, *, newest: int = 0
    ) -> bool:
        """Return whether a NAK, or a train of `packets` NAKs, is within the budgets.

        `sqns` is the number of requested sqns, `newest` the last of them, and `lead` the newest sqn sent. A child that asks
        on behalf of other nodes, or asks for history, is counted but not watched; `newest` is then 0.
        """
        known = self._children.get(child)
        if known is None:
            known = self._children[child] = _Child(
                self._bucket(self._parameters.child_nak_rte), ExcessiveNakMonitor(self._parameters, lead, now_ns)
            )
            if len(self._children) > self._parameters.max_children:
                forgotten, _ = self._children.popitem(last=False)
                self._excessive.pop(forgotten, None)
        self._children.move_to_end(child)
        known.nak_packets += packets
        known.nak_sqns += sqns
        if sqns and newest and self._parameters.excess_nak_window_ivl:
            self._lead = lead
            if known.monitor.asked(sqns, newest, lead, now_ns):
                self._changed(child, known)
            if not known.small_budget.take(sqns, now_ns):
                self._counters.excess_nak_packets += packets
                known.braked += packets
                return False
        if known.naks.take(packets, now_ns) and self._naks.take(packets, now_ns):
            return True
        self._counters.nak_packets_braked += packets
        known.braked += packets
        self._notice_storm("NAKs", child, now_ns)
        return False

    def _changed(self, child: Nla, known: _Child) -> None:
        if known.monitor.is_excessive:
            self._counters.excess_nak_children += 1
            rate = self._parameters.excess_nak_sqn_rte
            known.small_budget = self._bucket(rate)
            self._excessive[child] = known
            text = f"{self._name}: {child} sends excessive NAKs and now gets at most {rate} repairs a second"
            self._notices.append(Notice("child-excess-naks", text))
        else:
            known.small_budget = unlimited()
            self._excessive.pop(child, None)
            self._notices.append(
                Notice("child-excess-naks-over", f"{self._name}: {child} sends no more excessive NAKs")
            )

    def _notice_storm(self, kind: str, child: Nla, now_ns: int) -> None:
        """Give notice that a budget is exceeded, at most once in `notice_ivl`."""
        if now_ns - self._noticed_ns >= self._parameters.notice_ivl:
            self._noticed_ns = now_ns
            text = f"{self._name}: {kind} exceed their budget, the last one from {child}; further ones are dropped"
            self._notices.append(Notice("storm-brake", text))

    def admit_ncf(self, now_ns: int, packets: int = 1) -> bool:
        """Return whether an NCF, or a train of `packets` NCFs, may be sent."""
        if self._ncfs.take(packets, now_ns):
            return True
        self._counters.ncf_packets_braked += packets
        return False

    def admit_spmr(self, now_ns: int) -> bool:
        """Return whether an SPMR may be answered: once in IHB_MIN (SRC-26)."""
        if now_ns >= self._spmr_free_at_ns:
            self._spmr_free_at_ns = now_ns + self._parameters.ihb_min
            return True
        self._counters.spmr_packets_braked += 1
        return False
