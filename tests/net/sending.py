"""A source's link in a process of its own: it sends, and is told by ICMP that nobody wants it.

`python -m tests.net.sending URL` prints how many errors it has counted when all is sent.
"""

from __future__ import annotations

import socket
import struct
import sys

from pgm.core.arena import Arena
from pgm.core.effects import Send, alone
from pgm.net.link import Link, open_links
from pgm.net.open import resolve
from pgm.topology.node_plan import Role
from pgm.wire.checksum import checksum

ROUNDS = 20
PACKETS_A_ROUND = 12
_UNREACHABLE, _PORT = 3, 3
_ANSWER = struct.Struct("!BB2s4s")
_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")


def refuse(link: Link) -> None:
    """Say to a source what no host should say of a packet to a group: that nobody listens at its port."""
    host, port = link.sockets.own.getsockname()
    udp = _UDP.pack(port, link.plan.port, 108, 0)
    names = socket.inet_aton(host), socket.inet_aton(link.plan.group)
    quoted = _IP.pack(0x45, 0, 128, 1, 0, 16, socket.IPPROTO_UDP, 0, *names) + udp
    answer = _ANSWER.pack(_UNREACHABLE, _PORT, bytes(2), bytes(4)) + quoted
    answer = _ANSWER.pack(_UNREACHABLE, _PORT, checksum(answer), bytes(4)) + quoted
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.sendto(answer, (host, 0))


def main() -> None:
    """Send trains, and single packets of both ways, and all of that behind a refusal."""
    [link] = open_links(resolve(sys.argv[1], None, Role.SOURCE, {}), Arena())
    for _ in range(ROUNDS):
        refuse(link)
        link.send(Send(link.segment, bytes(1000), 100))
        refuse(link)
        link.send(alone(link.segment, bytes(50)))
        if not link.send_alone(bytes(80)):
            link.send(alone(link.segment, bytes(80)))
    print(link.counters.send_errors)
    link.close()


if __name__ == "__main__":
    main()
