"""Base of drivers in an event loop: what operators and reads need beside the core."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, cast

from pgm.core.events import id_of, text_of
from pgm.core.interface import Core
from pgm.net.driver.effects import Application, EffectPerformer
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.driver.rest_settings import NO_MODERATION, ReadSettings
from pgm.net.link.link import Link
from pgm.net.link.node_links import NodeLinks
from pgm.net.sockets.inputs import Input
from pgm.telemetry.rates import Rates
from pgm.telemetry.snapshot import event_row
from pgm.topology.node_plan import NodePlan


class Turns(Protocol):
    """Lock of an event loop: one endpoint at a time has it."""

    def locked(self) -> bool:
        """Return whether an endpoint has it."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> object: ...


class NodeReads(Protocol):
    """Interface between a driver and the reads of its node."""

    @property
    def links(self) -> NodeLinks:
        """Return the links."""

    @property
    def answers(self) -> Turns:
        """Return the lock of the endpoint that answers operators."""


class NodeDriver(EffectPerformer):
    """Driver of `core` on a node's links in an event loop. `settings` bounds rests and prefaulted memory."""

    def __init__(
        self, core: Core, reads: NodeReads, application: Application, settings: ReadSettings = NO_MODERATION
    ) -> None:
        super().__init__(core, reads.links, application)
        self.reads = reads
        self.plan: NodePlan | None = None  # of this endpoint, where operators may ask for it
        self.wake_ivl = settings.wake_ivl
        self.rates: Rates | None = None  # set if the counters are read regularly
        self.recent_events: Callable[[], list[dict[str, Any]]] = self._events  # or a replacement with more events
        self._moderations = {
            sock: ReadModeration(settings, round(settings.bulk_share * link.sockets.buffers.rcvbuf), core.counters)
            for link in reads.links
            for sock in link.inputs
        }

    @property
    def endpoints(self) -> tuple[NodeDriver, ...]:
        """Return the endpoints of the node, the oldest first."""
        return cast("tuple[NodeDriver, ...]", self.links.endpoints)

    async def run(self) -> None:
        """Run until cancelled."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the links."""
        self.links.leave(self)

    def rest_ns(self, link: Link, sock: Input) -> int:
        """Return how long to leave an empty socket alone, in ns. Prefault some memory meanwhile."""
        moderation = self._moderations[sock]
        rest_ns = moderation.rest_ns(self.now_ns())
        if moderation.warm_octets:
            link.warm_up(moderation.warm_octets)
        return rest_ns

    def _events(self) -> list[dict[str, Any]]:
        return [event_row(id_of(item), text_of(item), at_s) for item, at_s in self.happenings]
