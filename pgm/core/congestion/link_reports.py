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
    """Loss rate of the link above one node (CC-16)."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.first = -1  # the first sqn; -1 before it
        self.end = -1  # one more than the newest sqn

    def came(self, first: int, end: int) -> bool:
        """Note data from above. Return whether they are newer than all before."""
        if self.end < 0:
            self.first = self.end = first
        if end <= self.end:
            return False
        self.loss = moved(self.loss, max(0, first - self.end), end - max(first, self.end))
        self.end = end
        return True


class LossReport:
    """Last report that was sent or received, which ages by the sqns since (CC-05)."""

    def __init__(self) -> None:
        self.loss = 0.0
        self._sqn = 0

    def aged(self, sqn: int) -> float:
        """Return the last value, aged to `sqn`."""
        return self.loss * math.exp(-max(0, sqn - self._sqn) * self.loss / 2)

    def record(self, loss: float, sqn: int) -> None:
        """Record a value, 0 to 1, for `sqn`."""
        self.loss, self._sqn = loss, max(sqn, self._sqn)

    def is_news(self, loss: float) -> bool:
        """Return whether a value differs by more than `CHANGE` from the last one."""
        return abs(loss - self.loss) > CHANGE * self.loss


@attrs.define
class WorstLinks:
    """Last reports of the worst link and of the worst path, which are independent (CC-09)."""

    link: LossReport = attrs.field(factory=LossReport)
    path: LossReport = attrs.field(factory=LossReport)

    def heard(self, cr: Cr, sqn: int) -> None:
        """Take a report from below: the worse of this report and the aged one counts."""
        if cr.has_ne_wl:
            self.link.record(max(self.link.aged(sqn), cr.ne_wl / ALL_LOST), sqn)
        if cr.has_ne_wp:
            self.path.record(max(self.path.aged(sqn), cr.ne_wp / ALL_LOST), sqn)

    def sent(self, cr: Cr, sqn: int) -> None:
        """Record a report that went up."""
        if cr.has_ne_wl:
            self.link.record(cr.ne_wl / ALL_LOST, sqn)
        if cr.has_ne_wp:
            self.path.record(cr.ne_wp / ALL_LOST, sqn)


class LinkReports:
    """Worst link and worst path of one session at one element."""

    def __init__(self) -> None:
        self.above = LinkLoss()
        self.below = WorstLinks()  # from the children's reports, for the element's own NAKs
        self._passed_up = WorstLinks()

    def renewed(self, cr: Cr, sqn: int) -> tuple[Cr, bool]:
        """Return the OPT_CR to pass up, and whether its links are news (CC-06, CC-07)."""
        own, is_news, worst = self.above.loss, False, self._passed_up
        if cr.has_ne_wl:
            link = rounded(max(own, cr.ne_wl / ALL_LOST, worst.link.aged(sqn)))
            is_news, cr = worst.link.is_news(link / ALL_LOST), attrs.evolve(cr, ne_wl=link)
        if cr.has_ne_wp:
            path = rounded(max(worst.path.aged(sqn), own + cr.ne_wp / ALL_LOST * (1 - own)))
            is_news, cr = is_news or worst.path.is_news(path / ALL_LOST), attrs.evolve(cr, ne_wp=path)
        return attrs.evolve(cr, lead=wrap(sqn)), is_news

    def sent(self, cr: Cr, sqn: int) -> None:
        """Record the report that went up."""
        self._passed_up.sent(cr, sqn)


def rounded(load: float) -> int:
    """Return a loss rate as an integer for packets, 0 to `ALL_LOST`."""
    return min(ALL_LOST, round(load * ALL_LOST))


ALL_LOST = 0xFFFF  # a loss rate of 1 in packets (CC-03)


WEIGHT = 500 / 65_536  # weight of one packet in the average (2.6, E-18)


def moved(loss: float, missed: int, got: int) -> float:
    """Return a loss rate after `missed` missing and then `got` received sqns. The rate is between 0 and 1."""
    return (1 - (1 - loss) * (1 - WEIGHT) ** missed) * (1 - WEIGHT) ** got
