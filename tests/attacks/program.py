"""Attacker as a program: an ordinary UDP sender on a segment, which hears the group and sends forgeries of all kinds.

python -m tests.attacks.program --group GROUP --port PORT --address ADDRESS... --source ADDRESS --members ADDRESS...

The program forges `--fresh` packets a second, and sends each again and again while newer ones take its place. It sends
from each of its addresses in turn, many by one system call: an attacker on the same machine takes little of its time.
With `--hold` it listens until a line comes on standard input. Its last line is JSON: the packets sent, by kind.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import random
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence

import attrs
import numpy as np

from pgm.net.sockets.msghdr import IoVec, MsgHdr
from pgm.net.sockets.packet_filter import attach
from tests.attacks.forgeries import FORGERIES, Mint, NotHeardError, To
from tests.attacks.heard import Heard, Place

_POOL = 4096  # forgeries that are sent in turn
_VOLLEY = 32  # from one address, by one call
_MOST_OCTETS = 1500
_STEP_S = 0.005
_READS = 64  # in one step


class _Message(ctypes.Structure):
    """C structure `mmsghdr`."""

    _fields_ = (("header", MsgHdr), ("length", ctypes.c_uint32))


_sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg


def _without_ports(ports: Sequence[int]) -> bytes:
    """Return a classic BPF program that drops UDP packets from these ports: an attacker need not hear itself."""
    load, equal, leave = 0x28, 0x15, 0x06  # opcodes of linux/filter.h
    tests = [(equal, len(ports) - index, 0, port) for index, port in enumerate(ports)]
    code = [(load, 0, 0, 0), *tests, (leave, 0, 0, 0xFFFFFFFF), (leave, 0, 0, 0)]
    return b"".join(struct.pack("=HBBI", *one) for one in code)


class Magazine:
    """Ring of forgeries, ready for `sendmmsg`: newer ones take the place of older ones."""

    def __init__(self) -> None:
        self._octets = np.zeros((_POOL, _MOST_OCTETS), np.uint8)
        self._names = np.zeros((_POOL, 16), np.uint8)  # sockaddr_in
        self._vectors = (IoVec * _POOL)()
        self._messages = (_Message * _POOL)()
        self._kinds: list[str] = [""] * _POOL
        self._filled = self._made = self._next = 0
        for index in range(_POOL):
            self._vectors[index] = IoVec(self._octets[index].ctypes.data, 0)
            self._messages[index].header = MsgHdr(
                name=self._names[index].ctypes.data,
                name_length=16,
                iov=ctypes.addressof(self._vectors[index]),
                iov_length=1,
            )

    def load(self, kind: str, octets: bytes, to: tuple[str, int]) -> None:
        """Add a forgery."""
        index = self._made % _POOL
        self._made += 1
        self._filled = min(_POOL, self._made)
        self._kinds[index] = kind
        self._octets[index, : len(octets)] = np.frombuffer(octets, np.uint8)
        self._vectors[index].length = len(octets)
        name = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", to[1], socket.inet_aton(to[0]))
        self._names[index] = np.frombuffer(name, np.uint8)

    def fire(self, barrels: Sequence[socket.socket], count: int, sent: collections.Counter[str]) -> None:
        """Send forgeries in turn, in small volleys from each socket in turn."""
        if not self._filled:
            return
        while count > 0:
            first = self._next % self._filled
            most = min(count, _VOLLEY, self._filled - first)
            barrel = barrels[self._next // _VOLLEY % len(barrels)]
            gone = _sendmmsg(barrel.fileno(), ctypes.byref(self._messages, first * ctypes.sizeof(_Message)), most, 0)
            sent.update(self._kinds[first : first + max(0, gone)])
            self._next += most
            count -= most


@attrs.define(eq=False)
class Gun:
    """Sockets of an attacker, and its forgeries."""

    place: Place
    port: int
    mint: Mint
    ear: socket.socket
    barrels: list[socket.socket]
    magazine: Magazine = attrs.field(factory=Magazine)
    sent: collections.Counter[str] = attrs.field(factory=collections.Counter)

    @classmethod
    def at(cls, place: Place, port: int, addresses: Sequence[str], seed: int) -> Gun:
        """Open the sockets: one that hears the group, and one for each address."""
        rng = random.Random(seed)
        ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ear.bind((place.group, port))
        member = struct.pack("4s4s", socket.inet_aton(place.group), socket.inet_aton(addresses[0]))
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        ear.setblocking(False)
        barrels = []
        for address in addresses:
            barrel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            barrel.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
            barrel.bind((address, 0))
            barrels.append(barrel)
        attach(ear, _without_ports([barrel.getsockname()[1] for barrel in barrels]))
        return cls(place, port, Mint(Heard(place, rng), rng, addresses[0]), ear, barrels)

    def listen(self) -> None:
        """Hear what true nodes have sent to the group since the last step. Own packets come back too, and are skipped."""
        own = {barrel.getsockname() for barrel in self.barrels}
        for _ in range(_READS):
            try:
                octets, sender = self.ear.recvfrom(1 << 16)
            except BlockingIOError:
                return
            if sender not in own:
                self.mint.heard.hear(octets)

    def forge(self, count: int) -> None:
        """Put new forgeries into the pool."""
        mint, rng = self.mint, self.mint.rng
        mint.now_ns = time.time_ns()
        for forgery in rng.choices(FORGERIES, [one.weight for one in FORGERIES], k=count):
            try:
                octets = forgery.make(mint)
            except NotHeardError:
                continue
            address = self.place.group if rng.choice(forgery.to) is To.GROUP else rng.choice(self.place.members)
            if 0 < len(octets) <= _MOST_OCTETS:
                self.magazine.load(forgery.kind, octets, (address, self.port))

    def fire(self, count: int) -> None:
        """Send forgeries in turn."""
        self.magazine.fire(self.barrels, count, self.sent)

    def run(self, seconds: float, rate: int, fresh: int) -> None:
        """Send forgeries at a rate."""
        begun, forged, fired = time.monotonic(), 0, 0
        while (passed := time.monotonic() - begun) < seconds:
            self.listen()
            due = int(passed * fresh) - forged
            self.forge(min(due, 200))
            forged += due
            due = int(passed * rate) - fired
            self.fire(min(due, 1000))
            fired += due
            time.sleep(_STEP_S)

    def close(self) -> None:
        """Close the sockets."""
        for sock in (self.ear, *self.barrels):
            sock.close()


def main() -> None:
    """Attack a segment from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("group", "source"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--address", nargs="+", required=True, help="addresses of the attacker; others' if it has them")
    parser.add_argument("--members", nargs="+", required=True, help="nodes of the segment, for unicast")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-port", type=int, default=7500)
    parser.add_argument("--rate", type=int, default=20_000, help="packets a second")
    parser.add_argument("--fresh", type=int, default=1000, help="new forgeries a second")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--hold", action="store_true", help="listen until a line comes on standard input")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    place = Place(given.group, given.source, tuple(given.members), given.data_port)
    gun = Gun.at(place, given.port, given.address, given.seed)
    while given.hold and not select.select([sys.stdin], [], [], _STEP_S)[0]:
        gun.listen()
    gun.run(given.seconds, given.rate, given.fresh)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"sent": sum(gun.sent.values()), "cpu_s": used.ru_utime + used.ru_stime, "kinds": gun.sent}))
    gun.close()


if __name__ == "__main__":
    main()
