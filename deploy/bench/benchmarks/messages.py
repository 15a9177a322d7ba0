"""`pgm bench messages`: small messages with subjects, many to a packet, and how many arrive a second without loss."""

from __future__ import annotations

from deploy.bench.benchmarks.throughput import contended
from deploy.bench.place import ETHERNET_MTU, JUMBO_MTU, open_place
from deploy.bench.settings import BenchSettings, Row

SIZE = 70  # octets


async def messages(settings: BenchSettings) -> list[Row]:
    """Rows of all contenders, for packets of an ordinary Ethernet and for jumbo frames."""
    rows = []
    for mtu in (ETHERNET_MTU, JUMBO_MTU):
        with open_place(settings.path, mtu) as place:
            rows += await contended("messages", settings.job(place, SIZE), settings)
    return rows
