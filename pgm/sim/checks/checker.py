"""Base of all checkers: an observer of nodes that knows its world."""

from __future__ import annotations

from pgm.sim.node import NodeObserver
from pgm.sim.world import World


class Checker(NodeObserver):
    """Observer that fails a run with `world.fail` when an invariant does not hold."""

    world: World

    def attach(self, world: object) -> None:
        """Take the world that the checker watches."""
        assert isinstance(world, World)
        self.world = world
