"""Collector of the acks of a parent's children.

The collector records and confirms acks, and forgets silent and stuck children. A child that is silent for `ack_expiry`
is gone. A receiver that acknowledges the same sqn for `ack_stall_ivl`, while more was sent, is stuck, for example with
an application that reads nothing. A stuck receiver does not count again before it has caught up. An element forgets
stuck receivers itself, sooner than a parent of the element can tell which receiver is stuck. An element with unchanged
acks for `ack_element_ivl` is therefore broken, or its acks are forged. The same times hold for a child that moves on by
less than the least progress (`LeastProgress`) while it holds up the source.

If the topology names all children, no other address is a member: its acks are refused and reported.

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
from pgm.core.acked.least_progress import LeastProgress
from pgm.core.effects import NOTHING, Effect, Effects, Notice, control
from pgm.core.named_children import NamedChildren
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.status import AckLag, AckStatus
from pgm.units import NEVER, format_duration
from pgm.wire.formats import Nla
from pgm.wire.options import Members

_MOST_SHOWN = 16  # children in the status
_MOST_TIMES = 8  # doublings of the time for which a child that is stuck again and again does not count
_FORGIVEN = 4  # a child that counted for 2^4 times its last wait begins anew


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


@attrs.define
class StuckChild:
    """Child that no node waits for until it has caught up."""

    until_ns: int  # not before this time, even if it has caught up
    times: int  # how often in a row


_NOT_DEPARTED = DepartedChild(acked=-NEVER, members=0, stalled_ns=0, has_left=False)


class AckCollector:
    """Acks of one node's children in one session."""

    def __init__(self, context: SessionContext, downs: Sequence[Segment], named: NamedChildren) -> None:
        parameters = context.parameters
        self._parameters = parameters
        self._named = named
        self._progress = LeastProgress(parameters.ack_least_share)
        self._noticed_ns = -NEVER  # when the last refused address was reported
        self.table = AckTable(parameters.max_children)
        self._tsi = context.tsi
        self._data_port = context.data_port
        self._segments = {segment.index: segment for segment in downs}
        self._counters = context.counters
        self._former: OrderedDict[Place, DepartedChild] = OrderedDict()  # the children that were removed last
        self._stuck: OrderedDict[Place, StuckChild] = OrderedDict()  # they count again once they have caught up
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
        if self._named.are_all and peer not in self._named.addresses:
            return self._unlisted(peer, now_ns)
        is_known = place in self.table
        if not self._counts(place, report, now_ns, is_known=is_known):
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
        if self._progress.holds(report.acked, report.lead, terms):
            before = self.table[place] if is_known and self.table[place].held_since_ns != NEVER else None
            child.held_from = report.acked if before is None else before.held_from
            child.held_since_ns = now_ns if before is None else before.held_since_ns
        if said.leaves:
            self._counters.members_left += is_known
        else:
            self._counters.members_joined += not is_known
            self._owed.add(segment.index)
            self._confirm_ns = min(self._confirm_ns, max(now_ns, self._confirmed_ns + terms.keepalive))
            self._review_ns = min(self._review_ns, now_ns + terms.keepalive)
        self._progress.note(self.table.low_or(report.lead), report.lead, terms, now_ns)
        self.table.note(place, child)  # also of a child that leaves: its last ack counts before the child is forgotten
        return (self._confirmation(segment, report.lead, peer),) if said.joins or said.leaves else NOTHING

    def _unlisted(self, peer: Nla, now_ns: int) -> Effects:
        """Refuse an ack of an address that the topology does not name. Report one such address in `notice_ivl`."""
        self._counters.acks_unlisted += 1
        if now_ns - self._noticed_ns < self._parameters.notice_ivl:
            return NOTHING
        self._noticed_ns = now_ns
        text = f"{peer} sends acks, and the topology names no such node: the source does not wait for it"
        return (Notice("member-unlisted", text),)

    def _members_of(self, said: Members) -> int:
        return min(said.members, self._parameters.ack_child_members) if said.is_element else 1

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
        if len(self._former) > self._parameters.max_children:
            self._former.popitem(last=False)

    def _counts(self, place: Place, report: AckReport, now_ns: int, *, is_known: bool) -> bool:
        stuck = self._stuck.get(place)
        if (
            stuck is not None
            and not is_known
            and (now_ns < stuck.until_ns or report.acked < self.table.low_or(report.lead))
        ):
            return False
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
        self._progress.note(self.table.low_or(lead), lead, terms, now_ns)
        for place, child in list(self.table):
            if now_ns - child.heard_ns >= terms.expiry:
                self._counters.members_expired += 1
                text = f"{place[1]} has not acknowledged for {format_duration(terms.expiry)}: the source does not wait for it any more"
                notices.append(Notice("member-silent", text))
            elif child.acked < lead and now_ns - child.moved_ns >= self._stall_timeout(child, terms):
                self._counters.members_stuck += 1
                notices.append(self._stuck_notice(place[1], child, terms))
                self._exclude(place, child, terms, now_ns)
            elif self._is_too_slow(child, lead, terms, now_ns):
                self._counters.members_slow += 1
                notices.append(self._slow_notice(place[1], child, terms))
                self._exclude(place, child, terms, now_ns)
            else:
                continue
            self._remove(place)
        self._review_ns = now_ns + terms.keepalive if len(self.table) else NEVER
        return notices

    def _exclude(self, place: Place, child: AckChild, terms: AckTerms, now_ns: int) -> None:
        """Let a child count again once it has caught up: at once the first time, later and later while this recurs."""
        former = self._stuck.pop(place, None)
        wait = self._stall_timeout(child, terms)
        times = 0
        if former is not None and now_ns < former.until_ns + (wait << former.times + _FORGIVEN):
            times = min(former.times + 1, _MOST_TIMES)
        self._stuck[place] = StuckChild(now_ns + (wait << times - 1 if times else 0), times)
        if len(self._stuck) > self._parameters.max_children:
            self._stuck.popitem(last=False)

    def _is_too_slow(self, child: AckChild, lead: int, terms: AckTerms, now_ns: int) -> bool:
        """Return whether a child has held up the source and made less than the least progress meanwhile."""
        if child.held_since_ns == NEVER:
            return False
        wait = self._stall_timeout(child, terms)
        if now_ns - child.held_since_ns < wait:
            return False
        if child.acked - child.held_from < self._progress.least(wait, terms):
            return self._progress.holds(child.acked, lead, terms)
        child.held_from, child.held_since_ns = child.acked, now_ns
        return False

    def _stall_timeout(self, child: AckChild, terms: AckTerms) -> int:
        """Return how long a child may go without progress. An element first needs time to forget receivers below."""
        return max(self._parameters.ack_element_ivl, terms.stall + terms.expiry) if child.is_element else terms.stall

    def _stuck_notice(self, address: Nla, child: AckChild, terms: AckTerms) -> Notice:
        ivl = format_duration(self._stall_timeout(child, terms))
        stuck, until = f"{address} has acknowledged no more than {child.acked} for {ivl}", "until it has caught up"
        if child.is_element:
            text = f"the element {stuck}: the source does not wait for receivers below it {until}"
            return Notice("element-stuck", text)
        return Notice("member-stuck", f"{stuck}: the source does not wait for it {until}")

    def _slow_notice(self, address: Nla, child: AckChild, terms: AckTerms) -> Notice:
        wait = self._stall_timeout(child, terms)
        taken, least = child.acked - child.held_from, self._progress.least(wait, terms)
        text = (
            f"{'the element ' if child.is_element else ''}{address} has held up the source for "
            f"{format_duration(wait)} and acknowledged {taken} packets, where {least} are the least: "
            f"the source does not wait for {'receivers below it' if child.is_element else 'it'} until it has caught up"
        )
        return Notice("member-slow", text)

    def _confirmation(self, segment: Segment, lead: int, to: Nla | None = None) -> Effect:
        self._counters.ack_confirmations += 1
        said = Members(members=self.table.members, holder=segment.address, confirms=True, joins=to is not None)
        packet = ack_packet(self._tsi, self._data_port, self.table.low_or(lead), said)
        return control(segment, packet, to=to, hops=1 if to is None else None)
