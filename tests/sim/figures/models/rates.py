"""Rate of a congestion-controlled stream to one receiver, by its round trip and its loss."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.node.roles import build_core
from pgm.impairments import Impairment
from pgm.models.pgmcc import window_rate
from pgm.sim.applications import ReceiverApplication, Traffic
from pgm.sim.links import LinkSetup
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring, World, tsi_of
from pgm.units import MILLISECOND, NEVER, SECOND
from tests.sim.figures.models.rows import Picture, Row, spaced
from tests.sim.support.worlds import parameters

PATHS = ((40, 0.01), (40, 0.003), (100, 0.003), (10, 0.003))  # round trip in ms, loss
LOSSES = 600  # of a run: so many halvings make the mean certain to some 2 %
_BEGIN_S = 10  # of slow start


def rate(round_trip_ms: int, loss: float, seconds: int, seed: int = 1) -> float:
    """Return the packets a second that the receiver delivered."""
    tree = TreeBuilder(parameters(txw_max_rte=125_000_000), flow="pgmcc")
    tree.source("source", "path")
    tree.receiver("receiver", "path", "source")
    delay = round_trip_ms * MILLISECOND // 2
    wirings = {
        "source": Wiring(ingress=LinkSetup(delay=delay)),
        "receiver": Wiring(ingress=LinkSetup(delay=delay, impairment=Impairment(loss=loss))),
    }
    offered = Traffic(100_000_000, size=1000, burst=20, start_ns=SECOND, close_at_ns=NEVER)
    world = World(build_core, seed=seed)
    for name, plan in tree.plans.items():
        world.add_node(plan, wiring=wirings[name], traffic=offered if name == "source" else None)
    world.run_until(_BEGIN_S * SECOND)
    before = _delivered(world)
    world.run_until((_BEGIN_S + seconds) * SECOND)
    return (_delivered(world) - before) / seconds


def _delivered(world: World) -> int:
    application = world.nodes["receiver"].application
    assert isinstance(application, ReceiverApplication)
    return application.streams[tsi_of("source", 0)].delivered_sqns


def path(round_trip_ms: int, loss: float, losses: int = LOSSES) -> Row:
    """Return the row of one path."""
    formula = window_rate(round_trip_ms / 1000, loss)
    found = rate(round_trip_ms, loss, round(losses / loss / formula))
    case = f"{round_trip_ms} ms, {loss:.1%}"
    return Row(case, "packets a second", found, formula, series=f"round trip {round_trip_ms} ms", x=100 * loss)


def rows() -> Iterator[Row]:
    """Yield the rows of all paths."""
    for round_trip_ms, loss in PATHS:
        yield path(round_trip_ms, loss)


def picture() -> Picture:
    """Return the rate over the loss, for three round trips."""
    losses = spaced(0.0005, 0.05)
    curves = {f"round trip {ms} ms": [window_rate(ms / 1000, one) for one in losses] for ms in (10, 40, 100)}
    return Picture("loss, %", "packets a second", [100 * one for one in losses], curves, is_logarithmic=True)
