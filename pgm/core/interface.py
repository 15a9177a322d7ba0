"""Interface of every core, for all roles. Read this file first.

A core is a plain synchronous object. A driver is trio on sockets, the busy-poll loop, or the simulator. The driver
hands received packets to the core, and calls the core when its deadline has come. Both calls return effects. Five
rules:

* `now_ns` never goes back, and it is the only clock.
* Calling `handle_deadline` early does nothing and costs little.
* Effects are in wire order: NCF before SPM before data (RFC 5.1.3).
* Nothing a peer sends makes `receive` raise. Invalid packets are counted with a reason.
* A core may keep views of a train that it marked as kept. The driver never writes to those octets again.

A **segment** is one multicast domain as one node sees it. The segment of a packet, its sender, and whether it came by
multicast or unicast, are arguments. RFC 7.5 makes the meaning of an NCF depend on the interface that received the NCF.
A node that mistakes its own subnet's NCF for an answer from upstream stalls its subnet.
"""

from __future__ import annotations

from typing import Protocol

from pgm.core.control_codes import ControlCodes
from pgm.core.counters import Counters
from pgm.core.effects import Effects
from pgm.core.segment import Channel
from pgm.core.status import SessionEdges, SessionStatus
from pgm.wire.formats import Nla
from pgm.wire.train import Train


class Core(Protocol):
    """The methods that drivers need from any role."""

    @property
    def counters(self) -> Counters:
        """Counters of this core."""

    @property
    def control_codes(self) -> ControlCodes:
        """Codes of requests. The driver passes control packets through it before they leave."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` is due next; NEVER when idle."""

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read. `peer` is the sender's address, never a port (INT-U6)."""

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due: timers, and at most one train of data."""

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return one row per session, for operators."""

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come; cheap enough for many calls a second."""
