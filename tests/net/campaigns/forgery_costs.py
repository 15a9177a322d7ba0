"""Processor time of a node for one forgery, by kind: of reading it, and of refusing it.

    python -m tests.net.campaigns.forgery_costs --count 400

A signed tree runs in this process and rests. Forgeries wait in the sockets of its nodes before the clock starts, so the
figures are without wake-ups, and without the kernel's work for the sender. The kernel filters nothing. The columns are the
addresses of the sender: one that the file does not list, or that of the relay, which is a parent.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.trust.private_keys import PrivateFile
from tests.attacks.forgeries import FORGERIES, Forgery, NotHeardError
from tests.attacks.heard import Place as HeardPlace
from tests.attacks.program import Gun
from tests.folders import short_folder
from tests.net.campaigns.attacked_segment import KEYS, SIZE, text_of
from tests.net.support.elements import Tree, running
from tests.net.support.places import Place

NODES = ("relay", "repairer", "desk-1")
SENDERS = {"unlisted": 66, "parent": 3}
MIXED = Forgery("all kinds, mixed", "", lambda _: b"")
_MESSAGES = 400


@attrs.frozen
class Cost:
    """Processor time of some packets at one node, us a packet."""

    packets: int
    read_us: float
    core_us: float

    @property
    def text(self) -> str:
        """Return both times as text."""
        return f"{self.read_us:5.1f} +{self.core_us:6.1f}"


def _forged(gun: Gun, row: Forgery, count: int) -> list[bytes]:
    """Return forgeries of one kind, or of all kinds by their weights."""
    rng, made = gun.mint.rng, []
    gun.mint.now_ns = time.time_ns()
    for _ in range(count):
        chosen = row if row is not MIXED else rng.choices(FORGERIES, [one.weight for one in FORGERIES])[0]
        try:
            octets = chosen.make(gun.mint)
        except NotHeardError:
            continue
        if 0 < len(octets) <= 1500:
            made.append(octets)
    return made


def _cost(tree: Tree, node: str) -> Cost:
    """Read all that waits at a node, and give it to the core."""
    driver = tree.drivers[node]
    packets, reading, in_core = 0, 0, 0
    clock = time.process_time_ns
    for link in driver.links:
        for sock in link.inputs:
            while True:
                begun = clock()
                arrival = link.read(sock)
                ended = clock()
                if arrival is None:
                    break
                reading += ended - begun
                packets += arrival.train.count
                driver.core.receive(arrival.train, arrival.channel, arrival.peer, time.monotonic_ns())
                in_core += clock() - ended
    each = 1000 * max(1, packets)
    return Cost(packets, reading / each, in_core / each)


async def measure(place: Place, folder: Path, count: int, kinds: Sequence[Forgery]) -> None:
    """Print a row for each kind."""
    text = text_of(place, folder, "20Mbit/s").replace("parameters = {", "parameters = { kernel_refusal_after = 0,")
    topology = loads(text)
    write_private_file(place_of(topology.name, "source"), PrivateFile(topology.name, "source", KEYS))
    members = tuple(place.address(host) for host in (3, 4, 100))
    heard = HeardPlace(place.group(1), place.address(3), members, 7500)
    async with running(topology, *NODES, "source") as tree:
        guns = {name: Gun.at(heard, place.port, [place.address(host)], 1) for name, host in SENDERS.items()}
        ear = guns["unlisted"]
        for number in range(_MESSAGES):
            await tree.sources["source"].send(b"%08d" % number * (SIZE // 8))
            await trio.lowlevel.checkpoint()
            ear.listen()
        with trio.fail_after(10):
            while tree.core("desk-1").counters.delivered_packets < _MESSAGES:
                await tree.receivers["desk-1"].next_batch()
                ear.listen()
        print("us to read + us to refuse a forgery; columns: " + ", ".join(f"{s} {n}" for n in NODES for s in SENDERS))
        for row in kinds:
            made, costs = _forged(ear, row, count), collections.defaultdict[str, list[str]](list)
            for gun in guns.values():
                barrel = gun.barrels[0]
                for octets in made:
                    barrel.sendto(octets, (heard.group, place.port))
                for node in NODES:
                    costs[node].append(_cost(tree, node).text)
            print(f"{row.name:32s} {len(made):5d}", "  ".join(" ".join(costs[node]) for node in NODES), flush=True)
        for gun in guns.values():
            gun.close()


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="forgeries of each kind")
    parser.add_argument("--kinds", nargs="*", default=[], help="rows of tests/attacks/forgeries.py")
    given = parser.parse_args()
    random.seed(1)
    kinds = [row for row in (MIXED, *FORGERIES) if not given.kinds or row.name in given.kinds]
    with short_folder() as folder:
        os.environ["PGM_KEY_DIR"] = str(folder / "keys")
        trio.run(measure, Place.new(), folder, given.count, kinds)


if __name__ == "__main__":
    main()
