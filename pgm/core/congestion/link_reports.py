"""What an element says of links on the NAKs that it sends up: the worst link and the worst path below and above it (RFC 12.6).

An element measures the link that brings it the session, as the share of sqns that did not come by it: those were meant for
it and dropped. The links of receivers are in their own reports.
"""

from __future__ import annotations

import math

import attrs

from pgm.wire.options import Cr
from pgm.wire.sequence_numbers import wrap

CHANGE = 0.05  # of a report, relative: less is not worth a packet (CC-15)


class LinkLoss:
    """The loss rate of the link above (CC-16)."""

    def __init__(self) -> None:
        self.loss = 0.0
        self._next: int | None = None  # the sqn behind the newest

    def came(self, first: int, end: int) -> None:
        """ODATA came from above."""
        if self._next is None:
            self._next = first
        if end > self._next:
            self.loss = moved(self.loss, max(0, first - self._next), end - max(first, self._next))
            self._next = end


class LossReport:
    """One report: what was sent or heard last, which ages by the sqns that have passed (CC-05)."""

    def __init__(self) -> None:
        self.sent = 0.0
        self._sqn = 0

    def aged(self, sqn: int) -> float:
        """What was sent last, as of a sqn."""
        return self.sent * math.exp(-max(0, sqn - self._sqn) * self.sent / 2)

    def send(self, load: float, sqn: int) -> None:
        """Note what goes up."""
        self.sent, self._sqn = load, max(sqn, self._sqn)

    def is_news(self, load: float) -> bool:
        """Whether that differs by more than a twentieth from what was sent last."""
        return abs(load - self.sent) > CHANGE * self.sent


class LinkReports:
    """Worst link and worst path of one session at one element, each by itself (CC-09)."""

    def __init__(self) -> None:
        self.above = LinkLoss()
        self.worst_link = LossReport()
        self.worst_path = LossReport()
        self.link_below = LossReport()  # as heard
        self.path_below = LossReport()

    def heard(self, cr: Cr, sqn: int) -> None:
        """Keep what a child says, for NAKs of the element's own."""
        if cr.has_ne_wl:
            self.link_below.send(max(self.link_below.aged(sqn), cr.ne_wl / ALL_LOST), sqn)
        if cr.has_ne_wp:
            self.path_below.send(max(self.path_below.aged(sqn), cr.ne_wp / ALL_LOST), sqn)

    def renewed(self, cr: Cr, sqn: int) -> tuple[Cr, bool]:
        """The links in an OPT_CR as it goes up, and whether they say something new (CC-06, CC-07)."""
        own, is_news = self.above.loss, False
        if cr.has_ne_wl:
            link = rounded(max(own, cr.ne_wl / ALL_LOST, self.worst_link.aged(sqn)))
            is_news, cr = self.worst_link.is_news(link / ALL_LOST), attrs.evolve(cr, ne_wl=link)
        if cr.has_ne_wp:
            state = rounded(max(self.worst_path.aged(sqn), own + cr.ne_wp / ALL_LOST * (1 - own)))
            is_news, cr = is_news or self.worst_path.is_news(state / ALL_LOST), attrs.evolve(cr, ne_wp=state)
        return attrs.evolve(cr, lead=wrap(sqn)), is_news

    def sent(self, cr: Cr, sqn: int) -> None:
        """Note what went up."""
        if cr.has_ne_wl:
            self.worst_link.send(cr.ne_wl / ALL_LOST, sqn)
        if cr.has_ne_wp:
            self.worst_path.send(cr.ne_wp / ALL_LOST, sqn)


def rounded(load: float) -> int:
    """A load as packets say it, saturated."""
    return min(ALL_LOST, round(load * ALL_LOST))


ALL_LOST = 0xFFFF  # a loss rate of one in packets (CC-03)


WEIGHT = 500 / 65_536  # of one packet in the average (2.6, E-18)


def moved(loss: float, missed: int, got: int) -> float:
    """A loss rate, 0 to 1, after so many sqns that did not come and then so many that did."""
    return (1 - (1 - loss) * (1 - WEIGHT) ** missed) * (1 - WEIGHT) ** got
