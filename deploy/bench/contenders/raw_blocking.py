"""A round trip of plain sockets that wait in the kernel."""

from __future__ import annotations

from deploy.bench.contenders.raw_busy_poll import RawBusyPoll


class RawBlocking(RawBusyPoll):
    """A plain UDP socket, read by a call that waits."""

    name = "raw-blocking"
    title = "raw socket, blocking"
    spins = False
