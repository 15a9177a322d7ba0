"""Knowledge of a parent about its children on one segment in one session.

Sources, aggregators and repairers share this module. It has three functions, each off unless the topology turns it on:

- polls (RFC 14);
- tuning of NAK_BO_IVL (RFC 15.2);
- containment of NAKs while multicast fails (RFC 15.3). After DUP_NAK_MAX duplicates of one NAK the children do not
  receive the NCFs. Each NAK is then confirmed by unicast to its sender.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

import attrs

from pgm.core.effects import Effects
from pgm.core.polling.back_off import AdvertisedBackOff
from pgm.core.polling.nak_counts import NakCounts
from pgm.core.polling.poller import Poller
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.wire.control_packets import Polr
from pgm.wire.formats import Nla
from pgm.wire.options import NO_OPTIONS, NbrUnreach, Options, PathNla, Redirect

_OPTIONS_OF = operator.attrgetter("options")  # a function that a tape can hold


@attrs.frozen
class Confirmation:
    """Form of an NCF: its further options, and its destination. The NCF goes to the segment if `to` is None."""

    options: Options = NO_OPTIONS
    to: Nla | None = None


_PLAIN = Confirmation()


class Children:
    """Children of a parent on a segment. Repair state lasts at most `lasts_ns`; `searches` also polls for repairers."""

    def __init__(self, context: SessionContext, segment: Segment, *, lasts_ns: int, searches: bool = False) -> None:
        parameters = context.parameters
        self._segment = segment
        self._parameters = parameters
        self._counters = context.counters
        self.back_off = back_off = AdvertisedBackOff(parameters)
        self._poller = Poller(
            context,
            segment,
            searches=searches,
            options=functools.partial(_OPTIONS_OF, back_off),  # not of `self`: that reference would make a cycle
        )
        self._is_counting = parameters.dup_nak_max > 0 or parameters.nak_bo_tuning != "off"
        self._counts = NakCounts(lasts_ns, parameters.repair_states)
        self._counted_sqn = 0
        self.is_unreachable = False  # multicast to the children has failed

    @property
    def deadline_ns(self) -> int:
        """Return when a poll starts or ends."""
        return self._poller.deadline_ns

    @property
    def population(self) -> int | None:
        """Return the number of children by the last censuses; None without a census."""
        return self._poller.population

    def begin(self, now_ns: int) -> None:
        """Allow polls, because the session runs here."""
        self._poller.begin(now_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send polls that are due, and give the result of a census to the back-off."""
        effects = self._poller.handle_deadline(now_ns)
        population = self._poller.population
        if self._poller.counted_sqn != self._counted_sqn and population is not None:
            self._counted_sqn = self._poller.counted_sqn
            self.back_off.counted(population, self._counted_sqn)
        return effects

    def on_polr(self, polr: Polr, now_ns: int) -> tuple[Effects, Redirect | None]:
        """Take an answer to a poll; see `Poller.on_polr`."""
        return self._poller.on_polr(polr, now_ns)

    def on_nak(self, spans: Iterable[Span], peer: Nla, now_ns: int) -> Confirmation:
        """Count a NAK, and return how to confirm it."""
        if self._is_counting:
            tally = self._counts.note(spans, now_ns)
            self.back_off.note(tally)
            if 0 < self._parameters.dup_nak_max <= tally.duplicates and not self.is_unreachable:
                self._counters.children_unreachable += 1
                self.is_unreachable = True
        if self.is_unreachable:
            path = PathNla(path_nla=self._segment.address)
            return Confirmation((NbrUnreach(), path), peer)
        options = self.back_off.options
        return Confirmation(options) if options else _PLAIN

    def repaired(self, first: int, end: int) -> None:
        """Forget the counts of these sqns, whose repair state is gone."""
        self._counts.discard(first, end)

    def on_regular_spm(self) -> None:
        """Try multicast again, because a regular SPM has refreshed the tree (IMP-22)."""
        self.is_unreachable = False


def populations(*children: tuple[Segment, Children]) -> dict[str, int]:
    """Return the counted populations by the name of the segment."""
    counted = ((segment.name, group.population) for segment, group in children)
    return {name: population for name, population in counted if population is not None}
