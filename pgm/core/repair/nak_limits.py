"""Storm brakes: budgets per child and session (RFC 5.2, 7.6, 10, 13.4).

The budgets are on by default. NAKs beyond a budget are dropped and counted, and the asker's timers repeat the request.
A child with excessive NAKs gets a small budget of its own until its NAKs are no longer excessive. Repairs for such a
child therefore do not burden all other children.

A sender may use any number of addresses. An address therefore has budgets of its own only if the topology names it, or
if it is proven: it asked `child_proof_ivl` ago, and newcomers were within their budgets ever since. All newcomers
together are one child, with the budgets of one child, whenever other children ask too. Their NAKs beyond these budgets
are dropped before any state is made. Newcomers share what they have fairly.

An element of the topology asks on behalf of nodes that it does not control. Its NAKs are never excessive. An
element divides its NAKs to parents among its own children.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict

import attrs

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.named_children import NO_CHILDREN, NamedChildren
from pgm.core.pacing.nak_monitor import ExcessiveNakMonitor
from pgm.core.pacing.token_bucket import TokenBucket, unlimited
from pgm.core.repair.fair_share import NEWCOMERS, FairShare
from pgm.core.session_context import SessionContext
from pgm.core.status import AskerStatus
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND
from pgm.wire.formats import Nla, tsi_text

_MOST_ASKERS = 16  # children in the status
_UPWARD_PART = 2  # children pass up half of a parent's repairs at most, and the rest is for this node's own losses
_OWN: Nla = "own"  # instead of an address: this node
_OWN_PART = 4  # a quarter of all repairs is divided among newcomers that are beyond the budget of all newcomers


@attrs.define(eq=False)
class _Child:
    """Budget and monitor of one child's NAKs. `small_budget` limits requested sqns while the NAKs are excessive."""

    naks: TokenBucket
    monitor: ExcessiveNakMonitor
    since_ns: int  # the first NAK
    small_budget: TokenBucket = attrs.field(factory=unlimited)
    nak_packets: int = 0
    nak_sqns: int = 0
    braked: int = 0


class _Newcomers:
    """Senders that are neither named nor proven, and their budgets."""

    def __init__(self, context: SessionContext, naks: TokenBucket) -> None:
        self.table: OrderedDict[Nla, _Child] = OrderedDict()
        self.naks = naks
        self._proof_ivl = context.parameters.child_proof_ivl
        self._unit = context.parameters.max_tpdu
        self._own = FairShare(context, _OWN_PART)
        ivl = context.parameters.brake_burst_ivl
        self._rest = TokenBucket(max(1, self._own.octets * SECOND // ivl), ivl)
        self._exceeded_ns = -NEVER  # when newcomers last exceeded a budget

    def change(self, parameters: Parameters, now_ns: int) -> None:
        """Take the budgets of other parameters."""
        ivl = parameters.brake_burst_ivl
        self.naks.change(parameters.child_nak_rte, ivl, now_ns)
        self._rest.change(max(1, self._own.octets * SECOND // ivl), ivl, now_ns)

    def has_proof(self, known: _Child, now_ns: int) -> bool:
        """Return whether a newcomer is proven."""
        return now_ns - max(known.since_ns, self._exceeded_ns) >= self._proof_ivl

    def admit(self, child: Nla, octets: int, packets: int, now_ns: int, *, is_within: bool) -> bool:
        """Return whether a NAK is within the budgets of all newcomers, or within this newcomer's part of the rest."""
        cost = max(octets, packets * self._unit)
        is_own = self._own.take(child, cost, now_ns)
        if is_within:
            return True
        self._exceeded_ns = now_ns
        return is_own and self._rest.take(cost, now_ns)


class NakLimits:
    """Budgets of one session at a parent."""

    def __init__(self, context: SessionContext, named: NamedChildren = NO_CHILDREN) -> None:
        parameters = context.parameters
        self._parameters = parameters
        self._counters = context.counters
        self._name = f"session {tsi_text(context.tsi)}"
        self._named = named
        self._naks = self._bucket(parameters.session_nak_rte)
        self._ncfs = self._bucket(parameters.session_ncf_rte)
        self._spmr_free_at_ns = 0
        self._children: OrderedDict[Nla, _Child] = OrderedDict()  # named or proven
        self._newcomers = _Newcomers(context, self._bucket(parameters.child_nak_rte))
        self._shares = FairShare(context)
        self._upward = FairShare(context, _UPWARD_PART)
        self._excessive: dict[Nla, _Child] = {}
        self._lead = 0
        self._notices: list[Notice] = []
        self._noticed_ns = -NEVER  # when the last notice of a storm was made

    def _bucket(self, rate: int) -> TokenBucket:
        return TokenBucket(rate, self._parameters.brake_burst_ivl)

    def change(self, now_ns: int) -> None:
        """Take the budgets of the parameters as they are now."""
        parameters, burst_ns = self._parameters, self._parameters.brake_burst_ivl
        self._naks.change(parameters.session_nak_rte, burst_ns, now_ns)
        self._ncfs.change(parameters.session_ncf_rte, burst_ns, now_ns)
        self._newcomers.change(parameters, now_ns)

    def askers(self) -> list[AskerStatus]:
        """Return the remembered children that have requested the most packets."""
        known_ones = itertools.chain(self._children.items(), self._newcomers.table.items())
        most = heapq.nlargest(_MOST_ASKERS, known_ones, key=lambda item: (item[1].nak_sqns, item[0]))
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
        known = self._child(child, lead, now_ns)
        known.nak_packets += packets
        known.nak_sqns += sqns
        octets = sqns * self._parameters.max_tpdu if newest else 0
        is_new = child not in self._children
        has_packets = not is_new or self._newcomers.naks.take(packets, now_ns)
        asker = NEWCOMERS if is_new else child
        is_within = has_packets and (not octets or self._shares.take(asker, octets, now_ns))
        is_refused = is_new and not self._newcomers.admit(child, octets, packets, now_ns, is_within=is_within)
        if is_refused and self._shares.has_others(NEWCOMERS, now_ns):
            self._brake(known, "NAKs of unknown senders", child, packets, now_ns)
            return False
        if octets and self._parameters.excess_nak_window_ivl and child not in self._named.elements:
            self._lead = lead
            if known.monitor.asked(sqns, newest, lead, now_ns):
                self._changed(child, known)
            if not known.small_budget.take(sqns, now_ns):
                self._counters.excess_nak_packets += packets
                known.braked += packets
                return False
        if known.naks.take(packets, now_ns) and (self._naks.take(packets, now_ns) or (is_within and not is_new)):
            return True
        self._brake(known, "NAKs", child, packets, now_ns)
        return False

    def _child(self, child: Nla, lead: int, now_ns: int) -> _Child:
        """Return what is known of a child. Remember it, in the place of the one silent longest if necessary."""
        is_named = child in self._named.addresses or not self._parameters.child_proof_ivl
        table = self._children if is_named or child in self._children else self._newcomers.table
        known = table.pop(child, None)
        if known is None:
            is_element = child in self._named.elements
            rate = self._parameters.session_nak_rte if is_element else self._parameters.child_nak_rte
            known = _Child(self._bucket(rate), ExcessiveNakMonitor(self._parameters, lead, now_ns), now_ns)
        elif table is not self._children and self._newcomers.has_proof(known, now_ns):
            table = self._children
        table[child] = known
        if len(table) > self._parameters.max_children:
            forgotten, _ = table.popitem(last=False)
            self._excessive.pop(forgotten, None)
        return known

    def asker(self, child: Nla, now_ns: int) -> Nla:
        """Return the name under which a child has a share of repairs: all newcomers have one beside other children."""
        is_alone = child in self._children or not self._shares.has_others(NEWCOMERS, now_ns)
        return child if is_alone else NEWCOMERS

    def admit_upward(self, child: Nla, sqns: int, packets: int, now_ns: int, *, is_ending: bool = False) -> bool:
        """Return whether a child's request may be passed to a parent: no child may use up what this node may ask for.

        An element divides what it passes up itself. A source that has announced its end leaves when requests cease, and
        sends no more data: with `is_ending` the requests of named and proven children are not held.
        """
        asker = self.asker(child, now_ns)
        is_known = asker == child and child in self._children
        if child in self._named.elements or (is_ending and is_known and child not in self._excessive):
            return True
        least = (
            packets
            * self._upward.octets
            * SECOND
            // (self._parameters.child_nak_rte * self._parameters.brake_burst_ivl)
        )
        octets = max(sqns * self._parameters.max_tpdu, least)
        is_admitted = (
            self._upward.take_up_to(child, octets, self._upward.octets, now_ns)
            if is_known
            else self._upward.take(asker, octets, now_ns)
        )
        if is_admitted:
            return True
        self._counters.nak_packets_held += packets
        return False

    def note_own(self, sqns: int, now_ns: int) -> None:
        """Note a request for this node's own losses, so that its children leave it an equal share."""
        self._upward.is_beyond(_OWN, sqns * self._parameters.max_tpdu, now_ns)

    def charge(self, child: Nla, packets: int, now_ns: int) -> None:
        """Charge NAKs that no node can need, ahead of the lead for example, to their sender alone."""
        known = self._children.get(child)
        if known is None and child in self._named.addresses:
            known = self._child(child, self._lead, now_ns)
        (self._newcomers.naks if known is None else known.naks).take(packets, now_ns)

    def _brake(self, known: _Child, kind: str, child: Nla, packets: int, now_ns: int) -> None:
        self._counters.nak_packets_braked += packets
        known.braked += packets
        self._notice_storm(kind, child, now_ns)

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
