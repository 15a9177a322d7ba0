"""A source's link in a process of its own, which sends and gets ICMP errors for its packets.

`python -m tests.net.support.sending URL` prints the errors counted at the end, and whether trains are still sent.
"""

from __future__ import annotations

import socket
import struct
import sys

from pgm.core.effects import Send, alone
from pgm.core.structures.arena import Arena
from pgm.net.endpoint.open import resolve
from pgm.net.link.link import Link
from pgm.net.link.node_links import open_links
from pgm.topology.node_plan import Role
from pgm.wire.checksum import checksum

ROUNDS = 20
PACKETS_A_ROUND = 12
_UNREACHABLE, _PORT = 3, 3
_TOO_BIG, _MTU = 2, 1400  # larger than the packets sent
_ANSWER = struct.Struct("!BB2s4s")
_IP = struct.Struct("!BBHHHBBH4s4s")
_IP6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")


def answer(link: Link) -> None:
    """Answer a source's multicast: over IPv4 as no host should, over IPv6 as routers do with a smaller MTU."""
    host, port, *more = link.sockets.own.getsockname()
    udp = _UDP.pack(port, link.plan.port, 108, 0)
    names = [socket.inet_pton(link.sockets.family, name) for name in (host, link.plan.group)]
    if link.sockets.family == socket.AF_INET6:
        kind, protocol = _TOO_BIG.to_bytes() + bytes(3) + _MTU.to_bytes(4), socket.IPPROTO_ICMPV6
        told = kind + _IP6.pack(6 << 28, 108, socket.IPPROTO_UDP, 16, *names) + udp + bytes(100)
    else:
        told = _IP.pack(0x45, 0, 128, 1, 0, 16, socket.IPPROTO_UDP, 0, *names) + udp
        sums = checksum(_ANSWER.pack(_UNREACHABLE, _PORT, bytes(2), bytes(4)) + told)
        told, protocol = _ANSWER.pack(_UNREACHABLE, _PORT, sums, bytes(4)) + told, socket.IPPROTO_ICMP
    with socket.socket(link.sockets.family, socket.SOCK_RAW, protocol) as sock:
        sock.sendto(told, (host, 0, *more))


def main() -> None:
    """Send trains, and single packets on both paths, all behind an answer."""
    [link] = open_links(resolve(sys.argv[1], None, Role.SOURCE, {}), Arena())
    for _ in range(ROUNDS):
        answer(link)
        link.send(Send(link.segment, bytes(1000), 100))
        answer(link)
        link.send(alone(link.segment, bytes(50)))
        if not link.send_packet(bytes(80)):
            link.send(alone(link.segment, bytes(80)))
    print(link.counters.send_errors, link.sockets.gso)
    link.close()


if __name__ == "__main__":
    main()
