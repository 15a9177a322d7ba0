"""Adaptive rate of a source, which falls while receivers are overloaded.

RFC 3208 limits the rate of a source, but has no rule for a source that is too fast for its receivers. Overloaded
receivers drop packets and send NAKs, and the repairs add to the traffic. A NAK reaches the source only if no repairer
has the data. While the requested sqns exceed a share of the packets sent, each interval cuts the rate by a factor. While
they are few, the rate grows in steps (additive increase, multiplicative decrease). `txw_min_rte` is the least rate.
Without it the rate is constant, and one bad receiver slows no other.

Packets from before a cut tell nothing about the rate after the cut. Receivers request them for as long as the repairs
take. A cut for each interval of that time would leave hardly any rate for the repairs.

Overloaded receivers request few packets at a time, but late. Sqns that an asker requests later than after its promptest
NAKs therefore count several times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacing.pacer import Pacer
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND, format_rate
from pgm.wire.formats import Nla

# Cuts of 1/4 halve the rate in three intervals. Steps of 1/40 of the maximum undo one cut in ten intervals.
_CUT_BY = 4
_MOST_CUT = 8  # largest factor of a cut in one interval, since sqns that are requested twice count twice
_GROW_BY = 40
_GROW_AT_ONCE = 16  # a step is at most 1/16 of the rate, because a slow receiver is overloaded by little
_CALM = 4  # the rate grows below 1/4 of the share, and stays between 1/4 and all of the share
_LATE = 16  # weight of late sqns if they are more than half
_PUNCTUAL = 1  # interval after the promptest NAKs that is not late, since those may come early in an interval
_OLDEST = 32  # intervals in the past that are distinguished
_SPELL = 10  # intervals in a spell: the last two spells before a hold give the rate that receivers could take
_FADE_BY = 8  # a slower interval lowers the usual values by at most 1/8
_CHANCE = 3  # packets: a loss of so few in an interval may be chance


@attrs.define
class _Spell:
    """Octets sent in a period of `ns`."""

    ns: int = 0
    octets: int = 0


@attrs.define
class _Interval:
    """Counts of one interval: requested sqns sent since the last cut (`fresh`), and those requested late (`late`)."""

    asked: int = 0
    fresh: int = 0
    late: int = 0
    packets: int = 0
    octets: int = 0


class AdaptiveRate:
    """Rate at which a source sends, in octets a second."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.rate = self.most = parameters.txw_max_rte
        self._interval = _Interval()
        self._spell = self._spell_before = _Spell()
        self._was_held = False
        self._usual_packets = self._usual_rate = 0  # packets in an interval, octets a second
        self._cut_lead = -1  # the newest sqn that was sent before the last cut
        self._leads: list[int] = []  # the newest sqns at the ends of the last intervals, without idle intervals
        self._promptest: OrderedDict[Nla, int] = OrderedDict()  # by asker, the least delay of a NAK in intervals
        self._reviewed_at_ns = -parameters.txw_yield_ivl
        self.review_at_ns = 0 if parameters.txw_min_rte else NEVER  # when `review` must be called

    def asked(self, sqns: int, newest: int, asker: Nla) -> None:
        """Note the requested sqns of a NAK, and the newest of them.

        Lateness is relative to the asker's promptest NAK, so a distant asker is not late by its distance.
        """
        if self.review_at_ns == NEVER:
            return
        self._interval.asked += sqns
        if newest <= self._cut_lead:
            return
        intervals = len(self._leads) - bisect_left(self._leads, newest)
        promptest = min(self._promptest.pop(asker, _OLDEST), intervals)
        self._promptest[asker] = promptest
        if len(self._promptest) > self._parameters.max_children:
            self._promptest.popitem(last=False)
        self._interval.fresh += sqns
        self._interval.late += sqns if intervals > promptest + _PUNCTUAL else 0

    def sent(self, packets: int, octets: int) -> None:
        """Note data that was sent."""
        self._spell.octets += octets
        self.repaired(packets, octets)

    def repaired(self, packets: int, octets: int) -> None:
        """Note repairs that were sent. They count towards the usual rate, which may consist of repairs alone."""
        self._interval.packets += packets
        self._interval.octets += octets

    def limit_to(self, most: int) -> None:
        """Set the highest rate. A rate that was cut below `most` stays, and grows as usual."""
        if self.rate == self.most or self.rate > most:
            self.rate = most
        self.most = most

    def update(self, pacer: Pacer, counters: Counters, lead: int, now_ns: int, *, is_held: bool) -> Effects:
        """Review and apply the rate at an interval's end. Return a notice when it leaves or regains its maximum."""
        if not self.review(lead, now_ns, is_held=is_held):
            return NOTHING
        before = pacer.rate
        counters.rate_cuts += self.rate < before
        pacer.go_at(self.rate)
        if before == self.most:
            share = self._parameters.txw_yield_share
            return (Notice("slower", f"receivers request more than {share:.1%} of the packets sent, or request late"),)
        if self.rate == self.most:
            return (Notice("as-before", f"the source sends at {format_rate(self.rate)} again"),)
        return NOTHING

    def review(self, lead: int, now_ns: int, *, is_held: bool = False) -> bool:
        """Choose a new rate at the end of an interval.

        Return whether the rate has changed. `lead` is the newest sqn sent. `is_held` says that the window has kept data
        back.
        """
        if now_ns < self.review_at_ns:
            return False
        elapsed_ns, before, interval = now_ns - self._reviewed_at_ns, self.rate, self._interval
        self._reviewed_at_ns, self.review_at_ns = now_ns, now_ns + self._parameters.txw_yield_ivl
        # A NAK concerns earlier packets, and may come when the source sends little or nothing.
        fade_by = NEVER if is_held else _FADE_BY
        self._usual_packets = max(interval.packets, self._usual_packets - self._usual_packets // fade_by)
        self._usual_rate = max(interval.octets * SECOND // elapsed_ns, self._usual_rate - self._usual_rate // fade_by)
        share = self._parameters.txw_yield_share * self._usual_packets
        weight = _LATE if 2 * interval.late > interval.fresh else 1
        is_too_much = interval.fresh > max(_CHANCE, share / weight)
        if is_too_much:
            self._cut(interval.fresh / max(1, self._usual_packets))
        elif interval.asked * _CALM <= max(_CHANCE, share) and not is_held:
            self._grow()
        self._note_hold(elapsed_ns, is_held=is_held)
        if is_too_much or self.rate < before:
            self._cut_lead = lead
        if is_held or self._leads[-1:] != [lead]:  # without later packets the loss of the newest one is noticed late
            self._leads = [*self._leads[1 - _OLDEST :], lead]
        self._interval = _Interval()
        return self.rate != before

    def _note_hold(self, elapsed_ns: int, *, is_held: bool) -> None:
        """Lower the rate at the end of a hold, to the mean rate of the last two spells.

        A window that had to wait for repairs shows that the source was too fast. The mean rate is the rate that
        receivers could take. Idle intervals do not count, because they tell nothing about that rate.
        """
        spell, before = self._spell, self._spell_before
        is_idle = not (self._interval.octets or self._was_held or is_held)
        spell.ns += elapsed_ns if spell.octets and not is_idle else 0
        has_ended = self._was_held and not is_held
        if has_ended:
            mean = (spell.octets + before.octets) * SECOND // max(1, spell.ns + before.ns)
            self.rate = max(min(self._parameters.txw_min_rte, self.rate), min(self.rate, mean))
        if has_ended or (not is_held and spell.ns > _SPELL * self._parameters.txw_yield_ivl):
            self._spell_before, self._spell = spell, _Spell()
        self._was_held = is_held

    def _cut(self, share: float) -> None:
        """Cut the rate in proportion to the lost share.

        A cut takes at least 1 / `_CUT_BY` of the rate, and leaves at least 1 / `_MOST_CUT`. If most packets are lost,
        small steps would take too long. The base is the lower of rate and usual rate, because a source at full speed
        may send less than its rate allows.
        """
        left = min(1 - 1 / _CUT_BY, max(1 / _MOST_CUT, 1 - share))
        reached = min(self.rate, self._usual_rate)
        self.rate = max(min(self._parameters.txw_min_rte, self.rate), int(reached * left))
        if self.rate < reached:  # the usual number of packets falls with the rate
            self._usual_packets = self._usual_packets * self.rate // reached

    def _grow(self) -> None:
        step = min(self.most // _GROW_BY, max(self.rate // _GROW_AT_ONCE, self._parameters.txw_min_rte))
        self.rate = min(self.most, self.rate + step)
