"""What a checker may watch. A world calls only the methods that a checker defines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgm.core.effects import Effect, Effects, Send
from pgm.core.segment import Channel
from pgm.wire.formats import Nla
from pgm.wire.train import Train

if TYPE_CHECKING:
    from pgm.sim.node import SimulatedNode
    from pgm.sim.world import World


class Checker:
    """Watches a world and complains by `world.fail`."""

    world: World

    def started(self, node: SimulatedNode) -> None:
        """A node has got a new core."""

    def resumed(self, node: SimulatedNode) -> None:
        """A stopped node goes on."""

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """A train is about to be handed to a core."""

    def called(self, node: SimulatedNode) -> None:
        """A core has run and its effects are done."""

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """A node puts octets on a segment."""

    def performs(self, node: SimulatedNode, effects: Effects) -> None:
        """A core has returned these."""

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """An application was told something."""

    def finish(self) -> None:
        """The run is over."""
