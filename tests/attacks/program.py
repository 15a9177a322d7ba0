"""Attacker as a program: an ordinary UDP sender on a segment, which hears the group and sends forgeries of all kinds.

python -m tests.attacks.program --group GROUP --port PORT --address ADDRESS... --source ADDRESS --members ADDRESS...

The program forges `--fresh` packets a second, and sends each again and again while newer ones take its place. It sends
from each of its addresses in turn. With `--hold` it listens until a line comes on standard input. Its last line is JSON:
the packets sent, by kind.
"""

from __future__ import annotations

import argparse
import collections
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

from tests.attacks.forgeries import FORGERIES, Mint, NotHeardError, To
from tests.attacks.heard import Heard, Place

_POOL = 4096  # forgeries that are sent in turn
_STEP_S = 0.005
_READS = 64  # in one step


@attrs.define(eq=False)
class Gun:
    """Sockets of an attacker, and its pool of forgeries."""

    place: Place
    port: int
    mint: Mint
    ear: socket.socket
    barrels: list[socket.socket]
    pool: collections.deque[tuple[str, bytes, tuple[str, int]]] = attrs.field(
        factory=lambda: collections.deque(maxlen=_POOL)
    )
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
            if 0 < len(octets) <= 1500:
                self.pool.append((forgery.kind, octets, (address, self.port)))

    def fire(self, count: int) -> None:
        """Send forgeries of the pool in turn."""
        pool, sent = self.pool, self.sent
        for index in range(min(count, len(pool) and count)):
            kind, octets, to = pool[0]
            pool.rotate(-1)
            try:
                self.barrels[index % len(self.barrels)].sendto(octets, to)
            except OSError:
                continue  # a full buffer
            sent[kind] += 1

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
