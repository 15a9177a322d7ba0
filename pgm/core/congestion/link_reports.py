"""Reports of an element on its NAKs: worst link and worst path (RFC 12.6).

The values cover the link above the element and all links below. An element measures the link that brings it the session,
as the share of sqns that did not arrive on this link. The links of receivers are in their own reports.
"""

from __future__ import annotations

import math

import attrs

from pgm.wire.options import Cr
from pgm.wire.sequence_numbers import wrap

CHANGE = 0.05  # relative change of a report that is worth a packet (CC-15)


class LinkLoss:
    """Loss rate of the link above (CC-16)."""

    def __init__(self) -> None:
        self.loss = 0.0
        self._next: int | None = None  # one more than the newest sqn

    def came(self, first: int, end: int) -> None:
        """Note ODATA from above."""
        if self._next is None:
            self._next = first
        if end > self._next:
            self.loss = moved(self.loss, max(0, first - self._next), end - max(first, self._next))
            self._next = end


class LossReport:
    """Last report that was sent or received, which ages by the sqns since (CC-05)."""

    def __init__(self) -> None:
        self.sent = 0.0
        self._sqn = 0

    def aged(self, sqn: int) -> float:
        """Return the last value, aged to `sqn`."""
        return self.sent * math.exp(-max(0, sqn - self._sqn) * self.sent / 2)

    def send(self, load: float, sqn: int) -> None:
        """Record a value, 0 to 1, for `sqn`."""
        self.sent, self._sqn = load, max(sqn, self._sqn)

    def is_news(self, load: float) -> bool:
        """Return whether a value differs by more than `CHANGE` from the last one."""
        return abs(load - self.sent) > CHANGE * self.sent


class LinkReports:
    """Worst link and worst path, separately, of one session at one element (CC-09)."""

    def __init__(self) -> None:
        self.above = LinkLoss()
        self.worst_link = LossReport()
        self.worst_path = LossReport()
        self.link_below = LossReport()  # from the children's reports
        self.path_below = LossReport()

    def heard(self, cr: Cr, sqn: int) -> None:
        """Record a child's report, for the element's own NAKs."""
        if cr.has_ne_wl:
            self.link_below.send(max(self.link_below.aged(sqn), cr.ne_wl / ALL_LOST), sqn)
        if cr.has_ne_wp:
            self.path_below.send(max(self.path_below.aged(sqn), cr.ne_wp / ALL_LOST), sqn)

    def renewed(self, cr: Cr, sqn: int) -> tuple[Cr, bool]:
        """Return the OPT_CR to pass up, and whether its links are news (CC-06, CC-07)."""
        own, is_news = self.above.loss, False
        if cr.has_ne_wl:
            link = rounded(max(own, cr.ne_wl / ALL_LOST, self.worst_link.aged(sqn)))
            is_news, cr = self.worst_link.is_news(link / ALL_LOST), attrs.evolve(cr, ne_wl=link)
        if cr.has_ne_wp:
            path = rounded(max(self.worst_path.aged(sqn), own + cr.ne_wp / ALL_LOST * (1 - own)))
            is_news, cr = is_news or self.worst_path.is_news(path / ALL_LOST), attrs.evolve(cr, ne_wp=path)
        return attrs.evolve(cr, lead=wrap(sqn)), is_news

    def sent(self, cr: Cr, sqn: int) -> None:
        """Record the report that went up."""
        if cr.has_ne_wl:
            self.worst_link.send(cr.ne_wl / ALL_LOST, sqn)
        if cr.has_ne_wp:
            self.worst_path.send(cr.ne_wp / ALL_LOST, sqn)


def rounded(load: float) -> int:
    """Return a loss rate as an integer for packets, 0 to `ALL_LOST`."""
    return min(ALL_LOST, round(load * ALL_LOST))


ALL_LOST = 0xFFFF  # a loss rate of 1 in packets (CC-03)


WEIGHT = 500 / 65_536  # weight of one packet in the average (2.6, E-18)


def moved(loss: float, missed: int, got: int) -> float:
    """Return a loss rate after `missed` missing and then `got` received sqns.

    The rate is between 0 and 1.
    """
    return (1 - (1 - loss) * (1 - WEIGHT) ** missed) * (1 - WEIGHT) ** got
