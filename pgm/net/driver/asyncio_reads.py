"""Reads of one node under asyncio: callbacks of the loop give every train to the endpoints that it concerns.

The callbacks are there while at least one endpoint of the node runs.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from pgm.net.link.backlog import DRAIN_OCTETS, DRAIN_TRAINS, Backlog
from pgm.net.link.link import Link
from pgm.net.link.node_links import Endpoint, NodeLinks
from pgm.net.sockets.inputs import Input
from pgm.units import SECOND


class ReadingEndpoint(Endpoint, Protocol):
    """Interface between the reads and the driver of one endpoint."""

    wake_ivl: int

    def reschedule(self) -> None:
        """Check the core's deadline again."""

    def rest_ns(self, link: Link, sock: Input) -> int:
        """Return how long to leave an empty socket alone, in ns."""

    def end(self, error: BaseException) -> None:
        """End the endpoint by an error."""


class AsyncioReads:
    """Reads of a node's links, and the endpoints that wait for a socket to take their data."""

    def __init__(self, links: NodeLinks) -> None:
        self.links = links
        self._loop = asyncio.get_running_loop()
        self.answers = asyncio.Lock()  # of the endpoint that answers operators
        self._users = 0
        self._resting: dict[Input, asyncio.Handle] = {}  # sockets without a reader, for a while
        self._waiting_data = Backlog(links, is_data_alone=True)
        self._all_waiting = Backlog(links, is_data_alone=False)
        self._writers: dict[socket.socket, list[Callable[[], None]]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read for the length of a block of any endpoint."""
        self._users += 1
        if self._users == 1:
            for link in self.links:
                for sock in link.inputs:
                    self._watch(link, sock)
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._stop()

    def _stop(self) -> None:
        for link in self.links:
            for sock in link.inputs:
                self._loop.remove_reader(sock)
        for rest in self._resting.values():
            rest.cancel()
        self._resting.clear()

    # Writes

    def await_writable(self, sock: socket.socket, send: Callable[[], None]) -> None:
        """Call `send` once a socket takes data; a loop has one callback for each socket."""
        waiting = self._writers.setdefault(sock, [])
        if not waiting:
            self._loop.add_writer(sock, self._write, sock)
        waiting.append(send)

    def forget(self, sock: socket.socket, send: Callable[[], None]) -> None:
        """Take back a call of `await_writable`."""
        waiting = self._writers.get(sock, [])
        if send in waiting:
            waiting.remove(send)
            if not waiting:
                self._loop.remove_writer(sock)
                del self._writers[sock]

    def _write(self, sock: socket.socket) -> None:
        self._loop.remove_writer(sock)
        for send in self._writers.pop(sock):
            send()

    # Reads

    def _watch(self, link: Link, sock: Input) -> None:
        self._loop.add_reader(sock, self._drain, link, sock)

    def _drain(self, link: Link, sock: Input) -> None:
        """Read up to the bound that other tasks may wait for. Leave the socket alone for a while if it may rest."""
        endpoints = cast("tuple[ReadingEndpoint, ...]", self.links.endpoints)
        try:
            is_empty = self._read(link, sock)
        except OSError as error:  # of the socket: all endpoints need it
            for endpoint in endpoints:
                endpoint.end(error)
            return
        for endpoint in endpoints:
            endpoint.reschedule()
        rest_ns = 0
        if is_empty and (wake_ivl := min([endpoint.wake_ivl for endpoint in endpoints])):
            rest_ns = wake_ivl - time.monotonic_ns() % wake_ivl
        elif is_empty:
            rest_ns = min([endpoint.rest_ns(link, sock) for endpoint in endpoints])
        if rest_ns or link.holds(sock):
            if self._resting.pop(sock, None) is None:
                self._loop.remove_reader(sock)
            self._resting[sock] = self._loop.call_later(rest_ns / SECOND, self._drain, link, sock)
        elif self._resting.pop(sock, None) is not None:
            self._watch(link, sock)

    def catch_up(self) -> bool:
        """Read a part of all that waits in the node's sockets, data first. Return whether all was read."""
        is_over = self._all_waiting.read_slice()
        for endpoint in cast("tuple[ReadingEndpoint, ...]", self.links.endpoints):
            endpoint.reschedule()
        return is_over

    def _read(self, link: Link, sock: Input) -> bool:
        """Read up to the bound. Return whether the socket is empty."""
        octets = 0
        is_data = (link, sock) in self.links.data_inputs
        for _ in range(DRAIN_TRAINS):
            if not is_data and not self._waiting_data.read_slice():
                return False
            arrival = link.read(sock)
            if arrival is None:
                return True
            self.links.hand_over(link, sock, arrival)
            if arrival.is_last:
                return True
            octets += arrival.train.length
            if octets > DRAIN_OCTETS:
                break
        return False
