"""One shape for every role: read this file first.

A core is a plain synchronous object. A driver (trio on sockets, busy-poll, the simulator) hands it what
arrived and tells it when its deadline has come; both calls return what is to be done. Five rules:

* `now_ns` never goes back, and it is the only clock.
* Calling `handle_deadline` early does nothing and costs little.
* Effects are in wire order: NCF before SPM before data (RFC 5.1.3).
* Nothing a peer sends makes `receive` raise; junk is a counter with a reason.
* A core may keep views of a train that it marked as kept; the driver never writes to those octets again.

A **segment** is one multicast domain as one node sees it. Whether a packet came by the segment's group or
by unicast, and from whom, are arguments: RFC 7.5 makes the interface on which an NCF is received decide
what it means, and a node that takes its own subnet's NCF for an answer from above stalls its subnet.
"""

from __future__ import annotations

from typing import Protocol

from pgm.core.counters import Counters
from pgm.core.effects import Effects
from pgm.core.segment import Channel
from pgm.core.status import SessionStatus
from pgm.wire.formats import Nla
from pgm.wire.train import Train


class Core(Protocol):
    """What drivers need of a role."""

    @property
    def counters(self) -> Counters:
        """What it counts."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` wants to run next; NEVER when idle."""

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take what one read gave. `peer` is the sender's address, never a port (INT-U6)."""

    def handle_deadline(self, now_ns: int) -> Effects:
        """Do what is due: timers, and at most one train of data."""

    def status(self, now_ns: int) -> list[SessionStatus]:
        """One row per session, for operators."""
