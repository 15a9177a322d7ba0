"""What a parent knows of its children on one segment in one session: how many, how eager to ask, and whether they hear it.

Shared by sources, aggregators and repairers. Three things that are all off unless the topology asks for them: polls (RFC 14),
the tuning of NAK_BO_IVL (RFC 15.2), and the containment of NAKs where multicast has failed (RFC 15.3): when DUP_NAK_MAX
duplicates of one NAK have come, nobody hears the NCFs, and each NAK is confirmed by unicast to whoever sent it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects
from pgm.core.polling.back_off import AdvertisedBackOff
from pgm.core.polling.nak_counts import NakCounts
from pgm.core.polling.poller import Poller
from pgm.core.segment import Segment
from pgm.core.structures.ranges import Span
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Polr
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import NO_OPTIONS, NbrUnreach, Options, PathNla, Redirect


@attrs.frozen
class Confirmation:
    """How a NAK is confirmed: what the NCF carries besides, and to whom it goes; to the segment if that is None."""

    options: Options = NO_OPTIONS
    to: Nla | None = None


class Children:
    """The children of one parent on one segment. `lasts_ns` is how long the parent's repair state lives at most."""

    def __init__(
        self,
        tsi: Tsi,
        data_port: int,
        segment: Segment,
        parameters: Parameters,
        rng: random.Random,
        counters: Counters,
        *,
        lasts_ns: int,
        searches: bool = False,
    ) -> None:
        self._segment = segment
        self._parameters = parameters
        self._counters = counters
        self.back_off = back_off = AdvertisedBackOff(parameters)
        self._poller: Poller | None = None
        if parameters.poll_ivl or (searches and parameters.poll_dlr_ivl):
            self._poller = Poller(
                tsi,
                data_port,
                segment,
                parameters,
                rng,
                counters,
                searches=searches,
                options=lambda: back_off.options,  # not of `self`: the two would wait in a circle for the collector
            )
        self._counts: NakCounts | None = None
        if parameters.dup_nak_max or parameters.nak_bo_tuning != "off":
            self._counts = NakCounts(lasts_ns, parameters.repair_states)
        self._counted_sqn = 0
        self.is_unreachable = False  # multicast to them has failed

    @property
    def deadline_ns(self) -> int:
        """When there is a poll to be made or ended."""
        return NEVER if self._poller is None else self._poller.deadline_ns

    @property
    def is_silent(self) -> bool:
        """Whether `on_nak` neither counts anything nor has anything to say, now and always."""
        return self._counts is None

    @property
    def population(self) -> int | None:
        """How many there are, as far as censuses say."""
        return None if self._poller is None else self._poller.population

    def begin(self, now_ns: int) -> None:
        """The session runs here: polls may be made."""
        if self._poller is not None:
            self._poller.begin(now_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Polls; what a census has found goes into the back-off."""
        if self._poller is None:
            return NOTHING
        effects = self._poller.handle_deadline(now_ns)
        population = self._poller.population
        if self._poller.counted_sqn != self._counted_sqn and population is not None:
            self._counted_sqn = self._poller.counted_sqn
            self.back_off.counted(population, self._counted_sqn)
        return effects

    def on_polr(self, polr: Polr, now_ns: int) -> tuple[Effects, Redirect | None]:
        """An answer to a poll; see `Poller.on_polr`."""
        if self._poller is not None:
            return self._poller.on_polr(polr, now_ns)
        self._counters.polr_packets_foreign += 1
        return NOTHING, None

    def on_nak(self, spans: Iterable[Span], peer: Nla, now_ns: int) -> Confirmation:
        """Count a NAK; returns how to confirm it."""
        if self._counts is not None:
            tally = self._counts.note(spans, now_ns)
            self.back_off.note(tally)
            if 0 < self._parameters.dup_nak_max <= tally.duplicates and not self.is_unreachable:
                self._counters.children_unreachable += 1
                self.is_unreachable = True
        if self.is_unreachable:
            state = PathNla(path_nla=self._segment.address)
            return Confirmation((NbrUnreach(), state), peer)
        return Confirmation(self.back_off.options)

    def repaired(self, first: int, end: int) -> None:
        """The repair state of these sqns is gone."""
        if self._counts is not None:
            self._counts.discard(first, end)

    def on_regular_spm(self) -> None:
        """The tree has been refreshed: multicast is tried again (IMP-22)."""
        self.is_unreachable = False


def populations(*children: tuple[Segment, Children]) -> dict[str, int]:
    """Who was counted, by the name of the segment."""
    counted = ((segment.name, one.population) for segment, one in children)
    return {name: population for name, population in counted if population is not None}
