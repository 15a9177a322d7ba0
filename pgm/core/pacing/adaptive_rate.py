"""A source that slows down while its receivers drown, and goes on as before once they do not.

RFC 3208 limits the rate of a source and says nothing of one that is too fast for its receivers: they overflow, ask, and
what they ask for is sent on top. NAKs that reach the source are for what no repairer has. While they are more than a share
of what is sent, the rate is cut by a factor, interval by interval; while they are few it grows by steps (additive increase,
multiplicative decrease). `txw_min_rte` is the least rate; without it nothing here happens, and one bad receiver slows
nobody.

What was sent before a cut says nothing of the rate since: receivers ask for it for as long as its repairs take, and a cut for
each interval of that would leave hardly any rate to repair it with. And receivers that drown ask for little at a time, but
late. So what one asks for later than his promptest NAKs came counts several times.
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

# A quarter off at a time halves the rate in three intervals; a fortieth back makes good in ten what one took.
_CUT_BY = 4
_MOST_CUT = 8  # times less in one interval: what is asked for twice counts twice
_GROW_BY = 40
_GROW_AT_ONCE = 16  # but by a sixteenth of itself at most: what bears little is overrun by little
_CALM = 4  # the part of the share below which the rate grows: between the two it stays
_LATE = 16  # times what is asked for late counts, where it is more than half
_PUNCTUAL = 1  # interval more than the promptest NAKs is not late: theirs may be the beginning of one
_OLDEST = 32  # intervals that are told apart
_SPELL = 10  # intervals over which is counted what was borne before a window had to wait; and as many before them
_FADE_BY = 8  # part of what is usual that an interval with less takes off it
_CHANCE = 3  # packets: so few lost of an interval's few say nothing of its rate


@attrs.define
class _Spell:
    """What was sent in some time."""

    ns: int = 0
    octets: int = 0


class AdaptiveRate:
    """The rate at which a source sends, in octets a second."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.rate = self.most = parameters.txw_max_rte
        # Sqns asked for: all, those sent since the last cut, and of them those asked for late.
        self._asked = self._fresh = self._late = 0
        self._sent = self._octets = 0
        self._spell = self._spell_before = _Spell()
        self._was_held = False
        self._usual_packets = self._usual_rate = 0  # of an interval; octets a second
        self._cut_lead = -1  # the newest sqn that was sent before the last cut
        self._leads: list[int] = []  # the newest sqns sent by the ends of the last intervals, idle ones left out
        self._promptest: OrderedDict[Nla, int] = OrderedDict()  # by asker, intervals after which the promptest NAK came
        self._reviewed_at_ns = -parameters.txw_yield_ivl
        self.review_at_ns = 0 if parameters.txw_min_rte else NEVER  # when `review` has something to do

    def asked(self, sqns: int, newest: int, asker: Nla) -> None:
        """Note what a NAK asked for, and the newest sqn of it. Whoever is far away is late by what is prompt for him."""
        if self.review_at_ns == NEVER:
            return
        self._asked += sqns
        if newest <= self._cut_lead:
            return
        intervals = len(self._leads) - bisect_left(self._leads, newest)
        promptest = min(self._promptest.pop(asker, _OLDEST), intervals)
        self._promptest[asker] = promptest
        if len(self._promptest) > self._parameters.max_children:
            self._promptest.popitem(last=False)
        self._fresh += sqns
        self._late += sqns if intervals > promptest + _PUNCTUAL else 0

    def sent(self, packets: int, octets: int) -> None:
        """Note data."""
        self._spell.octets += octets
        self.repaired(packets, octets)

    def repaired(self, packets: int, octets: int) -> None:
        """Note repairs: a source that only repairs goes as fast as it repairs."""
        self._sent += packets
        self._octets += octets

    def limit_to(self, most: int) -> None:
        """From now on the rate is `most` where nobody asks for too much; one that is lower grows as before."""
        if self.rate == self.most or self.rate > most:
            self.rate = most
        self.most = most

    def update(self, pacer: Pacer, counters: Counters, lead: int, now_ns: int, *, is_held: bool) -> Effects:
        """Choose the rate anew if an interval is over, and let data go at it; tells when it leaves the most, and when it is there again."""
        if not self.review(lead, now_ns, is_held=is_held):
            return NOTHING
        before = pacer.rate
        counters.rate_cuts += self.rate < before
        pacer.go_at(self.rate)
        if before == self.most:
            share = self._parameters.txw_yield_share
            return (Notice("slower", f"receivers ask for more than {share:.1%} of what is sent, or late"),)
        if self.rate == self.most:
            return (Notice("as-before", f"the source sends at {format_rate(self.rate)} again"),)
        return NOTHING

    def review(self, lead: int, now_ns: int, *, is_held: bool = False) -> bool:
        """Choose the rate anew if an interval is over, up to sqn `lead`; says whether it is another one. A window that `is_held` kept data back."""
        if now_ns < self.review_at_ns:
            return False
        elapsed_ns, before = now_ns - self._reviewed_at_ns, self.rate
        self._reviewed_at_ns, self.review_at_ns = now_ns, now_ns + self._parameters.txw_yield_ivl
        # A NAK is for what was sent earlier: it may come when little is sent any more, or nothing.
        fade_by = NEVER if is_held else _FADE_BY
        self._usual_packets = max(self._sent, self._usual_packets - self._usual_packets // fade_by)
        self._usual_rate = max(self._octets * SECOND // elapsed_ns, self._usual_rate - self._usual_rate // fade_by)
        share = self._parameters.txw_yield_share * self._usual_packets
        weight = _LATE if 2 * self._late > self._fresh else 1
        is_too_much = self._fresh > max(_CHANCE, share / weight)
        if is_too_much:
            self._cut(self._fresh / max(1, self._usual_packets))
        elif self._asked * _CALM <= max(_CHANCE, share) and not is_held:
            self._grow()
        self._note_hold(elapsed_ns, is_held=is_held)
        if is_too_much or self.rate < before:
            self._cut_lead = lead
        if is_held or self._leads[-1:] != [lead]:  # else nothing came after it: its loss shows late
            self._leads = [*self._leads[1 - _OLDEST :], lead]
        self._asked = self._fresh = self._late = self._sent = self._octets = 0
        return self.rate != before

    def _note_hold(self, elapsed_ns: int, *, is_held: bool) -> None:
        """A window that had to wait for repairs was too fast on the whole: what it sent by then is what was borne."""
        spell, before = self._spell, self._spell_before
        is_idle = not (self._octets or self._was_held or is_held)  # by itself: that says nothing of what is borne
        spell.ns += elapsed_ns if spell.octets and not is_idle else 0
        has_ended = self._was_held and not is_held
        if has_ended:
            borne = (spell.octets + before.octets) * SECOND // max(1, spell.ns + before.ns)
            self.rate = max(min(self._parameters.txw_min_rte, self.rate), min(self.rate, borne))
        if has_ended or (not is_held and spell.ns > _SPELL * self._parameters.txw_yield_ivl):
            self._spell_before, self._spell = spell, _Spell()
        self._was_held = is_held

    def _cut(self, share: float) -> None:
        """Send less than usual, by what a share of did not arrive; where that is most of it, small steps would come too late.

        A source that is told to send as fast as it can gets less out than its rate allows.
        """
        left = min(1 - 1 / _CUT_BY, max(1 / _MOST_CUT, 1 - share))
        reached = min(self.rate, self._usual_rate)
        self.rate = max(min(self._parameters.txw_min_rte, self.rate), int(reached * left))
        if self.rate < reached:  # fewer are usual from now on, and what was sent by now cuts no further
            self._usual_packets = self._usual_packets * self.rate // reached

    def _grow(self) -> None:
        """A step up."""
        step = min(self.most // _GROW_BY, max(self.rate // _GROW_AT_ONCE, self._parameters.txw_min_rte))
        self.rate = min(self.most, self.rate + step)
