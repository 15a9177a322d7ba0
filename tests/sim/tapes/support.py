"""Trees whose nodes keep tapes."""

from __future__ import annotations

from pathlib import Path

from pgm.sim.runs.tapes import TapeChecker
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import World
from pgm.tape.recorder import TapeRecorder
from pgm.tape.replay import Replay
from pgm.units import SECOND
from tests.sim.support.worlds import finish, lossy, make_world, parameters, traffic

LOSS = lossy(0.2)
WIRINGS = {"repairer": LOSS, "aggregator": LOSS, "receiver": LOSS}


def tree(**changes: object) -> TreeBuilder:
    """Return a tree with a node of each role."""
    builder = TreeBuilder(parameters(**changes))
    builder.source("source", "core")
    builder.repairer("repairer", "core", "hall", parents=("source",))
    builder.aggregator("aggregator", "hall", "desk", parents=("repairer",))
    for index in range(2):
        builder.receiver(f"receiver-{index}", "desk", "aggregator")
    return builder


def taped(
    folder: Path, seed: int, *, messages: int = 250, rate: int = 1000, until_s: int = 0, **changes: object
) -> tuple[World, TapeChecker]:
    """Run a tree at a loss of 20 % to its end, or for some seconds. Return it with its tapes."""
    tapes = TapeChecker(folder)
    world = make_world(
        tree(**changes), traffic(messages, rate=rate), seed=seed, wirings=WIRINGS, is_timed=False, more=(tapes,)
    )
    if until_s:
        world.run_until(until_s * SECOND)
    else:
        finish(world)
    tapes.finish()
    return world, tapes


def replayed(recorder: TapeRecorder) -> Replay:
    """Return the finished replay of a tape."""
    replay = Replay(recorder.folder)
    replay.run()
    return replay
