"""Time from the detection of a loss to its repair, on one link."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from deploy.node.roles import build_core
from pgm.core.loss_observer import MissingView, NoObserver
from pgm.models.latency import RepairPath, latency_quantiles, mean_latency
from pgm.sim.world import World
from pgm.units import MICROSECOND, MILLISECOND, SECOND
from pgm.wire.formats import Tsi
from tests.sim.figures.models.rows import Row
from tests.sim.figures.models.sends import flat
from tests.sim.support.worlds import lossy, traffic

LINKS = ((1, 0.05, 20_000), (30, 0.05, 2000))  # receivers, loss, packets
_BACK_OFF, _REORDER, _HOLD = 10 * MILLISECOND, MILLISECOND, MILLISECOND
_HALF_TRIP = 50 * MICROSECOND
_REPEAT = 20 * MILLISECOND  # the shortest wait for RDATA: answers on this link come at once


class _Latencies(NoObserver):
    """Observer of the cores of all receivers: latencies of their repairs, in ns."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        for missing in found:
            self.found += [now_ns - missing.found_at_ns] * (missing.end - missing.first)


def latencies(receivers: int, loss: float, packets: int) -> list[int]:
    """Return the latencies of all repairs of a link, in ns. Packets leave every 20 ms, in trains of one."""
    observer = _Latencies()
    world = World(build_core, seed=1)
    tree = flat(receivers, nak_bo_ivl=_BACK_OFF, reorder_ivl=_REORDER, nak_rdata_min_ivl=_REPEAT)
    for name, plan in tree.plans.items():
        is_source = name == "source"
        offered = traffic(packets, size=1000, rate=50, burst=1) if is_source else None
        world.add_node(plan, wiring=None if is_source else lossy(loss, delay=_HALF_TRIP), traffic=offered)
    world.run_until(SECOND // 2)
    for node in world.receivers:
        node.counters[0].watch = observer
    world.run_until(2 * SECOND + packets * SECOND // 50)
    return observer.found


def _path(loss: float, askers: int) -> RepairPath:
    return RepairPath(
        detection_s=_REORDER / SECOND,
        back_off_s=_BACK_OFF / SECOND,
        round_trip_s=(2 * _HALF_TRIP + _HOLD) / SECOND,
        retry_s=_REPEAT / SECOND,
        loss=loss,
        askers=askers,
    )


def link(receivers: int, loss: float, packets: int) -> Iterator[Row]:
    """Yield the latencies of one link in ms. Other receivers lack the packet too, by the binomial distribution."""
    case, found = f"{receivers} receivers, {loss:.0%}", np.array(latencies(receivers, loss, packets)) / MILLISECOND
    others = receivers - 1
    mean = sum(
        math.comb(others, lack) * loss**lack * (1 - loss) ** (others - lack) * mean_latency(_path(loss, 1 + lack))
        for lack in range(receivers)
    )
    yield Row(case, "mean, ms", float(found.mean()), 1000 * mean, "first waits" if others else "")
    if receivers == 1:
        shares = (0.5, 0.9, 0.99)
        for share, formula in zip(shares, latency_quantiles(_path(loss, 1), shares), strict=True):
            measured = float(np.quantile(found, share))
            cause = "lost NCFs" if share > 0.95 else ""
            name = f"p{100 * share:.0f}, ms"
            yield Row(case, name, measured, 1000 * formula, cause, series="one receiver", x=100 * share)


def rows() -> Iterator[Row]:
    """Yield the rows of all links."""
    for receivers, loss, packets in LINKS:
        yield from link(receivers, loss, packets)
