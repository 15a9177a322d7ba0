"""Children of one element on all segments below, in one session."""

from __future__ import annotations

import attrs

from pgm.core.effects import Effect
from pgm.core.element.relay import Relay
from pgm.core.element.setup import ElementSetup
from pgm.core.polling.back_off import AdvertisedBackOff
from pgm.core.polling.children import Children, populations
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import NEVER


class ElementChildren:
    """Children of one element, by downstream segment; see `Children`."""

    def __init__(self, context: SessionContext, setup: ElementSetup, *, lasts_ns: int, searches: bool = False) -> None:
        self._downs = setup.downs
        self._groups = {
            down.index: Children(context, down, lasts_ns=lasts_ns, searches=searches) for down in setup.downs
        }

    @property
    def back_offs(self) -> dict[int, AdvertisedBackOff]:
        """Return the advertised back-off of each segment, by the index of the segment."""
        return {index: children.back_off for index, children in self._groups.items()}

    def on(self, segment: Segment) -> Children:
        """Return the children on a downstream segment."""
        return self._groups[segment.index]

    def polls(self, relay: Relay) -> ElementPolls:
        """Return the polls of all segments."""
        return ElementPolls(tuple(self._groups.values()), relay)

    @property
    def populations(self) -> dict[str, int]:
        """Return the counted populations by the name of the segment."""
        return populations(*((down, self.on(down)) for down in self._downs))

    def on_regular_spm(self, now_ns: int) -> None:
        """Allow polls and multicast: the session runs here."""
        for children in self._groups.values():
            children.begin(now_ns)
            children.on_regular_spm()

    def repaired(self, first: int, end: int) -> None:
        """Forget the counts of these sqns, whose repair state is gone."""
        for children in self._groups.values():
            children.repaired(first, end)


@attrs.frozen(eq=False)
class ElementPolls:
    """Polls of one element. In a pair of relays, the active one polls."""

    _children: tuple[Children, ...]
    _relay: Relay

    @property
    def deadline_ns(self) -> int:
        """Return when a poll starts or ends."""
        earliest_ns = NEVER
        if self._relay.may_poll:
            for children in self._children:  # a loop, as in `Timers`: a driver asks after each read
                earliest_ns = min(earliest_ns, children.deadline_ns)
        return earliest_ns

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Send the polls that are due."""
        return [effect for children in self._children for effect in children.handle_deadline(now_ns)]
