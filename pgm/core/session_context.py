"""Context of one session: its identity, and what its parts share."""

from __future__ import annotations

import random

import attrs

from pgm.core.counters import Counters
from pgm.core.node_id import NodeId
from pgm.parameters import Parameters
from pgm.wire.formats import Tsi


@attrs.frozen
class SessionContext:
    """Identity of one session, and the objects that its parts share.

    All sessions of a node share `counters`, `rng` and `node_id`. A source answers no polls, so the default of
    `node_id` suffices there. A part that reads a value for each packet keeps that value as its own attribute.
    """

    tsi: Tsi
    data_port: int
    parameters: Parameters
    counters: Counters
    rng: random.Random
    node_id: NodeId = attrs.field()
    is_signed: bool = False  # whether the SPMs of the stream are signed
    opened_at_ns: int = 0  # a signed session opens with the first SPM whose signature is valid

    @node_id.default
    def _new_node_id(self) -> NodeId:
        return NodeId(self.rng)
