"""Clients of a node's Unix sockets, served in any event loop."""

from __future__ import annotations

import socket

from pgm.net.driver.event_loops import EventLoop

_RETRY_S = 0.5  # until a process without a free descriptor accepts again


async def accept_client(loop: EventLoop, sock: socket.socket) -> socket.socket:
    """Wait for a client, and return its non-blocking socket."""
    while True:
        await loop.readable(sock)
        try:
            client, _ = sock.accept()
        except BlockingIOError:
            continue
        except OSError:  # no free descriptor in this process, for a while
            await loop.sleep(_RETRY_S)
            continue
        client.setblocking(False)
        return client


async def receive(loop: EventLoop, client: socket.socket, most: int) -> bytes:
    """Wait for octets, and return at most `most`; none at the end. Raises OSError."""
    while True:
        await loop.readable(client)
        try:
            return client.recv(most)
        except BlockingIOError:
            continue


async def send_all(loop: EventLoop, client: socket.socket, octets: bytes) -> None:
    """Send octets. Raises OSError if the client has gone."""
    left = memoryview(octets)
    while left:
        try:
            left = left[client.send(left) :]
        except BlockingIOError:
            await loop.writable(client)
