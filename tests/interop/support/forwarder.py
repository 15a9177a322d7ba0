"""Bare forwarder in place of a relay: it only receives and sends. A relay's speed is compared with it.

    python -m tests.interop.support.forwarder single|trains GROUP PORT ADDRESS OUT_GROUP OUT_ADDRESS BUFFER

`single` makes two plain calls a datagram. `trains` has the socket options of our links: the kernel gathers received
datagrams into a train and cuts sent trains. The process ends with its standard input.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading

from deploy.bench.peers.control import Control
from pgm.net.sockets.open import SOL_UDP, UDP_GRO, UDP_SEGMENT

_READ_OCTETS = 65_536
_MREQN = struct.Struct("@4s4s")
_INT = struct.Struct("=i")
_U16 = struct.Struct("=H")


def sockets(group: str, port: int, address: str, out_group: str, out_address: str, buffer: int) -> list[socket.socket]:
    """Return a socket that has joined a group, and a socket connected to another group."""
    incoming = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    incoming.bind((group, port))
    membership = _MREQN.pack(socket.inet_aton(group), socket.inet_aton(address))
    incoming.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    incoming.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    outgoing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outgoing.bind((out_address, 0))
    outgoing.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(out_address))
    outgoing.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    outgoing.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    outgoing.connect((out_group, port))
    return [incoming, outgoing]


def forward_single(incoming: socket.socket, outgoing: socket.socket) -> None:
    """Forward for ever, with one receive call and one send call a datagram."""
    buffer = bytearray(_READ_OCTETS)
    view = memoryview(buffer)
    receive, send = incoming.recv_into, outgoing.send
    while True:
        send(view[: receive(buffer)])


def forward_trains(incoming: socket.socket, outgoing: socket.socket) -> None:
    """Forward for ever, with one receive call and one send call for each train that the kernel has gathered."""
    incoming.setsockopt(SOL_UDP, UDP_GRO, 1)
    buffer = bytearray(_READ_OCTETS)
    view = memoryview(buffer)
    receive, send = incoming.recvmsg_into, outgoing.sendmsg
    room = socket.CMSG_SPACE(_INT.size)
    while True:
        count, ancillary, _, _ = receive([buffer], room)
        stride = _INT.unpack(ancillary[0][2])[0] if ancillary else count
        cuts = [(SOL_UDP, UDP_SEGMENT, _U16.pack(stride))] if stride < count else []
        send([view[:count]], cuts)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> None:
    """Forward until standard input ends."""
    how, group, port, address, out_group, out_address, buffer = sys.argv[1:]
    pair = sockets(group, int(port), address, out_group, out_address, int(buffer))
    Control().say("ready")
    os.set_blocking(0, True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    {"single": forward_single, "trains": forward_trains}[how](*pair)


if __name__ == "__main__":
    main()
