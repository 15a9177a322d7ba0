"""Surfaces of one endpoint in an event loop: its driver and its waits, by the loop of the caller."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import trio

from pgm.core.interface import Core
from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.driver.effects import Application
from pgm.net.driver.event_loops import running_library
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.driver.rest_settings import ReadSettings
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.endpoint.base import Waits
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.open_nodes import OpenNodes
from pgm.net.endpoint.waits import GateWaits, TrioWaits
from pgm.net.gate.gate_driver import GateDriver
from pgm.net.gate.loop_gate import LoopGate
from pgm.parameters import Parameters

_NODES: trio.lowlevel.RunVar[OpenNodes[TrioReads]] = trio.lowlevel.RunVar("pgm nodes")
# Gate of a loop whose endpoints other threads call.
LOOP_GATE: trio.lowlevel.RunVar[LoopGate | None] = trio.lowlevel.RunVar("pgm gate", None)


class WokenWaits(Waits, Protocol):
    """Waits that the application side of a core ends."""

    def wake(self) -> None:
        """End the wait of all tasks."""


class Surface(Protocol):
    """Surface of one endpoint."""

    @property
    def nodes(self) -> OpenNodes[Any]:
        """Return the open nodes of the running loop."""

    @property
    def waits(self) -> WokenWaits:
        """Return the waits of the application's tasks."""

    @property
    def is_called_by_threads(self) -> bool:
        """Return whether other threads than that of the loop call the endpoint."""

    def drive(self, core: Core, reads: Any, application: Application, settings: ReadSettings) -> NodeDriver:
        """Make the driver. `reads` are those of an open node."""

    def read_in_waits(self, inbox: Inbox, parameters: Parameters) -> None:
        """Let waiting tasks of a receiver read, if that is of use here."""

    def close(self) -> None:
        """Allow no further read by a waiting task."""


class TrioSurface:
    """Surface under trio."""

    def __init__(self) -> None:
        self._gate = LOOP_GATE.get()
        self.waits = TrioWaits() if self._gate is None else GateWaits(self._gate)
        self._driver: TrioDriver | None = None

    @property
    def nodes(self) -> OpenNodes[TrioReads]:
        """Return the open nodes of the running loop."""
        try:
            return _NODES.get()
        except LookupError:
            nodes = OpenNodes(TrioReads)
            _NODES.set(nodes)
            return nodes

    @property
    def is_called_by_threads(self) -> bool:
        """Return whether other threads than that of the loop call the endpoint."""
        return self._gate is not None

    def drive(self, core: Core, reads: TrioReads, application: Application, settings: ReadSettings) -> TrioDriver:
        """Make the driver."""
        gate = self._gate
        if gate is None:
            self._driver = TrioDriver(core, reads, application, settings)
        else:
            self._driver = GateDriver(core, reads, application, settings, gate)
        return self._driver

    def read_in_waits(self, inbox: Inbox, parameters: Parameters) -> None:
        """Let a waiting task read the only socket of data, which saves a pass of the scheduler for each message."""
        driver = self._driver
        if driver is not None and len(driver.links) == 1 and not parameters.rx_wake_ivl:
            driver.on_company = partial(self._switch_reader, driver, inbox, parameters.rx_poll_ivl)
            driver.on_company(not driver.links.is_shared)

    def _switch_reader(self, driver: TrioDriver, inbox: Inbox, poll_ivl: int, is_alone: bool) -> None:
        """Let waiting tasks read if no other endpoint shares the links."""
        self.waits.close()
        driver.application_reader = None
        if is_alone:
            read = partial(driver.read_for, inbox.singles.take)
            driver.application_reader = self.waits.reader = ApplicationReader(
                driver.links[0].inputs[0], read, driver.rest_s, poll_ivl
            )

    def close(self) -> None:
        """Allow no further read by a waiting task."""
        if self._driver is not None:
            self._driver.on_company = lambda _: None
        self.waits.close()


def new_surface() -> Surface:
    """Return a surface for the event loop of the calling task. Raises `UsageError` outside of one."""
    if running_library() == "trio":
        return TrioSurface()
    from pgm.net.endpoint.asyncio_surface import AsyncioSurface  # asyncio takes long to import

    return AsyncioSurface()
