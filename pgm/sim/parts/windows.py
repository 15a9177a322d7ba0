"""Windows: parts of a tree run at the same time, each as far as no other part can influence it.

A train that crosses the cut takes at least the delay of a link, the lookahead. All parts therefore run from the next
event of any part for one lookahead, and then exchange what crosses. That is the conservative simulation of Chandy and
Misra (1979) with common windows. A window without events costs nothing, because each begins with an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from pgm.sim.network import CrossingTrain
from pgm.sim.parts.account import PartAccount, Progress
from pgm.sim.parts.part import Part, PartUsage, Window, WindowResult
from pgm.sim.sent_messages import LedgerNews
from pgm.units import NEVER
from pgm.wire.formats import Tsi


class PartLink(Protocol):
    """Link to a part, perhaps in another process. A result is taken after its order was given."""

    def begin(self, window: Window) -> None:
        """Let the part run a window."""

    def result(self) -> WindowResult:
        """Return the result of the window."""

    def progress(self) -> Progress:
        """Return the progress of the part."""

    def account(self) -> PartAccount:
        """Return the account of the part."""

    def usage(self) -> PartUsage:
        """Return the cost of the part's process."""


@attrs.define
class LocalLink:
    """Link to a part in this process."""

    part: Part
    _result: WindowResult | None = None

    def begin(self, window: Window) -> None:
        """Run a window."""
        self._result = self.part.run(window)

    def result(self) -> WindowResult:
        """Return the result of the window."""
        assert self._result is not None
        return self._result

    def progress(self) -> Progress:
        """Return the progress of the part."""
        return self.part.progress()

    def account(self) -> PartAccount:
        """Return the account of the part."""
        return self.part.account()

    def usage(self) -> PartUsage:
        """Return the cost of this process, which may have other parts too."""
        return self.part.usage()


class PartedTree:
    """Tree of one or more parts. Windows end before each of the `stops`, ns: there a fault changes links."""

    def __init__(self, links: Sequence[PartLink], lookahead_ns: int = NEVER, stops: Sequence[int] = ()) -> None:
        self._links = links
        self._lookahead_ns = lookahead_ns
        self._stops = tuple(stops)
        self._next_ns = 0  # time of the next event of any part, or earlier
        self._trains: list[list[CrossingTrain]] = [[] for _ in links]  # for each part
        self._news: list[list[tuple[Tsi, LedgerNews]]] = [[] for _ in links]
        self.now_ns = 0
        self.windows = 0
        self.crossed = 0  # trains that crossed the cut, once for each sender
        self.last_activity_ns = 0
        self.offered = 0
        self.have_left = False

    def run_until(self, until_ns: int) -> None:
        """Run all parts up to and at an instant."""
        while self.now_ns < until_ns:
            self._run_window(min(until_ns, self._safe_ns()))

    def _safe_ns(self) -> int:
        """Return the last instant up to which no part can hear of events that have not happened yet."""
        safe_ns = max(self._next_ns, self.now_ns + 1) + self._lookahead_ns - 1
        return min([safe_ns, *(stop - 1 for stop in self._stops if stop - 1 > self.now_ns)])

    def _run_window(self, until_ns: int) -> None:
        links, trains, news = self._links, self._trains, self._news
        for number, link in enumerate(links):
            link.begin(Window(until_ns, trains[number], news[number]))
        results = [link.result() for link in links]
        self._trains = [[] for _ in links]
        self._news = [[] for _ in links]
        self._next_ns = min(result.next_ns for result in results)
        for number, result in enumerate(results):
            self.crossed += len(result.trains)
            for train in result.trains:
                self._next_ns = min(self._next_ns, train.at_ns + self._lookahead_ns)
            for other in range(len(links)):
                if other != number:
                    self._trains[other] += result.trains
                    self._news[other] += result.news
        self.now_ns = until_ns
        self.windows += 1
        self.last_activity_ns = max(result.last_activity_ns for result in results)
        self.offered = sum(result.offered for result in results)
        self.have_left = all(result.have_left for result in results)

    def progress(self) -> Progress:
        """Return the progress of all parts together."""
        parts = [link.progress() for link in self._links]
        return Progress(
            now_ns=self.now_ns,
            offered=self.offered,
            messages=sum(part.messages for part in parts),
            delivered=sum(part.delivered for part in parts),
            expected=sum(part.expected for part in parts),
        )

    def accounts(self) -> list[PartAccount]:
        """Return the accounts of all parts."""
        return [link.account() for link in self._links]
