"""Collector of the acks of a parent's children.

The collector records and confirms acks, and forgets silent and stuck children. A child that is silent for `ack_expiry`
is gone. A receiver that acknowledges the same sqn for `ack_stall_ivl`, while more was sent, is stuck, for example with
an application that reads nothing. A stuck receiver does not count again before it has caught up. An element forgets
stuck receivers itself, sooner than a parent of the element can tell which receiver is stuck. An element with unchanged
acks for `ack_element_ivl` is therefore broken, or its acks are forged.

The claims of a child are limited. A receiver is one member for any number in its ack. An element is at most
`ack_child_members`, on its goodbye too. A child that leaves and returns keeps the age of its acks.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence

import attrs

from pgm.core.acked.ack_table import AckChild, AckTable, Place
from pgm.core.acked.ack_terms import AckTerms, ack_packet
from pgm.core.effects import NOTHING, Effect, Effects, Notice, control
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.status import AckLag, AckStatus
from pgm.units import NEVER, format_duration
from pgm.wire.formats import Nla
from pgm.wire.options import Members

_MOST_SHOWN = 16  # children in the status


@attrs.frozen
class AckReport:
    """Content of an ack, with 64-bit sqns."""

    acked: int
    members: Members
    lead: int  # the newest sqn known to be sent


@attrs.frozen
class DepartedChild:
    """Last ack of a child that was removed."""

    acked: int
    members: int  # receivers that the child spoke for
    stalled_ns: int  # time without progress before its last ack
    has_left: bool  # the child said goodbye


_NOT_DEPARTED = DepartedChild(acked=-NEVER, members=0, stalled_ns=0, has_left=False)


class AckCollector:
    """Acks of one node's children in one session."""

    def __init__(self, context: SessionContext, downs: Sequence[Segment]) -> None:
        parameters = context.parameters
        self.table = AckTable(parameters.max_children)
        self._tsi = context.tsi
        self._data_port = context.data_port
        self._segments = {segment.index: segment for segment in downs}
        self._counters = context.counters
        self._limit = parameters.max_children
        self._most_members = parameters.ack_child_members
        self._element_ivl = parameters.ack_element_ivl
        self._former: OrderedDict[Place, DepartedChild] = OrderedDict()  # the children that were removed last
        self._stuck: OrderedDict[Place, None] = OrderedDict()  # children that count again once they have caught up
        self._owed: set[int] = set()  # segments with acks since the last confirmation
        self._confirm_ns = NEVER
        self._confirmed_ns = -NEVER
        self._review_ns = NEVER

    @property
    def deadline_ns(self) -> int:
        """Return when acks must be confirmed, or children reviewed."""
        return min(self._confirm_ns, self._review_ns)

    def departed(self, quorum: int = 1) -> int:
        """Return the highest ack position that a quorum of departed members share.

        A departed child covers the members that it spoke for. Return -1 if too few members have said goodbye.
        """
        left = [former for former in self._former.values() if former.has_left]
        for former in heapq.nlargest(quorum, left, key=lambda former: former.acked):
            quorum -= former.members
            if quorum <= 0:
                return former.acked
        return -1

    def goodbyes(self, acked: int) -> int:
        """Return how many departed members had acknowledged `acked`: remembered members that said goodbye."""
        departed = self._former.values()
        return sum(former.members for former in departed if former.has_left and former.acked >= acked)

    def status(self, stable: int, lead: int, terms: AckTerms, parent: Nla = "") -> AckStatus:
        """Return the status of the children, for operators."""
        slowest = self.table.slowest(_MOST_SHOWN)
        return AckStatus(
            stable=stable,
            members=self.table.members,
            held_up_by=self.table.holder,
            parent=parent,
            window=terms.window,
            acks={place[1]: child.acked for place, child in slowest},
            lag=max(0, lead - stable),
            lags=[
                AckLag(
                    address=place[1],
                    lag=max(0, lead - child.acked),
                    members=child.members,
                    is_branch=child.is_element,
                    held_up_by=child.holder,
                )
                for place, child in slowest
            ],
        )

    def on_ack(self, report: AckReport, segment: Segment, peer: Nla, terms: AckTerms, now_ns: int) -> Effects:
        """Take an ack of a child. A first or last ack is confirmed by unicast to the child."""
        self._counters.ack_packets_in += 1
        place, said = (segment.index, peer), report.members
        is_known = place in self.table
        if not self._counts(place, report, is_known=is_known):
            self._counters.acks_refused += 1
            return NOTHING
        members = self._members_of(said)
        if said.leaves and is_known:
            members = max(
                members, self.table[place].members
            )  # an element that has just lost all its children reports 0
        child = AckChild(
            acked=report.acked,
            members=members,
            holder=said.holder if said.is_element else peer,
            is_element=said.is_element,
            heard_ns=now_ns,
            moved_ns=self._moved_ns(place, report, now_ns),
        )
        if said.leaves:
            self._counters.members_left += is_known
        else:
            self._counters.members_joined += not is_known
            self._owed.add(segment.index)
            self._confirm_ns = min(self._confirm_ns, max(now_ns, self._confirmed_ns + terms.keepalive))
            self._review_ns = min(self._review_ns, now_ns + terms.keepalive)
        self.table.note(place, child)  # also of a child that leaves: its last ack counts before the child is forgotten
        return (self._confirmation(segment, report.lead, peer),) if said.joins or said.leaves else NOTHING

    def _members_of(self, said: Members) -> int:
        return min(said.members, self._most_members) if said.is_element else 1

    def _moved_ns(self, place: Place, report: AckReport, now_ns: int) -> int:
        """Return when a child last made progress, or lacked nothing."""
        if place in self.table:
            acked, moved_ns = self.table[place].acked, self.table[place].moved_ns
        else:
            former = self._former.get(place, _NOT_DEPARTED)
            acked, moved_ns = former.acked, now_ns - former.stalled_ns
        return now_ns if report.acked > acked or report.acked >= report.lead else moved_ns

    def forget(self, segment: Segment, peer: Nla) -> None:
        """Forget a child that has left, after its last ack was taken into account."""
        place = (segment.index, peer)
        if place in self.table:
            self._remove(place, has_left=True)

    def _remove(self, place: Place, *, has_left: bool = False) -> None:
        child = self.table.remove(place)
        self._former[place] = DepartedChild(child.acked, child.members, child.heard_ns - child.moved_ns, has_left)
        self._former.move_to_end(place)
        if len(self._former) > self._limit:
            self._former.popitem(last=False)

    def _counts(self, place: Place, report: AckReport, *, is_known: bool) -> bool:
        if place in self._stuck:
            if report.acked < self.table.low_or(report.lead):
                return False
            del self._stuck[place]
        return is_known or report.members.leaves or not self.table.is_full

    def handle_deadline(self, terms: AckTerms, lead: int, now_ns: int) -> list[Effect]:
        """Confirm acks, and forget silent and stuck children. Return confirmations and notices."""
        effects: list[Effect] = []
        if now_ns >= self._review_ns:
            effects += self._review(terms, lead, now_ns)
        if now_ns >= self._confirm_ns:
            for index in sorted(self._owed):
                effects.append(self._confirmation(self._segments[index], lead))
            self._owed.clear()
            self._confirm_ns, self._confirmed_ns = NEVER, now_ns
        return effects

    def _review(self, terms: AckTerms, lead: int, now_ns: int) -> list[Effect]:
        notices: list[Effect] = []
        for place, child in list(self.table):
            if now_ns - child.heard_ns >= terms.expiry:
                self._counters.members_expired += 1
                text = f"{place[1]} has not acknowledged for {format_duration(terms.expiry)}: the source does not wait for it any more"
                notices.append(Notice("member-silent", text))
            elif child.acked < lead and now_ns - child.moved_ns >= self._stall_timeout(child, terms):
                self._counters.members_stuck += 1
                notices.append(self._stuck_notice(place[1], child, terms))
                self._stuck[place] = None
                if len(self._stuck) > self._limit:
                    self._stuck.popitem(last=False)
            else:
                continue
            self._remove(place)
        self._review_ns = now_ns + terms.keepalive if len(self.table) else NEVER
        return notices

    def _stall_timeout(self, child: AckChild, terms: AckTerms) -> int:
        """Return how long a child may go without progress. An element first needs time to forget receivers below."""
        return max(self._element_ivl, terms.stall + terms.expiry) if child.is_element else terms.stall

    def _stuck_notice(self, address: Nla, child: AckChild, terms: AckTerms) -> Notice:
        ivl = format_duration(self._stall_timeout(child, terms))
        stuck, until = f"{address} has acknowledged no more than {child.acked} for {ivl}", "until it has caught up"
        if child.is_element:
            text = f"the element {stuck}: the source does not wait for receivers below it {until}"
            return Notice("element-stuck", text)
        return Notice("member-stuck", f"{stuck}: the source does not wait for it {until}")

    def _confirmation(self, segment: Segment, lead: int, to: Nla | None = None) -> Effect:
        self._counters.ack_confirmations += 1
        said = Members(members=self.table.members, holder=segment.address, confirms=True, joins=to is not None)
        packet = ack_packet(self._tsi, self._data_port, self.table.low_or(lead), said)
        return control(segment, packet, to=to, hops=1 if to is None else None)
