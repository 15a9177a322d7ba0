"""Backlog in a receiver's queue for an application that was away, and other input during its work."""

from __future__ import annotations

import socket

import numpy as np

from pgm.net.endpoint.busy_poll import BusyPollReceiver as SpinningReceiver
from pgm.net.endpoint.receiver import Receiver

# More than one item, since their sizes differ by turns.
BACKLOG = [np.full((20, size), size % 251, np.uint8) for size in (1000, 1400) * 20]
BACKLOG_PACKETS = sum(len(rows) for rows in BACKLOG)


def knock(receiver: Receiver | SpinningReceiver) -> None:
    """Send an invalid datagram to a receiver's group; the rejects count it as truncated."""
    plan = receiver.links[0].plan
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        sock.sendto(b"knock", (plan.group, plan.port))
