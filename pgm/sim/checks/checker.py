"""Base of all checkers: an observer of nodes that knows its world."""

from __future__ import annotations

from pgm.sim.node import NodeObserver
from pgm.sim.world import World


class Checker(NodeObserver):
    """Observer that fails a run with `world.fail` when an invariant does not hold."""

    world: World

    def attach(self, world: object) -> None:
        """Store the world that the checker observes."""
        assert isinstance(world, World)
        self.world = world
