"""Reads of one node under trio: a task for each socket gives every train to the endpoints that it concerns.

The tasks run in the nursery of one endpoint. When that endpoint ends, another one runs them.
"""

from __future__ import annotations

import time
from typing import Protocol, cast

import trio

from pgm.core.effects import Effects
from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.link.backlog import DRAIN_OCTETS, DRAIN_TRAINS, Backlog
from pgm.net.link.link import Link
from pgm.net.link.node_links import Endpoint, NodeLinks
from pgm.net.link.reader import SocketRead
from pgm.net.sockets.inputs import Input
from pgm.units import SECOND
from pgm.wire.train import Train


class ReadingEndpoint(Endpoint, Protocol):
    """Interface between the reads and the driver of one endpoint."""

    application_reader: ApplicationReader | None
    wake_ivl: int

    def receive(self, link: Link, sock: Input, arrival: SocketRead) -> Effects:
        """Pass a read to the core. Return the core's effects."""

    async def perform_received(self, effects: Effects, link: Link, train: Train) -> None:
        """Perform the effects of a read; data waits until the link takes it."""

    def reschedule(self) -> None:
        """Check the core's deadline again."""

    def rest_ns(self, link: Link, sock: Input) -> int:
        """Return how long to leave an empty socket alone, in ns."""

    def sleep_process(self, sock: Input, rest_ns: int) -> bool:
        """Sleep with the whole process for `rest_ns` if nothing is due then. Return whether it slept that long."""


class TrioReads:
    """Reads of a node's links, and the locks of its writes."""

    def __init__(self, links: NodeLinks) -> None:
        self.links = links
        self.write_locks = [trio.Lock() for _ in links]  # trio allows one waiter for each descriptor
        self.answers = trio.Lock()  # of the endpoint that answers operators
        self._turn = trio.Lock()  # of the endpoint that runs the tasks
        self._data_turn = trio.Lock()  # of the task that reads data: while a relay waits for a link, none may overtake
        self._waiting_data = Backlog(links, is_data_alone=True)
        self.all_waiting = Backlog(links, is_data_alone=False)

    @property
    def _endpoints(self) -> tuple[ReadingEndpoint, ...]:
        return cast("tuple[ReadingEndpoint, ...]", self.links.endpoints)

    async def run(self) -> None:
        """Read until cancelled, once no other endpoint of the node does so."""
        async with self._turn, open_plain_nursery() as nursery:
            for link in self.links:
                for sock in link.inputs:
                    nursery.start_soon(self._listen, link, sock)

    async def catch_up(self) -> None:
        """Read all that waits in the node's sockets, data first."""
        await self._read_backlog(self.all_waiting)

    async def _read_backlog(self, backlog: Backlog) -> None:
        trains = octets = 0
        await self._begin_data()
        try:
            for link, sock, arrival in backlog.reads():
                await self._hand_over(link, sock, arrival)
                trains, octets = trains + 1, octets + arrival.train.length
                if (trains >= DRAIN_TRAINS or octets > DRAIN_OCTETS) and not link.holds(sock):
                    trains = octets = 0
                    await trio.lowlevel.checkpoint()
        finally:
            self._data_turn.release()
        for endpoint in self._endpoints:
            endpoint.reschedule()

    async def _begin_data(self) -> None:
        """Wait for the turn of reading data; no pass of the scheduler if it is free."""
        if self._data_turn.locked():
            await self._data_turn.acquire()
        else:
            self._data_turn.acquire_nowait()

    def _application_reader(self, sock: Input) -> ApplicationReader | None:
        reader = self._endpoints[0].application_reader
        return reader if reader is not None and reader.sock is sock else None

    async def _listen(self, link: Link, sock: Input) -> None:
        has_rested = False  # at a high rate: a check for data would cost a pass of the scheduler
        while True:
            reader = self._application_reader(sock)
            if reader is not None:
                await reader.wait_for_turn()
            if link.holds(sock):
                await trio.lowlevel.checkpoint()
            elif not has_rested:
                await trio.lowlevel.wait_readable(sock)
            if reader is not None and reader.is_waiting:
                continue
            is_empty = await self._drain(link, sock)
            endpoints = self._endpoints
            for endpoint in endpoints:
                endpoint.reschedule()
            has_rested = False
            if not is_empty:
                continue
            wake_ivl = min([endpoint.wake_ivl for endpoint in endpoints])
            if wake_ivl:
                await _rest(wake_ivl)
                continue
            rest_ns = min([endpoint.rest_ns(link, sock) for endpoint in endpoints])
            has_rested = rest_ns > 0
            if has_rested and not endpoints[0].sleep_process(sock, rest_ns):
                await trio.sleep(rest_ns / SECOND)

    async def _drain(self, link: Link, sock: Input) -> bool:
        """Read up to the bound that other tasks may wait for. Return whether the socket is empty."""
        octets = 0
        is_data = (link, sock) in self.links.data_inputs
        if is_data:
            await self._begin_data()
        try:
            for _ in range(DRAIN_TRAINS):
                if not is_data and self._waiting_data:
                    await self._read_backlog(self._waiting_data)
                arrival = link.read(sock)
                if arrival is None:
                    return True
                await self._hand_over(link, sock, arrival)
                if arrival.is_last:
                    return True
                octets += arrival.train.length
                if octets > DRAIN_OCTETS:
                    break
            return False
        finally:
            if is_data:
                self._data_turn.release()

    async def _hand_over(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        if self.links.is_shared:
            self.links.hand_over(link, sock, arrival)
            return
        [endpoint] = self._endpoints
        effects = endpoint.receive(link, sock, arrival)
        if effects:
            await endpoint.perform_received(effects, link, arrival.train)


async def _rest(wake_ivl: int) -> None:
    """Leave the sockets alone until a multiple of `wake_ivl`: all tasks wake at the same times, less often."""
    await trio.sleep((wake_ivl - time.monotonic_ns() % wake_ivl) / SECOND)
