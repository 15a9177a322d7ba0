"""A source that slows down while its receivers drown, and goes on as before once they do not.

RFC 3208 limits the rate of a source and says nothing of one that is too fast for its receivers: they overflow, ask, and
what they ask for is sent on top. NAKs that reach the source are for what no repairer has. While they are more than a share
of what is sent, the rate is cut by a factor, interval by interval; while they are few it grows by steps (additive increase,
multiplicative decrease). `txw_min_rte` is the least rate; without it nothing here happens, and one bad receiver slows
nobody.
"""

from __future__ import annotations

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.pacer import Pacer
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND, format_rate

# A quarter off at a time halves the rate in three intervals; a fortieth back makes good in ten what one took.
_CUT_BY = 4
_MOST_CUT = 8  # times less in one interval: what is asked for twice counts twice
_GROW_BY = 40
_CALM = 4  # the part of the share below which the rate grows: between the two it stays
_CHANCE = 3  # packets: so few lost of an interval's few say nothing of its rate


class Yielding:
    """The rate at which a source sends, in octets a second."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.rate = self.most = parameters.txw_max_rte
        self._asked = self._sent = self._octets = 0
        self._sent_before = 0  # in the last interval in which anything was
        self._reviewed_at_ns = -parameters.txw_yield_ivl
        self.review_at_ns = 0 if parameters.txw_min_rte else NEVER  # when `review` has something to do

    def asked(self, sqns: int) -> None:
        """Note what a NAK asked for."""
        self._asked += sqns

    def sent(self, packets: int, octets: int) -> None:
        """Note data, repairs too: a source that only repairs goes as fast as it repairs."""
        self._sent += packets
        self._octets += octets

    def limit_to(self, most: int) -> None:
        """From now on the rate is `most` where nobody asks for too much; one that is lower grows as before."""
        if self.rate == self.most or self.rate > most:
            self.rate = most
        self.most = most

    def steer(self, pacer: Pacer, counters: Counters, now_ns: int) -> Effects:
        """Choose the rate anew if an interval is over, and let data go at it; tells when it leaves the most, and when it is there again."""
        if not self.review(now_ns):
            return NOTHING
        before = pacer.rate
        counters.rate_cuts += self.rate < before
        pacer.go_at(self.rate)
        if before == self.most:
            share = self._parameters.txw_yield_share
            return (Notice("slower", f"receivers ask for more than {share:.1%} of what is sent"),)
        if self.rate == self.most:
            return (Notice("as-before", f"the source sends at {format_rate(self.rate)} again"),)
        return NOTHING

    def review(self, now_ns: int) -> bool:
        """Choose the rate anew if an interval is over; says whether it is another one."""
        if now_ns < self.review_at_ns:
            return False
        parameters = self._parameters
        elapsed_ns = now_ns - self._reviewed_at_ns
        self._reviewed_at_ns, self.review_at_ns = now_ns, now_ns + parameters.txw_yield_ivl
        # A NAK is for what was sent earlier: it may come when little is sent any more, or nothing.
        sent, before = max(self._sent, self._sent_before), self.rate
        bearable = max(_CHANCE, parameters.txw_yield_share * sent)
        if self._asked > bearable:
            # A source that is told to send as fast as it can gets less out than its rate allows.
            reached = min(self.rate, self._octets * SECOND // elapsed_ns)
            # What is asked for did not arrive: where that is most of it, small steps would come too late.
            left = min(1 - 1 / _CUT_BY, max(1 / _MOST_CUT, 1 - self._asked / max(1, sent)))
            self.rate = max(min(parameters.txw_min_rte, self.rate), int(reached * left))
        elif self._asked * _CALM <= bearable:
            self.rate = min(self.most, self.rate + self.most // _GROW_BY)
        self._sent_before = self._sent or self._sent_before
        self._asked = self._sent = self._octets = 0
        return self.rate != before
