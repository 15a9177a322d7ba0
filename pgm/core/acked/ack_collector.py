"""What a parent does with the acks of its children: keep them, confirm them, and forget children that are gone or stuck.

A child that is silent for `ack_expiry` is gone. A receiver that acknowledges the same sqn for `ack_stall_ivl` while there is more is
stuck, with an application that takes nothing, say; it does not count again before it has caught up. An element forgets such
receivers itself, and sooner than anybody above could tell which one it is; so one whose own acks stand still, for `ack_element_ivl`,
is broken, or somebody speaks in its name.

What a child claims concerns itself: a receiver is one member whatever it says, an element so many at most, staying or leaving, and
whoever leaves and comes back is as old as before.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Sequence

import attrs

from pgm.core.acked.ack_table import AckChild, AckTable, Place
from pgm.core.acked.ack_terms import AckTerms, ack_packet
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice, control
from pgm.core.segment import Segment
from pgm.core.status import AckStatus
from pgm.parameters import Parameters
from pgm.units import NEVER, format_duration
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import Members

_MOST_SHOWN = 16  # children in a status


@attrs.frozen
class AckReport:
    """What an ack said, in 64 bits."""

    acked: int
    members: Members
    lead: int  # the newest sqn sent, as far as is known here


@attrs.frozen
class DepartedChild:
    """What a child had when it went, for how many it spoke, and for how long its acks had stood still; whether it said goodbye."""

    acked: int
    members: int
    stalled_ns: int
    has_left: bool


class AckCollector:
    """The children of one node in one session."""

    def __init__(
        self, tsi: Tsi, data_port: int, downs: Sequence[Segment], parameters: Parameters, counters: Counters
    ) -> None:
        self.table = AckTable(parameters.max_children)
        self._tsi = tsi
        self._data_port = data_port
        self._segments = {segment.index: segment for segment in downs}
        self._counters = counters
        self._limit = parameters.max_children
        self._most_members = parameters.ack_child_members
        self._element_ivl = parameters.ack_element_ivl
        self._former: OrderedDict[Place, DepartedChild] = OrderedDict()  # the last that went
        self._stuck: OrderedDict[Place, None] = OrderedDict()  # children that count again when they have caught up
        self._owed: set[int] = set()  # segments on which acks were heard since the last confirmation
        self._confirm_ns = NEVER
        self._confirmed_ns = -NEVER
        self._review_ns = NEVER

    @property
    def deadline_ns(self) -> int:
        """When acks are confirmed, or children looked at."""
        return min(self._confirm_ns, self._review_ns)

    def departed(self, quorum: int = 1) -> int:
        """What so many members had, or one that spoke for as many, that have said goodbye; -1 if there were not."""
        left = [former for former in self._former.values() if former.has_left]
        for former in heapq.nlargest(quorum, left, key=lambda one: one.acked):
            quorum -= former.members
            if quorum <= 0:
                return former.acked
        return -1

    def goodbyes(self, acked: int) -> int:
        """How many members said goodbye that had `acked`, as far as they are remembered."""
        return sum(one.members for one in self._former.values() if one.has_left and one.acked >= acked)

    def status(self, stable: int, terms: AckTerms, parent: Nla = "") -> AckStatus:
        """What operators see of the children."""
        return AckStatus(
            stable=stable,
            members=self.table.members,
            held_up_by=self.table.holder,
            parent=parent,
            window=terms.window,
            acks=self.table.slowest(_MOST_SHOWN),
        )

    def on_ack(self, heard: AckReport, segment: Segment, peer: Nla, terms: AckTerms, now_ns: int) -> Effects:
        """Take an ack of a child; a first or last one is confirmed to it alone."""
        self._counters.ack_packets_in += 1
        place, said = (segment.index, peer), heard.members
        before = self.table.get(place)
        if not self._counts(place, heard, is_known=before is not None):
            self._counters.acks_refused += 1
            return NOTHING
        members = self._members_of(said)
        if said.leaves and before is not None:
            members = max(members, before.members)  # an element that has just lost all of its children says 0
        child = AckChild(
            acked=heard.acked,
            members=members,
            holder=said.holder if said.is_element else peer,
            is_element=said.is_element,
            heard_ns=now_ns,
            moved_ns=self._moved_ns(place, before, heard, now_ns),
        )
        if said.leaves:
            self._counters.members_left += before is not None
        else:
            self._counters.members_joined += before is None
            self._owed.add(segment.index)
            self._confirm_ns = min(self._confirm_ns, max(now_ns, self._confirmed_ns + terms.keepalive))
            self._review_ns = min(self._review_ns, now_ns + terms.keepalive)
        self.table.note(place, child)  # of one that leaves too: what it said last counts before it is forgotten
        return (self._confirmation(segment, heard.lead, peer),) if said.joins or said.leaves else NOTHING

    def _members_of(self, said: Members) -> int:
        return min(said.members, self._most_members) if said.is_element else 1

    def _moved_ns(self, place: Place, before: AckChild | None, heard: AckReport, now_ns: int) -> int:
        """Since when a child stands where it does."""
        if heard.acked >= heard.lead:
            return now_ns
        if before is not None:
            return now_ns if heard.acked > before.acked else before.moved_ns
        former = self._former.get(place)
        return now_ns if former is None or heard.acked > former.acked else now_ns - former.stalled_ns

    def forget(self, segment: Segment, peer: Nla) -> None:
        """A child has left, and what it said last was seen."""
        self._remove((segment.index, peer), has_left=True)

    def _remove(self, place: Place, *, has_left: bool = False) -> None:
        child = self.table.remove(place)
        if child is None:
            return
        self._former[place] = DepartedChild(child.acked, child.members, child.heard_ns - child.moved_ns, has_left)
        self._former.move_to_end(place)
        if len(self._former) > self._limit:
            self._former.popitem(last=False)

    def _counts(self, place: Place, heard: AckReport, *, is_known: bool) -> bool:
        if place in self._stuck:
            if heard.acked < (heard.lead if self.table.low is None else self.table.low):
                return False
            del self._stuck[place]
        return is_known or heard.members.leaves or not self.table.is_full

    def handle_deadline(self, terms: AckTerms, lead: int, now_ns: int) -> list[Effect]:
        """Confirm what was heard; forget who is gone or stuck."""
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
                text = (
                    f"{place[1]} has not acknowledged for {format_duration(terms.expiry)}: nobody waits for it any more"
                )
                notices.append(Notice("member-silent", text))
            elif child.acked < lead and now_ns - child.moved_ns >= self._response_timeout(child, terms):
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

    def _response_timeout(self, child: AckChild, terms: AckTerms) -> int:
        """For how long a child may stand still: an element longer than what it takes to forget those below it."""
        return max(self._element_ivl, terms.stall + terms.expiry) if child.is_element else terms.stall

    def _stuck_notice(self, who: Nla, child: AckChild, terms: AckTerms) -> Notice:
        ivl = format_duration(self._response_timeout(child, terms))
        if child.is_element:
            text = f"the element {who} has acknowledged {child.acked} for {ivl}: nobody waits for those below it until it has caught up"
            return Notice("element-stuck", text)
        return Notice("member-stuck", f"{who} takes nothing for {ivl}: nobody waits for it until it has caught up")

    def _confirmation(self, segment: Segment, lead: int, to: Nla | None = None) -> Effect:
        self._counters.ack_confirmations += 1
        low = self.table.low
        said = Members(members=self.table.members, holder=segment.address, confirms=True, joins=to is not None)
        packet = ack_packet(self._tsi, self._data_port, lead if low is None else low, said)
        return control(segment, packet, to=to, hops=1 if to is None else None)
