"""`pgm bench messages`: lossless rate of small messages that share packets. The messages have subjects."""

from __future__ import annotations

from deploy.bench.benchmarks.throughput import contended
from deploy.bench.place import ETHERNET_MTU, JUMBO_MTU, open_place
from deploy.bench.settings import BenchSettings, Row

SIZE = 70  # octets


async def messages(settings: BenchSettings) -> list[Row]:
    """Measure all contenders with standard and with jumbo frames; return their rows."""
    rows = []
    for mtu in (ETHERNET_MTU, JUMBO_MTU):
        with open_place(settings.path, mtu) as place:
            rows += await contended("messages", settings.job(place, SIZE), settings)
    return rows
