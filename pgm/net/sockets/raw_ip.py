"""PGM directly over IP (protocol 113, W-01), with the router alert option (W-30).

The protocol has no ports, so an address belongs to one process of a host. There is no segmentation offload either, so
every packet is a system call of its own. A raw IPv4 socket also reads the IP header, a raw IPv6 socket does not.
Neither sends one.
"""

from __future__ import annotations

import errno
import socket

from pgm.core.structures.arena import ROOM
from pgm.errors import TransportError
from pgm.net.sockets.interfaces import Interface
from pgm.wire.train import Octets

PROTOCOL = 113

# RFC 2113: option 148, four octets, value 0.
_ALERT_IPV4 = bytes((0x94, 4, 0, 0))
# RFC 2711, in a hop-by-hop header of one unit, with padding. No registry assigns PGM a value. Value 0 means MLD, and
# Linux routers forward nothing else under it. Value 2 means active networks: programs on the path, as here.
_ALERT_IPV6 = bytes((0, 0, 5, 2, 0, 2, 1, 0))

Ancillary = tuple[int, int, bytes]
ROUTER_ALERT: dict[socket.AddressFamily, Ancillary] = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_RETOPTS, _ALERT_IPV4),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS, _ALERT_IPV6),
}


def open_raw(family: socket.AddressFamily, segment: str) -> socket.socket:
    """Return a socket of protocol 113. Raises `TransportError` if the process lacks the privilege."""
    try:
        return socket.socket(family, socket.SOCK_RAW, PROTOCOL)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise TransportError(f"segment {segment}: no socket of IP protocol {PROTOCOL}: {error.strerror}") from error
    raise TransportError(
        f"segment {segment}: transport ip opens sockets of IP protocol {PROTOCOL}, which needs CAP_NET_RAW",
        remedy='give it by AmbientCapabilities=CAP_NET_RAW (as `pgm render` does), or by setcap cap_net_raw+ep on the interpreter, or write transport = "udp"',
    )


def claim(interface: Interface, segment: str) -> socket.socket:
    """Hold an address for protocol 113 on this host until the returned socket is closed.

    Every raw socket bound to an address receives all packets to that address, and recognises its own packets by the
    address. The claim is a socket in the abstract namespace, which is separate in every network namespace. Raises
    `TransportError` if another process holds the address.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    scope = f"%{interface.index}" if interface.address.startswith("fe80:") else ""
    try:
        holder.bind(f"\0pgm-ip-{PROTOCOL}/{interface.address}{scope}")
    except OSError as error:
        holder.close()
        raise TransportError(
            f"segment {segment} ({interface.name}): another process uses {interface.address} for IP protocol {PROTOCOL}",
            remedy="give every node of a host an address of its own",
        ) from error
    return holder


def strip_header(chunk: Octets, at: int, count: int) -> int:
    """Move a packet from a raw IPv4 socket to the place of its IP header. Return the octets left of `count`."""
    words = int(chunk[at]) & 0x0F if count else 0
    left = max(0, count - 4 * words)
    chunk[at : at + left] = chunk[at + count - left : at + count]
    return min(left, ROOM)
