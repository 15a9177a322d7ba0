"""Messages, openings and checks of the library's tests."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import pgm
from pgm.impairments import Impairment, Injector
from pgm.net.endpoint.receiver import Receiver
from pgm.topology.load import loads
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_node
from tests.net.support.places import Place, one_segment

SIZES = [0, 1, 7, 8, 70, 1000, 1400, 1440, 1441, 1448, 1449, 2000, 2900, 10_000, 65_536, 100_001, 1_000_000, 0, 3]


def messages_of_sizes(sizes: list[int], seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


def planned(place: Place, node: str, **options: str) -> NodePlan:
    return plan_node(loads(one_segment(place, **options)), node)


def injector(loss: float) -> Injector:
    return Injector(Impairment(loss=loss), "test")


async def open_all(stack: AsyncExitStack, place: Place, count: int, **parameters: object) -> list[Receiver]:
    topology = loads(one_segment(place))
    nodes = [f"desk-{number}" for number in range(1, count + 1)]
    return [await stack.enter_async_context(pgm.open_receiver(topology, node=node, **parameters)) for node in nodes]


def open_files() -> set[str]:
    """Return the open files of this process, sockets by their inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the listing's own
    return {one for one in found if one.startswith("socket:")}


@contextmanager
def bound_socket(address: str, port: int) -> Iterator[socket.socket]:
    """Hold a UDP port of an address as another program does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((address, port))
        yield sock
